package test

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// residentWatch looks at a node's resident memory all the time.
type residentWatch struct {
	peak atomic.Int64
	stop func()
}

func watchResident(t *testing.T, node *Node) *residentWatch {
	w := &residentWatch{}
	done, ended := make(chan struct{}), make(chan struct{})
	w.stop = sync.OnceFunc(func() { close(done); <-ended })
	go func() {
		defer close(ended)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				w.peak.Store(max(w.peak.Load(), node.resident(t)))
			}
		}
	}()
	t.Cleanup(w.stop)
	return w
}

// resident is the node's resident memory in bytes.
func (n *Node) resident(t testing.TB) int64 {
	statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", n.pid))
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
