package regress

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/quorate/quorate/internal/must"
)

// TestStaleReplication: the goroutine that replicates to a follower outlives its
// leadership when it is stuck in a call. If the node is elected again meanwhile, the
// goroutine may take one more turn before it sees that it was to stop, and sends the
// log as it is now, with entries of the new term, under the old one. The follower
// takes them without learning the term, and may itself be elected in it later, beside
// its leader: after a change of members, who voted then need not be asked again.
//
// Scenario: b is cut off, and a's call to it hangs. a loses c, and with it its
// leadership, gets c back, is elected again and writes. Then the call fails.
//
// Cure: peer.Transport neither sends nor takes such a message (its TestEarlierTerm).
func TestStaleReplication(t *testing.T) {
	const attempts = 40 // what the goroutine looks at first is random
	for range attempts {
		sent := false
		virtual(t, func(t *testing.T) { sent = staleReplication(t) })
		if sent {
			return
		}
	}
	pitfall(t, false, "in %d attempts no message of an earlier term carried entries of a later one", attempts)
}

// mixed notes a message of an earlier term than its entries.
type mixed struct {
	transport
	seen, armed atomic.Bool
	hold        chan struct{} // once armed, entries for b wait for it, and everything for b fails
}

func (m *mixed) AppendEntries(id raft.ServerID, to raft.ServerAddress, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	for _, e := range req.Entries {
		if e.Term > req.Term {
			m.seen.Store(true)
		}
	}
	if id == "b" && m.armed.Load() {
		if len(req.Entries) > 0 {
			<-m.hold
		}
		return errCut
	}
	return m.transport.AppendEntries(id, to, req, resp)
}

func staleReplication(t *testing.T) (sent bool) {
	from := &mixed{hold: make(chan struct{})}
	c := start(t, setup{wrap: func(id raft.ServerID, inner transport) transport {
		if id != "a" {
			return inner
		}
		from.transport = inner
		return from
	}}, "a", "b", "c")
	defer c.stop()
	a := c.lead("a")
	from.armed.Store(true)

	c.part(true, []raft.ServerID{"b"}, []raft.ServerID{"c"})
	c.nodes["b"].net.change("a", func(l *link) { l.cut = true }) // b's own messages
	for i := range 3 {                                           // the first hangs, the next ones leave a trigger behind
		c.write(a, fmt.Sprint("first ", i))
	}
	term := a.raft.CurrentTerm()
	c.part(true, []raft.ServerID{"a"}, []raft.ServerID{"c"})
	for end := time.Now().Add(time.Minute); a.raft.State() == raft.Leader; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a leads without followers")
		}
	}
	c.part(false, []raft.ServerID{"a"}, []raft.ServerID{"c"})
	for end := time.Now().Add(time.Minute); a.raft.State() != raft.Leader; time.Sleep(10 * time.Millisecond) {
		if l := c.nodes["c"]; l.raft.State() == raft.Leader {
			must.OK(t, l.raft.LeadershipTransferToServer("a", a.addr).Error())
		}
		if time.Now().After(end) {
			t.Fatal("a is not elected again")
		}
	}
	c.write(a, "second")
	if now := a.raft.CurrentTerm(); now <= term {
		t.Fatalf("setup: a leads in term %d, before in %d", now, term)
	}
	close(from.hold)
	//sleep: in virtual time: the helper opens the bubble
	time.Sleep(time.Second)
	return from.seen.Load()
}
