package regress

import (
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/quorate/quorate/internal/must"
)

// Raft.VerifyLeader is documented as the check to make before a read that must
// not be stale. It is not a sound one: it counts answers that prove nothing.
// Each test below also runs cluster.confirm, the round that our read path uses; package raftstore has
// the same tests on the real one.

// TestVerifyLeaderControl: with every voter but the leader unreachable,
// VerifyLeader fails when the lease runs out, as it should. It shows that the
// next test measures the non-voter and nothing else.
func TestVerifyLeaderControl(t *testing.T) {
	virtual(t, func(t *testing.T) {
		c := start(t, setup{}, "a", "b", "c")
		defer c.stop()
		l := isolated(c, "a", "b", "c")
		began := time.Now()
		if err := l.raft.VerifyLeader().Error(); err == nil {
			t.Error("VerifyLeader succeeded without a quorum")
		} else {
			t.Logf("no voter reachable: %v after %v", err, time.Since(began))
		}
	})
}

// TestVerifyLeaderCountsNonvoter: the same cut, but a non-voter is still
// reachable. VerifyLeader registers with every peer, and counts each answer
// against a quorum of voters.
func TestVerifyLeaderCountsNonvoter(t *testing.T) {
	virtual(t, func(t *testing.T) {
		c := start(t, setup{nonvoter: "n"}, "a", "b", "c", "n")
		defer c.stop()
		l := isolated(c, "a", "b", "c")
		err := l.raft.VerifyLeader().Error()
		pitfall(t, err == nil, "only a non-voter is reachable, VerifyLeader returned %v", err)
		if err := c.confirm(l); err == nil {
			t.Error("cure: confirm succeeded without a quorum of voters")
		} else {
			t.Logf("VerifyLeader: nil; confirm: %v", err)
		}
	})
}

// isolated elects a leader, then cuts it off from the other voters. Its lease
// (500 ms) is not over yet when the function returns.
func isolated(c *cluster, voters ...raft.ServerID) *node {
	c.t.Helper()
	l := c.leader()
	must.OK(c.t, l.raft.Barrier(time.Second).Error())
	//sleep: in virtual time: the helper opens the bubble
	time.Sleep(300 * time.Millisecond)
	if err := c.confirm(l); err != nil {
		c.t.Fatalf("cure: confirm failed in a healthy cluster: %v", err)
	}
	for _, id := range voters {
		if id != l.id {
			c.part(true, []raft.ServerID{l.id}, []raft.ServerID{id})
		}
	}
	//sleep: in virtual time: the helper opens the bubble
	time.Sleep(50 * time.Millisecond)
	return l
}

// TestVerifyLeaderCountsOldAnswer: an answer to an RPC that was sent BEFORE the
// call counts as well. A leader that was paused (SIGSTOP, a long collection, a
// moved VM) wakes with such answers in its socket buffer, although a new leader
// has meanwhile committed writes: the "linearizable" read is stale.
func TestVerifyLeaderCountsOldAnswer(t *testing.T) {
	virtual(t, func(t *testing.T) {
		c := start(t, setup{configure: func(id raft.ServerID, c *raft.Config) {
			c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLeaseTimeout = 6*time.Second, 6*time.Second, 3*time.Second
			if id == "a" { // a paused leader's lease timer does not fire
				c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLeaseTimeout = 40*time.Second, 40*time.Second, 40*time.Second
			}
		}}, "a", "b", "c")
		defer c.stop()
		a := c.lead("a")

		wake, kept := make(chan struct{}), make(chan struct{})
		a.net.change("c", func(l *link) { l.cut = true })
		a.net.change("b", func(l *link) { l.lateAnswer, l.kept = wake, kept })
		for _, id := range []raft.ServerID{"b", "c"} { // no vote request reaches a either
			c.nodes[id].net.change("a", func(l *link) { l.cut = true })
		}
		<-kept // b has answered a; the answer lies in a's socket buffer

		leader := c.leader("b", "c")
		c.write(leader, "new")
		if a.raft.State() != raft.Leader {
			t.Fatal("setup: a has stepped down already")
		}

		// From here on, a read on a must fail or see "new".
		readIndex := a.raft.CommitIndex()
		verify := a.raft.VerifyLeader()
		confirmed := c.confirm(a)
		//sleep: in virtual time: the helper opens the bubble
		time.Sleep(100 * time.Millisecond)
		close(wake) // now a receives the old answer
		err := verify.Error()
		pitfall(t, err == nil && readIndex < leader.raft.CommitIndex(),
			"VerifyLeader on the deposed leader returned %v", err)
		if confirmed == nil {
			t.Error("cure: confirm succeeded on a deposed leader that reaches nobody")
		}
		c.part(false, []raft.ServerID{"a"}, []raft.ServerID{"b", "c"})
		healed := c.confirm(a)
		if healed == nil {
			t.Error("cure: confirm succeeded on a deposed leader that reaches everybody")
		}
		t.Logf("a would read at index %d, the new leader has committed %d; VerifyLeader: %v", readIndex, leader.raft.CommitIndex(), err)
		t.Logf("confirm on a: %v; with healed links: %v", confirmed, healed)
	})
}
