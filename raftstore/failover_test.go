package raftstore

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/disk"
)

// A leader whose process is gone is replaced at once: by the voters that see its port refuse
// them, not by silence, which nobody would wait for here.
func TestDeadLeaderIsReplacedAtOnce(t *testing.T) {
	c := newCluster(t, 3, nil)
	for range 3 {
		leader := c.leader()
		survivor := c.other(leader)
		if _, err := survivor.Propose(c.ctx(), write("k", "v")); err != nil {
			t.Fatal(err)
		}
		c.close(leader)
		if _, err := survivor.Propose(c.ctx(), write("k", "w")); err != nil {
			t.Fatal(err)
		}
		c.open(leader)
		must.OK(t, leader.WaitApplied(c.ctx(), survivor.Applied()))
	}
}

// A node that has decided to campaign, and whose Raft is busy with another node's election
// meanwhile, leaves it at that: its own would depose the leader that has just been
// elected.
func TestCampaignIsTakenBack(t *testing.T) {
	var m atomic.Pointer[testNode]
	commits := make(chan chan struct{})
	c := newCluster(t, 3, func(cfg *Config) {
		node := cfg.Node
		cfg.TestHooks.Commit = func(file string, commit func() error) error {
			if n := m.Load(); n != nil && n.id == node && ofLog(file) {
				goOn := make(chan struct{})
				commits <- goOn
				<-goOn
			}
			return commit()
		}
	})
	l := c.leader()
	// A node that has campaigned beside the leader, and lost, is a candidate for an election timeout: it cannot be asked to
	// campaign again. At least one has voted for the leader.
	slow, next := c.other(l), l
	for _, n := range c.nodes {
		switch {
		case n == l || n == slow:
		case n.node.Raft().State() == raft.Follower:
			next = n
		default:
			slow, next = n, slow
		}
	}
	r, err := l.Propose(c.ctx(), write("k", "v"))
	must.OK(t, err)
	must.OK(t, slow.WaitApplied(c.ctx(), r.Revision))
	must.OK(t, next.WaitApplied(c.ctx(), r.Revision)) // it could not be elected, and is asked to campaign only once
	term := l.node.Raft().CurrentTerm()
	m.Store(slow)
	must.OK(t, l.TransferLeadership(c.ctx(), next.id))
	close(<-commits) // the term that the candidate says
	vote := <-commits
	if at := slow.node.Raft().CurrentTerm(); at != term+1 {
		t.Fatalf("it is in term %d, the others were in %d", at, term)
	}
	campaigned := make(chan struct{})
	go func() {
		defer close(campaigned)
		slow.failover.Campaign("", term, func() bool { return true })
	}()
	c.eventually("the other leads", func() error {
		if !next.IsLeader() {
			return errors.New("it does not")
		}
		return nil
	})
	m.Store(nil)
	close(vote)
	<-campaigned
	r, err = next.Propose(c.ctx(), write("k", "w"))
	must.OK(t, err)
	must.OK(t, slow.WaitApplied(c.ctx(), r.Revision))
	if at := slow.node.Raft().CurrentTerm(); at != term+1 || !next.IsLeader() {
		t.Errorf("the leader of term %d was deposed: term %d", term+1, at)
	}
}

// A voter whose log is empty behind its snapshot says where the snapshot ends.
func TestLeaderLostSaysTheSnapshotsTerm(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	_, err := l.Propose(c.ctx(), write("k", "v"))
	must.OK(t, err)
	m := c.other(l)
	must.OK(t, m.WaitApplied(c.ctx(), l.Applied()))
	for _, other := range c.nodes {
		if other != m {
			c.close(other)
		}
	}
	must.OK(t, m.node.Raft().Snapshot().Error())
	list, err := m.snapshots.List()
	must.OK(t, err)
	c.close(m)
	log, err := disk.OpenLog(m.dir, disk.LogOptions{})
	must.OK(t, err)
	must.OK(t, log.Drop(1, list[0].Index))
	must.OK(t, log.Close())
	c.open(m)
	r := m.failover.LeaderLost(c.ctx(), &proto.LeaderLostRequest{Term: m.node.Raft().CurrentTerm(), LeaderId: string(l.id)})
	if r.LastLogTerm != list[0].Term || r.LastLogIndex != list[0].Index {
		t.Errorf("term %d, index %d, the snapshot is of term %d, index %d", r.LastLogTerm, r.LastLogIndex, list[0].Term, list[0].Index)
	}
}

// TestLoserOfACampaign: of two that campaign in a term, one wins. Raft leaves the other a candidate until the election timeout, although
// it follows the leader by then, and it cannot campaign again. If the leader dies meanwhile, the third one does not wait for
// it.
func TestLoserOfACampaign(t *testing.T) {
	f := newFaults()
	const timeout = 8 * time.Second
	c := newCluster(t, 3, func(cfg *Config) {
		f.install(cfg)
		// A heartbeat of the leader that is on its way may find the loser in its later term. Then the leader stops, nobody
		// leads, and Raft's timeout ends that.
		cfg.Timing.Heartbeat, cfg.Timing.Election, cfg.Timing.Lease = timeout, timeout, timeout
	})
	c.makeLeader("a")
	winner, loser := c.nodes["b"], c.nodes["c"]
	f.part(f.raft, true, loser.id, "a", winner.id)
	if !loser.rpc.Deliver(c.ctx(), &raft.TimeoutNowRequest{RPCHeader: loser.transport.Header()}, func() bool { return true }) {
		t.Fatal("it does not campaign")
	}
	c.eventually("it campaigns", func() error {
		if state := loser.node.Raft().State(); state != raft.Candidate {
			return fmt.Errorf("it is a %v", state)
		}
		return nil
	})
	c.makeLeader(winner.id)
	f.part(f.raft, false, loser.id, "a", winner.id)
	// It stays a candidate, unless the winner needed another term, as on a busy machine.
	c.eventually("it follows the other one", func() error {
		if _, id := loser.node.Raft().LeaderWithID(); id != raft.ServerID(winner.id) {
			return fmt.Errorf("it is a %v and knows %q as the leader", loser.node.Raft().State(), id)
		}
		return nil
	})
	if _, err := winner.Propose(c.ctx(), write("k", "v")); err != nil {
		t.Fatal(err)
	}
	for _, m := range c.nodes { // neither has a longer log
		must.OK(t, m.WaitApplied(c.ctx(), winner.Applied()))
	}
	c.close(winner)
	began := time.Now()
	c.leader()
	if took := time.Since(began); took > timeout-time.Second { //wall: it takes milliseconds; the loser's own timeout ends after eight seconds at least
		t.Errorf("the next leader took %v", took)
	}
}
