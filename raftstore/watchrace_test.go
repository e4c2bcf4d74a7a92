package raftstore

import (
	"testing"
	"time"

	"github.com/quorate/quorate/raftstore/mvcc"
)

// TestWatchDoesNotWaitForItself: a watch that begins while its table grows gets
// its first wake from whoever is first, and Watch returns in any case. The number
// of rounds is what it takes to see the two meet.
func TestWatchDoesNotWaitForItself(t *testing.T) {
	h := newHub(mvcc.New())
	defer h.close()
	stop, growing := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(growing)
		for {
			select {
			case <-stop:
				return
			default:
				h.note("t")
				h.wakeUp()
			}
		}
	}()
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for range 1_000_000 {
			w, err := h.watch("t", 0)
			if err != nil {
				t.Error(err)
				return
			}
			<-w.Wake()
			w.Close()
		}
	}()
	select {
	case <-watched:
	case <-time.After(30 * time.Second):
		t.Error("a watch waits for a reader of its own wake")
	}
	close(stop)
	<-growing
}
