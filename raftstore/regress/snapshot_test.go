package regress

import (
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/quorate/quorate/internal/must"
)

// hashicorp/raft#697: a follower whose log holds entries of a dead term beyond
// the snapshot that it is sent keeps them. The leader's next AppendEntries
// fails, the leader sends the same snapshot again, and so on: the follower
// never catches up, and both burn CPU and disk.
//
// Scenario: leader a is cut off with 60 entries that only it has. The others
// elect a leader, write less than that, take a snapshot and keep hardly any log
// (TrailingLogs 1). Then the links heal.
func TestSnapshotInstallLoop(t *testing.T) {
	for _, test := range []struct {
		name     string
		logStore func(raft.ServerID, *raft.InmemStore) raft.LogStore
	}{
		{"plain", nil},
		// A MonotonicLogStore drops its old entries on install, which does not
		// help: raft's in-memory idea of its last entry is not reset.
		{"monotonic", func(_ raft.ServerID, s *raft.InmemStore) raft.LogStore { return monotonic{s} }},
	} {
		t.Run(test.name, func(t *testing.T) {
			virtual(t, func(t *testing.T) { installLoop(t, test.logStore) })
		})
	}
}

type monotonic struct{ *raft.InmemStore }

func (monotonic) IsMonotonic() bool { return true }

func installLoop(t *testing.T, logStore func(raft.ServerID, *raft.InmemStore) raft.LogStore) {
	c := start(t, setup{logStore: logStore, configure: func(id raft.ServerID, c *raft.Config) {
		c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLeaseTimeout = 2*time.Second, 2*time.Second, time.Second
		c.TrailingLogs = 1
		if id == "a" { // time to collect entries after the cut
			c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLeaseTimeout = 8*time.Second, 8*time.Second, 8*time.Second
			c.TrailingLogs = 10240
		}
	}}, "a", "b", "c")
	defer c.stop()
	a := c.lead("a")
	one, other := []raft.ServerID{"a"}, []raft.ServerID{"b", "c"}
	c.part(true, one, other)
	for i := range 60 {
		a.raft.Apply(fmt.Appendf(nil, "lost %d", i), time.Second) // never commits; nobody waits
	}
	leader := c.leader("b", "c")
	for i := range 30 {
		c.write(leader, fmt.Sprint("kept ", i))
	}
	must.OK(t, leader.raft.Snapshot().Error())
	snapshotAt := leader.raft.CommitIndex()
	if end := a.lastEntry(t).Index; end <= snapshotAt {
		t.Fatalf("setup: a's log ends at %d, the snapshot is at %d", end, snapshotAt)
	}

	// Nothing in the loop ever sleeps, so virtual time stands still: count
	// installs instead of waiting for a time to pass.
	const many = 200
	var first, last time.Time
	looped := make(chan struct{})
	a.fsm.mu.Lock()
	a.fsm.restored = func(n int) {
		switch n {
		case 1:
			first = time.Now()
		case many:
			last = time.Now()
			close(looped)
		}
	}
	a.fsm.mu.Unlock()
	c.part(false, one, other)
	for i := range 10 {
		c.write(leader, fmt.Sprint("later ", i)) // the other two go on
	}
	select {
	case <-looped:
	case <-time.After(time.Minute):
	}
	a.fsm.mu.Lock()
	installs := a.fsm.restores
	a.fsm.mu.Unlock()
	applied, committed := a.raft.AppliedIndex(), leader.raft.CommitIndex()
	pitfall(t, installs >= many && applied < committed, "%d installs, a applied %d of %d", installs, applied, committed)
	t.Logf("snapshot at %d installed %d times within %v of virtual time; a has applied %d of %d",
		snapshotAt, installs, last.Sub(first), applied, committed)

	// Cure: a's entry at the snapshot's index has another term
	// than the snapshot, so by Log Matching nothing behind it was ever
	// committed. Then, and only then, the log may go; the snapshot and the
	// stable store (term and vote) stay. A monotonic store is empty already:
	// there a restart alone is enough.
	c.part(true, one, other)
	must.OK(t, a.raft.Shutdown().Error())
	from, err := a.logs.FirstIndex()
	must.OK(t, err)
	if from > 0 {
		if got, want := a.entry(t, snapshotAt).Term, leader.entry(t, snapshotAt).Term; got == want {
			t.Fatalf("a's entry %d has the snapshot's term %d: its log must not be wiped", snapshotAt, got)
		}
		must.OK(t, a.logs.DeleteRange(from, a.lastEntry(t).Index))
	}
	if a.raft, err = a.open(); err != nil {
		t.Fatal(err)
	}
	c.connect()
	c.part(false, one, other)
	//sleep: in virtual time: the helper opens the bubble
	time.Sleep(20 * time.Second) // replication backs off for up to 10 s
	if got, want := a.fsm.String(), leader.fsm.String(); got != want {
		t.Errorf("cure: after a restart without its log a has\n%s\nthe leader has\n%s", got, want)
	}
	t.Logf("restarted without its log, a has applied %d of %d", a.raft.AppliedIndex(), leader.raft.CommitIndex())
}
