package raftstore

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
)

// A voter that is wrong, or lies, and says that it has lost the leader finds no majority, and
// neither do voters that it tells so.
func TestOneVoterDeposesNobody(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	term := l.node.Raft().CurrentTerm()
	liar := c.other(l)
	var honest *testNode
	for _, n := range c.nodes {
		if n != l && n != liar {
			honest = n
		}
	}
	c.eventually("both know the leader", func() error {
		for _, n := range []*testNode{liar, honest} {
			if _, id := n.node.Raft().LeaderWithID(); id != raft.ServerID(l.id) {
				return errors.New("one does not")
			}
		}
		return nil
	})
	for _, n := range []*testNode{liar, honest} {
		if n.failover.BestCandidate(raft.ServerID(l.id), term) {
			t.Errorf("%s may campaign against a leader that all others hear", n.id)
		}
	}
	r := honest.failover.LeaderLost(c.ctx(), &proto.LeaderLostRequest{Term: term, LeaderId: string(l.id)})
	if r.Lost {
		t.Error("an honest voter says that it has lost a leader that answers")
	}
	// An answer from another term is none.
	if r := honest.failover.LeaderLost(c.ctx(), &proto.LeaderLostRequest{Term: term - 1, LeaderId: string(l.id)}); r.Lost {
		t.Error("the leader of an earlier term is lost, with which nobody can be elected any more")
	}
	if at := l.node.Raft().CurrentTerm(); at != term || !l.IsLeader() {
		t.Errorf("term %d has become %d", term, at)
	}
}

// A campaign that waits for Raft's main loop, behind a slow disk, keeps nobody from looking at
// the leader or from answering other voters. It is taken back when the leader answers again.
func TestLooksDuringACampaign(t *testing.T) {
	var slow atomic.Pointer[testNode]
	held, release := make(chan struct{}, 1), make(chan struct{})
	c := newCluster(t, 3, func(cfg *Config) {
		silent(cfg)
		node := cfg.Node
		cfg.TestHooks.Commit = func(file string, commit func() error) error {
			if n := slow.Load(); n != nil && n.id == node && ofLog(file) {
				select {
				case held <- struct{}{}:
				default:
				}
				<-release
			}
			return commit()
		}
	})
	l := c.leader()
	n := c.other(l)
	r, err := l.Propose(c.ctx(), write("k", "v"))
	must.OK(t, err)
	must.OK(t, n.WaitApplied(c.ctx(), r.Revision))
	term := l.node.Raft().CurrentTerm()
	slow.Store(n)
	r, err = l.Propose(c.ctx(), write("k", "w"))
	must.OK(t, err)
	<-held
	var lost atomic.Bool
	lost.Store(true)
	campaigned := make(chan bool)
	go func() { campaigned <- n.failover.Campaign(raft.ServerID(l.id), term, lost.Load) }()
	began := time.Now()
	c.eventually("it goes on looking, and hears the leader", func() error {
		if due, heard := n.failover.Looks(); due.Sub(began) < n.cfg.Timing.Heartbeat/4 || !heard.After(began) {
			return errors.New("it does not")
		}
		return nil
	})
	if r := n.failover.LeaderLost(c.ctx(), &proto.LeaderLostRequest{Term: term, LeaderId: string(l.id)}); r.Lost {
		t.Error("it says that it has lost a leader that it hears")
	}
	lost.Store(false)
	if <-campaigned {
		t.Error("the campaign was not taken back")
	}
	close(release)
	must.OK(t, n.WaitApplied(c.ctx(), r.Revision))
	if at := l.node.Raft().CurrentTerm(); at != term || !l.IsLeader() {
		t.Errorf("term %d has become %d", term, at)
	}
}
