package regress

import (
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/quorate/quorate/internal/must"
)

// TestTransferFlagStuck: hashicorp/raft#696. After an interrupted leadership
// transfer the flag "transfer in progress" is never cleared. When the node
// leads again, much later, it refuses every write, barrier and transfer until
// its process is restarted.
//
// The way in: two transfers to a follower whose replication hangs. The first
// fills the one-place channel to the replication goroutine; the second waits to
// send on it, and waits for ever when that goroutine ends with the leadership.
//
// Real time, not virtual: the pitfall IS a leaked goroutine, which a synctest
// bubble would report as a deadlock.
// Real time, too, is why it may take more than one attempt: on a loaded machine
// the two transfers may not meet the window.
func TestTransferFlagStuck(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("transfers that time out, and three election timeouts, take nine seconds")
	}
	for range 3 {
		if transferFlagStuck(t) {
			return
		}
	}
	pitfall(t, false, "interrupted transfers leave nothing behind")
}

// transferFlagStuck reports whether both signs show: writes are refused while
// the second transfer hangs, and again after the node was elected again.
func transferFlagStuck(t *testing.T) bool {
	c := start(t, setup{}, "a", "b", "c")
	defer c.stop()
	a := c.lead("a")

	arrive := make(chan struct{})
	a.net.change("b", func(l *link) { l.lateEntries = arrive })
	c.write(a, "committed by a and c; still on its way to b")
	for i := range 2 {
		err := a.raft.LeadershipTransferToServer("b", "b").Error()
		if err == nil || errors.Is(err, raft.ErrLeadershipTransferInProgress) {
			t.Fatalf("setup: transfer %d to b returned %v, want a timeout", i+1, err)
		}
		time.Sleep(100 * time.Millisecond) // the answer comes before raft has cleaned up
	}
	err := a.raft.Apply([]byte("x"), time.Second).Error()
	t.Logf("a failed transfer is over, and a write returns: %v", err)
	stuck := errors.Is(err, raft.ErrLeadershipTransferInProgress)
	if !stuck {
		close(arrive)
		return false
	}

	one, other := []raft.ServerID{"a"}, []raft.ServerID{"b", "c"}
	c.part(true, one, other)
	c.leader("c") // b lacks an entry and cannot win
	for a.raft.State() == raft.Leader {
		time.Sleep(5 * time.Millisecond)
	}
	close(arrive) // b answers with its newer term: a's replication goroutine ends
	//sleep: the library says nothing when it has cleaned up, nor that it never will
	time.Sleep(100 * time.Millisecond)
	a.net.change("b", func(l *link) { l.lateEntries = nil })
	c.part(false, one, other)
	c.write(c.leader("c"), "normal life goes on")

	must.OK(t, c.leader("c").raft.LeadershipTransferToServer("a", "a").Error())
	c.leader("a")
	for _, wait := range []time.Duration{0, 3 * time.Second} { // three election timeouts
		time.Sleep(wait)
		err := a.raft.Barrier(time.Second).Error()
		stuck = stuck && errors.Is(err, raft.ErrLeadershipTransferInProgress)
		t.Logf("%v after its new election: state %v, barrier: %v", wait, a.raft.State(), err)
	}
	return stuck
}
