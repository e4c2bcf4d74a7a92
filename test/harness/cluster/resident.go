package cluster

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// ResidentWatch looks at a node's resident memory all the time.
type ResidentWatch struct {
	Peak atomic.Int64
	Stop func()
}

// WatchResident looks until Stop, or the end of the test.
func WatchResident(t *testing.T, node *Node) *ResidentWatch {
	w := &ResidentWatch{}
	done, ended := make(chan struct{}), make(chan struct{})
	w.Stop = sync.OnceFunc(func() { close(done); <-ended })
	go func() {
		defer close(ended)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				w.Peak.Store(max(w.Peak.Load(), node.Resident(t)))
			}
		}
	}()
	t.Cleanup(w.Stop)
	return w
}

// Resident is the node's resident memory in bytes.
func (n *Node) Resident(t testing.TB) int64 {
	statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", n.PID))
	if err != nil {
		t.Errorf("%s: %v", n.Name, err)
		return 0
	}
	var size, pages int64
	if _, err := fmt.Sscan(string(statm), &size, &pages); err != nil {
		t.Errorf("%s: %v", n.Name, err)
	}
	return pages * int64(os.Getpagesize())
}
