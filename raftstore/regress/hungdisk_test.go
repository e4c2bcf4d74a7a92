package regress

import (
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// TestHungDiskKeepsLeader: hashicorp/raft#503. A leader whose disk hangs in
// StoreLogs (no error, just no return) stays leader: heartbeats have goroutines
// of their own, and the lease is checked by the main loop, which is the one
// that hangs. No write can succeed, and no election begins. Hence the watchdog
// around our log store, which ends the process.
func TestHungDiskKeepsLeader(t *testing.T) {
	virtual(t, func(t *testing.T) {
		disks := map[raft.ServerID]*hangingLog{}
		c := start(t, setup{logStore: func(id raft.ServerID, s *raft.InmemStore) raft.LogStore {
			disks[id] = &hangingLog{InmemStore: s}
			return disks[id]
		}}, "a", "b", "c")
		defer c.stop()
		a := c.lead("a")
		term := a.raft.CurrentTerm()

		repaired := make(chan struct{})
		disks["a"].until = repaired // no write is under way: the main loop does not look at it
		write := a.raft.Apply([]byte("x"), time.Second)
		done := make(chan error, 1)
		go func() { done <- write.Error() }()

		const hang = 10 * time.Minute
		select {
		case err := <-done:
			pitfall(t, false, "the write returned: %v", err)
		case <-time.After(hang):
		}
		for id, n := range c.nodes {
			_, leader := n.raft.LeaderWithID()
			pitfall(t, leader == "a" && n.raft.CurrentTerm() == term,
				"%s follows %q in term %d", id, leader, n.raft.CurrentTerm())
		}
		t.Logf("disk of a hangs for %v: a is %v in term %d, b and c follow it, a write has no answer (its timeout was 1s)", hang, a.raft.State(), term)
		close(repaired)
		<-done
	})
}

// hangingLog is a log store whose next writes can be made to hang.
type hangingLog struct {
	*raft.InmemStore
	until chan struct{}
}

func (h *hangingLog) StoreLog(l *raft.Log) error { return h.StoreLogs([]*raft.Log{l}) }

func (h *hangingLog) StoreLogs(ls []*raft.Log) error {
	if h.until != nil {
		<-h.until
	}
	return h.InmemStore.StoreLogs(ls)
}
