package regress

import (
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/quorate/quorate/internal/must"
)

// A follower that installs a snapshot keeps what its log holds BELOW it, up to
// TrailingLogs entries, without a look at their terms. The Raft paper (figure 13,
// rule 7) discards the entire log unless it holds the snapshot's last entry. So entries
// of a dead term survive. When that node leads, it replicates them to a node that
// is further behind, and its commit index covers them: state machines differ.
//
// Scenario: leader a is cut off with 30 entries that only it has. The others elect a
// leader and go on until their log begins behind a's. a comes back, installs the
// snapshot, is made the leader, and a fresh node joins.
func TestDeadEntriesBelowSnapshot(t *testing.T) {
	virtual(t, func(t *testing.T) {
		const batch = 8 // one batch must fit into the dead part
		c := start(t, setup{late: "n", configure: func(id raft.ServerID, c *raft.Config) {
			c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLeaseTimeout = 2*time.Second, 2*time.Second, time.Second
			c.MaxAppendEntries = batch
			c.TrailingLogs = batch
			if id == "a" { // time to collect entries after the cut; and the default of the log's length
				c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLeaseTimeout = 8*time.Second, 8*time.Second, 8*time.Second
				c.TrailingLogs = 10240
			}
		}}, "a", "b", "c", "n")
		defer c.stop()
		a, n := c.lead("a"), c.nodes["n"]
		c.write(a, "kept")
		one, other := []raft.ServerID{"a"}, []raft.ServerID{"b", "c"}
		c.part(true, one, other)
		for i := range 30 {
			a.raft.Apply(fmt.Appendf(nil, "dead %d", i), time.Second) // never commits; nobody waits
		}
		leader := c.leader("b", "c")
		end := a.lastEntry(t).Index
		for i := range 30 + 4*batch {
			c.write(leader, fmt.Sprint("alive ", i))
		}
		must.OK(t, leader.raft.Snapshot().Error())
		if first, err := leader.logs.FirstIndex(); err != nil || first <= end+1 {
			t.Fatalf("setup: the leader's log begins at %d, a's ends at %d (%v)", first, end, err)
		}
		c.part(false, one, other)
		//sleep: in virtual time: the helper opens the bubble
		time.Sleep(20 * time.Second) // replication backs off for up to 10 s
		if a.raft.AppliedIndex() < leader.raft.CommitIndex() {
			t.Fatalf("setup: a has applied %d of %d", a.raft.AppliedIndex(), leader.raft.CommitIndex())
		}

		c.lead("a")
		must.OK(t, a.raft.AddNonvoter("n", n.addr, 0, time.Second).Error())
		//sleep: in virtual time: the helper opens the bubble
		time.Sleep(20 * time.Second)
		dead := 0
		n.fsm.mu.Lock()
		applied := n.fsm.everApplied
		n.fsm.mu.Unlock()
		leader.fsm.mu.Lock()
		for index, data := range applied {
			if leader.fsm.entries[index] != data {
				dead++
			}
		}
		leader.fsm.mu.Unlock()
		pitfall(t, dead > 0, "the new node applied nothing that was never committed")
		t.Logf("a's log: dead entries up to %d below a snapshot; n applied %d entries, %d of them were never committed", end, len(applied), dead)
	})
}
