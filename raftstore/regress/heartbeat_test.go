//lint:file-ignore SA1019 raft 1.7 still sets and reads the fields that it deprecates

package regress

import (
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/quorate/quorate/internal/must"
)

// hashicorp/raft#695: NetworkTransport hands heartbeats to raft on the
// connection's goroutine (the "fast path"). A heartbeat from a newer leader
// then changes state and term behind the back of the old leader's main loop,
// and the next client write is appended to the old leader's log WITH THE NEW
// LEADER'S TERM. Log Matching is broken from then on, and nobody sees an error.
//
// Scenario: leader a is cut off; b and c elect a new leader; the links heal and
// the first message that reaches a is a heartbeat; then a client writes on a.
// Only a's timeouts are long: they stand for a leader whose lease timer has not
// fired yet, because it was paused or because the window is simply short.

// TestHeartbeatFastPathDiverges: with the fast path, one write makes the state
// machines differ for ever.
func TestHeartbeatFastPathDiverges(t *testing.T) {
	virtual(t, func(t *testing.T) {
		r := heartbeatThenWrite(t, newPipes().library)
		pitfall(t, r.old.Term == r.new.Term && string(r.old.Data) != string(r.new.Data),
			"index %d: a has term %d %q, the new leader has term %d %q",
			r.old.Index, r.old.Term, r.old.Data, r.new.Term, r.new.Data)
		pitfall(t, r.fsmOld != r.fsmNew, "state machines are equal: %s", r.fsmOld)
		pitfall(t, errors.Is(r.writeErr, raft.ErrLeadershipLost), "the write returned %v", r.writeErr)
		t.Logf("same index %d, same term %d: a has %v %q, the new leader has %v", r.old.Index, r.old.Term, r.old.Type, r.old.Data, r.new.Type)
		t.Logf("state machine of a:              %s", r.fsmOld)
		t.Logf("state machine of the new leader: %s", r.fsmNew)
	})
}

// TestNoFastPathStaysEqual (cure): our transport ignores SetHeartbeatHandler and
// sends heartbeats through the main loop. The same write is refused.
func TestNoFastPathStaysEqual(t *testing.T) {
	virtual(t, func(t *testing.T) {
		r := heartbeatThenWrite(t, newPipes().ours)
		if !errors.Is(r.writeErr, raft.ErrNotLeader) {
			t.Errorf("write on the deposed leader returned %v, want %v", r.writeErr, raft.ErrNotLeader)
		}
		if r.fsmOld != r.fsmNew {
			t.Errorf("state machines differ:\n a          %s\n new leader %s", r.fsmOld, r.fsmNew)
		}
	})
}

type heartbeatResult struct {
	old, new       raft.Log // entry at the end of a's log, and the new leader's at that index
	fsmOld, fsmNew string   // state after everything has healed
	writeErr       error
}

func heartbeatThenWrite(t *testing.T, network func(raft.ServerID) transport) heartbeatResult {
	t.Helper()
	c := start(t, setup{
		network: network,
		configure: func(id raft.ServerID, c *raft.Config) {
			c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLeaseTimeout = 3*time.Second, 3*time.Second, 2*time.Second
			if id == "a" {
				c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLeaseTimeout = 12*time.Second, 12*time.Second, 12*time.Second
			}
		},
	}, "a", "b", "c")
	defer c.stop()
	a := c.lead("a")
	for _, w := range []string{"w0", "w1", "w2"} {
		c.write(a, w)
	}
	//sleep: in virtual time: the helper opens the bubble
	time.Sleep(300 * time.Millisecond)

	c.part(true, []raft.ServerID{"a"}, []raft.ServerID{"b", "c"})
	leader := c.leader("b", "c")
	//sleep: in virtual time: the helper opens the bubble
	time.Sleep(200 * time.Millisecond) // its no-op commits
	term := leader.raft.CurrentTerm()
	if a.raft.State() != raft.Leader || a.raft.CurrentTerm() >= term {
		t.Fatalf("setup: a is %v in term %d, new leader in term %d", a.raft.State(), a.raft.CurrentTerm(), term)
	}

	heartbeat := &raft.AppendEntriesRequest{
		RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(leader.id), Addr: []byte(leader.addr)},
		Term:      term,
		Leader:    []byte(leader.addr),
	}
	must.OK(t, leader.net.transport.AppendEntries("a", a.addr, heartbeat, &raft.AppendEntriesResponse{}))
	write := a.raft.Apply([]byte("X"), time.Second)
	//sleep: in virtual time: the helper opens the bubble
	time.Sleep(50 * time.Millisecond)

	var r heartbeatResult
	r.old = a.lastEntry(t)
	r.new = leader.entry(t, r.old.Index)
	c.part(false, []raft.ServerID{"a"}, []raft.ServerID{"b", "c"})
	r.writeErr = write.Error()
	//sleep: in virtual time: the helper opens the bubble
	time.Sleep(time.Second)
	c.write(leader, "after healing")
	//sleep: in virtual time: the helper opens the bubble
	time.Sleep(5 * time.Second)
	r.fsmOld, r.fsmNew = a.fsm.String(), leader.fsm.String()
	return r
}
