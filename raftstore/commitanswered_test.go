package raftstore

import (
	"context"
	"fmt"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"

	"github.com/quorate/quorate/raftstore/exchange"
	"github.com/quorate/quorate/raftstore/replication"
)

// TestCommitInTheAnswer: a follower that writes learns from the answers what is committed. With two voters it has every entry
// before the leader can commit it, so the leader never has to tell it by a message of its own.
func TestCommitInTheAnswer(t *testing.T) {
	c := newCluster(t, 2, nil)
	leader := c.leader()
	follower := c.other(leader)
	if _, err := follower.Propose(c.ctx(), write("first", "1")); err != nil {
		t.Fatal(err)
	}
	c.eventually("the follower is told of all before", func() error {
		if p := leader.transport.Progress(raft.ServerID(follower.id)); p.Busy || p.Commit < leader.node.Raft().CommitIndex() {
			return fmt.Errorf("of %d", p.Commit)
		}
		return nil
	})
	before := leader.Counters().CommitNudges
	const writes = 30
	for i := range writes {
		r, err := follower.Propose(c.ctx(), write(fmt.Sprint("k", i), "1"))
		must.OK(t, err)
		if follower.Applied() < proto.Revision(r.Index) {
			t.Fatalf("write %d is answered and not applied", i)
		}
	}
	if n := leader.Counters().CommitNudges - before; n != 0 {
		t.Errorf("%d nudges for %d writes", n, writes)
	}
}

// TestCommitAnswered: an answer commits an entry that the follower has, and no other: not one of another term at its index,
// not one beyond the log, and none that another node than its leader has answered for.
func TestCommitAnswered(t *testing.T) {
	c := newCluster(t, 5, nil)
	leader := c.leader()
	follower := c.other(leader)
	r, err := leader.Propose(c.ctx(), write("k", "0")) // behind the first entries of a leader
	must.OK(t, err)
	must.OK(t, follower.WaitApplied(c.ctx(), r.Revision))
	before := follower.node.Raft().LastIndex()
	for _, m := range c.nodes {
		if m != leader && m != follower {
			c.close(m) // two of five commit nothing
		}
	}
	ctx, cancel := context.WithCancel(c.ctx())
	proposed := make(chan error, 1)
	go func() {
		_, err := leader.Propose(ctx, write("k", "1"))
		proposed <- err
	}()
	defer func() {
		cancel()
		<-proposed
	}()
	c.eventually("the follower has the entry", func() error {
		if last := follower.node.Raft().LastIndex(); last <= before {
			return fmt.Errorf("its last one is %d", last)
		}
		return nil
	})
	last, term := follower.node.Raft().LastIndex(), follower.node.Raft().CurrentTerm()
	commit := follower.node.Raft().CommitIndex()
	for name, said := range map[string]exchange.Committed{
		"beyond the log":     {Leader: leader.id, Term: term, Index: last + 1},
		"of another node":    {Leader: follower.id, Term: term, Index: last},
		"of an earlier term": {Leader: leader.id, Term: term - 1, Index: last},
		"of a later term":    {Leader: leader.id, Term: term + 1, Index: last},
	} {
		follower.transport.CommitAnswered(said)
		follower.node.Raft().VerifyLeader().Error() // Raft's main loop has taken what came before
		if got := follower.node.Raft().CommitIndex(); got != commit || follower.node.Raft().CurrentTerm() != term {
			t.Fatalf("%s: index %d is committed, was %d; term %d", name, got, commit, follower.node.Raft().CurrentTerm())
		}
	}
	follower.transport.CommitAnswered(exchange.Committed{Leader: leader.id, Term: term, Index: last})
	c.eventually("the entry is committed", func() error {
		if got := follower.node.Raft().CommitIndex(); got != last {
			return fmt.Errorf("%d of %d", got, last)
		}
		return nil
	})
}

// TestFollowerThatWaits: a follower whose write is answered before it has acknowledged the entry is told when it has.
func TestFollowerThatWaits(t *testing.T) {
	c := newCluster(t, 3, nil)
	leader := c.leader()
	follower := c.other(leader)
	if _, err := follower.Propose(c.ctx(), write("first", "1")); err != nil {
		t.Fatal(err)
	}
	tr := leader.transport
	commit, id := leader.node.Raft().CommitIndex(), raft.ServerID(follower.id)
	p := replication.Progress{Address: tr.Progress(id).Address, Term: leader.node.LeadsIn()}
	tr.SetProgress(id, p)
	tr.TellsCommit(id, commit)
	if p = tr.Progress(id); p.Waits != commit {
		t.Errorf("it waits for %d, want %d", p.Waits, commit)
	}
	p.Acked = commit
	tr.SetProgress(id, p)
	tr.WakeUp()
	c.eventually("it is told", func() error {
		if told := tr.Progress(id).Commit; told < commit {
			return fmt.Errorf("%d", told)
		}
		return nil
	})
}
