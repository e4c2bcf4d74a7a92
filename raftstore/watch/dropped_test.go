package watch

import (
	"errors"
	"sync"
	"testing"

	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// TestWatchOfADroppedTable: a watcher whose position is not compacted reads on, also in the moment in which its table is
// dropped, and is told of all that comes. The number of rounds is what it takes to see the two meet.
func TestWatchOfADroppedTable(t *testing.T) {
	rounds := 50_000
	if testing.Short() {
		rounds = 10_000
	}
	h := newWriter(t)
	ended := make(chan struct{})
	var reading sync.WaitGroup
	for _, only := range interesting() {
		reading.Go(func() {
			var buf [1]*mvcc.Version // so that reads go on where they were
			for {
				select {
				case <-ended:
					return
				default:
				}
				after := h.applied()
				w, err := h.Watch("t", after, only)
				if errors.Is(err, mvcc.ErrCompacted) {
					continue
				}
				at := after
				for turn := 0; err == nil && turn < 8; turn++ {
					var n int
					before := at
					if n, at, err = w.Next(buf[:]); n > 0 && (err != nil || buf[0].Revision <= before) {
						t.Errorf("behind %d: %d versions, the first of %d, %v", before, n, buf[0].Revision, err)
					}
				}
				if err != nil && (!errors.Is(err, mvcc.ErrCompacted) || h.State().Floor() <= at) {
					t.Errorf("a watch of %+v at %d, with the floor at %d: %v", only, at, h.State().Floor(), err)
				}
				w.Close()
			}
		})
	}
	for range rounds {
		h.write(&proto.Write{Table: "t", Key: "a/k", Op: proto.Op_OP_PUT, Value: []byte("{}")})
		h.write(&proto.Write{Table: "t", Key: "a/k", Op: proto.Op_OP_DELETE})
		h.compact(h.applied())
	}
	close(ended)
	reading.Wait()
}
