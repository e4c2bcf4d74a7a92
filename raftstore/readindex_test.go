package raftstore

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/grpc"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/peer"

	"github.com/quorate/quorate/raftstore/readindex"
)

// The scenarios in which Raft's own VerifyLeader lets a stale read pass (see
// package regress), on our read path.

// faults are the links that are cut, for Raft and for calls apart.
type faults struct {
	mu          sync.Mutex
	raft, calls map[[2]proto.NodeID]bool // from, to
}

func newFaults() *faults {
	return &faults{raft: map[[2]proto.NodeID]bool{}, calls: map[[2]proto.NodeID]bool{}}
}

var errCut = errors.New("link is cut")

func (f *faults) check(links map[[2]proto.NodeID]bool, from, to proto.NodeID) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if links[[2]proto.NodeID{from, to}] {
		return errCut
	}
	return nil
}

// part cuts or heals links between one node and others, in both directions.
func (f *faults) part(links map[[2]proto.NodeID]bool, cut bool, one proto.NodeID, others ...proto.NodeID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, o := range others {
		links[[2]proto.NodeID{one, o}], links[[2]proto.NodeID{o, one}] = cut, cut
	}
}

// install puts the faults between a node and its network.
func (f *faults) install(c *Config) {
	c.Peers = &faultyPeers{c.Peers, f, c.Node}
	c.Transport = &faultyTransport{c.Transport.(*peer.Transport), f, c.Node}
}

type faultyPeers struct {
	Peers
	f    *faults
	node proto.NodeID
}

func (p *faultyPeers) Conn(id proto.NodeID, addr string) (*grpc.ClientConn, error) {
	if err := p.f.check(p.f.calls, p.node, id); err != nil {
		return nil, err
	}
	return p.Peers.Conn(id, addr)
}

type faultyTransport struct {
	*peer.Transport
	f    *faults
	node proto.NodeID
}

func (t *faultyTransport) check(id raft.ServerID) error {
	return t.f.check(t.f.raft, t.node, proto.NodeID(id))
}

// AppendEntriesPipeline is refused, so that all entries pass AppendEntries.
func (t *faultyTransport) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

func (t *faultyTransport) AppendEntries(id raft.ServerID, to raft.ServerAddress, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if err := t.check(id); err != nil {
		return err
	}
	return t.Transport.AppendEntries(id, to, req, resp)
}

func (t *faultyTransport) RequestVote(id raft.ServerID, to raft.ServerAddress, req *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	if err := t.check(id); err != nil {
		return err
	}
	return t.Transport.RequestVote(id, to, req, resp)
}

func (t *faultyTransport) RequestPreVote(id raft.ServerID, to raft.ServerAddress, req *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	if err := t.check(id); err != nil {
		return err
	}
	return t.Transport.RequestPreVote(id, to, req, resp)
}

func (t *faultyTransport) InstallSnapshot(id raft.ServerID, to raft.ServerAddress, req *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	if err := t.check(id); err != nil {
		return err
	}
	return t.Transport.InstallSnapshot(id, to, req, resp, data)
}

func (t *faultyTransport) TimeoutNow(id raft.ServerID, to raft.ServerAddress, req *raft.TimeoutNowRequest, resp *raft.TimeoutNowResponse) error {
	if err := t.check(id); err != nil {
		return err
	}
	return t.Transport.TimeoutNow(id, to, req, resp)
}

// TestReadNeedsVoters: the leader reaches a non-voter and no other voter. Raft
// itself is left alone, so that only the round of the read path can refuse.
func TestReadNeedsVoters(t *testing.T) {
	f := newFaults()
	c := newCluster(t, 3, func(cfg *Config) { f.install(cfg); cfg.Timing.NoLeader = time.Second })
	l := c.leader()
	n := c.add("n")
	must.OK(t, l.AddNonvoter(c.ctx(), n.id, n.addr, 0))
	c.eventually("the non-voter follows", func() error {
		return n.WaitApplied(c.ctx(), l.Applied())
	})
	if _, err := l.ReadIndex(c.ctx()); err != nil {
		t.Fatalf("with all links up: %v", err)
	}
	voter := c.other(l)
	for _, m := range c.nodes {
		if m != l && m != n {
			f.part(f.calls, true, l.id, m.id)
			voter = m
		}
	}
	term := uint64(l.node.Raft().CurrentTerm())
	for _, a := range []struct {
		name  string
		asker proto.NodeID
		term  uint64
		ok    bool
	}{
		{"its own read", "", 0, false},
		{"a non-voter's read", n.id, term, false},
		{"a stranger's read", "stranger", term, false},
		{"a voter's read: the question proves what it knows", voter.id, term, true},
		{"a voter's that knows a newer term", voter.id, term + 1, false},
	} {
		if _, err := l.reads.Confirm(c.ctx(), a.asker, a.term); (err == nil) != a.ok {
			t.Errorf("%s: %v", a.name, err)
		}
		if _, ok := l.reads.ConfirmAtOnce(a.asker, a.term); ok != a.ok {
			t.Errorf("%s, at once: %v", a.name, ok)
		}
	}
	if _, err := l.ReadIndex(c.ctx()); !errors.Is(err, ErrNoLeader) {
		t.Errorf("ReadIndex without voters: %v, want %v", err, ErrNoLeader)
	}
	for _, m := range c.nodes {
		f.part(f.calls, false, l.id, m.id)
	}
	if _, err := l.ReadIndex(c.ctx()); err != nil {
		t.Errorf("with healed links: %v", err)
	}
}

// TestDeposedLeaderRefusesReads: a leader that still believes in itself (its
// long lease stands for a paused process) must not serve a read once another
// may have committed, whether it reaches nobody or everybody.
func TestDeposedLeaderRefusesReads(t *testing.T) {
	t.Parallel()
	f := newFaults()
	c := newCluster(t, 3, func(cfg *Config) {
		f.install(cfg)
		silent(cfg)
		if cfg.Node == "a" {
			cfg.Timing.Heartbeat, cfg.Timing.Election, cfg.Timing.Lease = unheard, unheard, unheard
		}
	})
	a := c.nodes["a"]
	c.makeLeader("a")
	old, err := a.ReadIndex(c.ctx())
	must.OK(t, err)
	f.part(f.raft, true, "a", "b", "c")
	f.part(f.calls, true, "a", "b", "c")
	var successor *testNode
	c.eventually("b or c leads", func() error {
		for _, id := range []proto.NodeID{"b", "c"} {
			if m := c.nodes[id]; m.IsLeader() {
				successor = m
				return nil
			}
		}
		return errors.New("not yet")
	})
	if _, err := successor.Propose(c.ctx(), write("k", "new")); err != nil {
		t.Fatal(err)
	}
	refuses := func(when string) {
		t.Helper()
		if !a.IsLeader() || a.Applied() >= successor.Applied() {
			t.Fatalf("setup: %s, a leads: %v, has %d of %d, read at %d before", when, a.IsLeader(), a.Applied(), successor.Applied(), old)
		}
		ctx, cancel := context.WithTimeout(c.ctx(), 5*time.Second)
		defer cancel()
		if index, err := a.reads.Confirm(ctx, "", 0); err == nil {
			t.Errorf("%s, a read at %d was confirmed; the new leader has committed %d", when, index, successor.Applied())
		}
	}
	if index, ok := a.reads.ConfirmAtOnce("b", successor.node.Raft().CurrentTerm()); ok {
		t.Errorf("a read at %d was confirmed by a voter that knows the new leader's term", index)
	}
	refuses("with all links cut")
	f.part(f.calls, false, "a", "b", "c")
	refuses("with calls passing again")
	if _, err := a.reads.Confirm(c.ctx(), "", 0); !errors.Is(err, readindex.ErrNewerTerm) {
		t.Errorf("a reaches everybody: %v, want %v", err, readindex.ErrNewerTerm)
	}
}
