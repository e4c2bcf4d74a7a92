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
	"github.com/quorate/quorate/raftstore/peer"

	"github.com/quorate/quorate/raftstore/replication"
)

// beats counts the heartbeats that failed.
type beats struct {
	*peer.Transport
	failed *atomic.Int64
}

func (b beats) AppendEntries(id raft.ServerID, to raft.ServerAddress, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	err := b.Transport.AppendEntries(id, to, req, resp)
	if err != nil && replication.IsHeartbeat(req) {
		b.failed.Add(1)
	}
	return err
}

// transportOver is a transport of this node over another one. Zero is the time for which entries are kept otherwise.
func (m *testNode) transportOver(inner raft.Transport, retryFor time.Duration) *replication.Transport {
	return replication.New(replication.Config{
		Inner: inner, Node: m.node, Log: m.log, Comparison: m.comparison, MayLead: m.disks.mayLead, Applied: m.Applied, RetryFor: retryFor,
	})
}

// counted is a transport that counts the messages of AppendEntries.
type counted struct {
	*peer.Transport
	sent *atomic.Int64
}

func (c counted) AppendEntries(id raft.ServerID, to raft.ServerAddress, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	c.sent.Add(1)
	return c.Transport.AppendEntries(id, to, req, resp)
}

// A voter that was away for long enough that raft has lost patience with it has
// everything within a moment of its return, and makes a quorum.
func TestReturnIsNoticed(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("Raft loses patience only after five seconds")
	}
	var failed atomic.Int64
	c := newCluster(t, 3, func(cfg *Config) {
		silent(cfg)
		cfg.Transport = beats{cfg.Transport.(*peer.Transport), &failed}
	})
	leader := c.leader()
	away := c.other(leader)
	var third *testNode
	for _, m := range c.nodes {
		if m != leader && m != away {
			third = m
		}
	}
	c.close(away)
	// Raft's own attempts fail as often at first, and then ever more rarely: by now
	// the next one would be more than two seconds away.
	c.eventually("the leader has lost patience", func() error {
		if n := failed.Load(); n < 14 {
			return fmt.Errorf("%d heartbeats have failed", n)
		}
		return nil
	})
	var last proto.Revision
	for i := range 10 {
		r, err := leader.Propose(c.ctx(), write(fmt.Sprint("k", i), "v"))
		must.OK(t, err)
		last = r.Revision
	}
	c.open(away)
	back := time.Now()
	c.close(third)
	if _, err := leader.Propose(c.ctx(), write("after", "v")); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(back); took > 1500*time.Millisecond { //wall: Raft's own timer fires after two seconds
		t.Errorf("a write had no quorum for %s after a voter was back", took)
	}
	if err := away.WaitApplied(c.ctx(), last); err != nil {
		t.Error(err)
	}
}

// A voter that comes back under another address has everything after the configuration's
// change, though the leader was trying to reach it at the old one.
func TestReturnElsewhereIsNoticed(t *testing.T) {
	var failed atomic.Int64
	c := newCluster(t, 3, func(cfg *Config) {
		silent(cfg)
		cfg.Transport = beats{cfg.Transport.(*peer.Transport), &failed}
	})
	leader := c.leader()
	away := c.other(leader)
	c.close(away)
	last, err := leader.Propose(c.ctx(), write("k", "v"))
	must.OK(t, err)
	c.eventually("the leader has missed it", func() error {
		if n := failed.Load(); n < 3 {
			return fmt.Errorf("%d heartbeats have failed", n)
		}
		return nil
	})
	away.addr = ""
	c.open(away)
	index, _ := leader.Members()
	must.OK(t, leader.AddVoter(c.ctx(), away.id, away.addr, index))
	must.OK(t, away.WaitApplied(c.ctx(), last.Revision))
}

// A message to a peer that was away for longer than entries are kept in memory for it
// arrives when the peer is back, without them. Attempts do not become rarer: twenty that did
// would take a day.
func TestLateReturnIsNoticed(t *testing.T) {
	c := newCluster(t, 3, nil)
	leader := c.leader()
	away := c.other(leader)
	r, err := leader.Propose(c.ctx(), write("k", "v"))
	must.OK(t, err)
	must.OK(t, away.WaitApplied(c.ctx(), r.Revision))
	var entry raft.Log
	must.OK(t, leader.log.GetLog(uint64(r.Revision), &entry))
	c.close(away)

	var attempts atomic.Int64
	n := leader.transportOver(counted{leader.rpc, &attempts}, time.Millisecond)
	req := &raft.AppendEntriesRequest{
		RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(leader.id), Addr: leader.rpc.EncodePeer(raft.ServerID(leader.id), raft.ServerAddress(leader.addr))},
		Term:      leader.node.Raft().CurrentTerm(), PrevLogEntry: entry.Index, PrevLogTerm: entry.Term,
		Entries: []*raft.Log{{Index: entry.Index + 1, Term: entry.Term, Type: raft.LogNoop}},
	}
	done := make(chan error, 1)
	var resp raft.AppendEntriesResponse
	go func() { done <- n.AppendEntries(raft.ServerID(away.id), raft.ServerAddress(away.addr), req, &resp) }()
	c.eventually("twenty attempts", func() error {
		select {
		case err := <-done:
			t.Fatalf("it gives up: %v", err)
		default:
		}
		if n := attempts.Load(); n < 20 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	c.open(away)
	must.OK(t, <-done)
	if !resp.Success || len(req.Entries) > 0 {
		t.Errorf("success %v, with %d entries", resp.Success, len(req.Entries))
	}
}

// refusing is a transport to a peer that refuses all entries.
type refusing struct {
	raft.Transport
	with raft.AppendEntriesResponse
	last *raft.AppendEntriesRequest // nil: it is of no interest
}

func (r refusing) AppendEntries(_ raft.ServerID, _ raft.ServerAddress, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	*resp = r.with
	if r.last != nil {
		*r.last = *req
	}
	return nil
}

// TestFullFollower: Raft is told of a refusal, unless the follower could not store the entries. Then the follower is told what is committed of what
// it has.
func TestFullFollower(t *testing.T) {
	c := newCluster(t, 1, nil)
	m := c.leader()
	m.comparison.mu.Lock()
	m.comparison.with["z"] = true
	m.comparison.mu.Unlock()
	term := m.node.Raft().CurrentTerm()
	for _, row := range []struct {
		name   string
		with   raft.AppendEntriesResponse
		want   error
		commit uint64
		told   uint64 // in a message without entries; 0: none is sent
	}{
		{"no room", raft.AppendEntriesResponse{Term: term}, replication.ErrFollowerFull, 9, 7},
		{"nothing new is committed", raft.AppendEntriesResponse{Term: term}, replication.ErrFollowerFull, 5, 5},
		{"nothing is committed", raft.AppendEntriesResponse{Term: term}, replication.ErrFollowerFull, 0, 0},
		{"a log that ends earlier", raft.AppendEntriesResponse{Term: term, NoRetryBackoff: true}, nil, 9, 0},
		{"a later term", raft.AppendEntriesResponse{Term: term + 1}, nil, 9, 0},
		{"entries that were taken", raft.AppendEntriesResponse{Term: term, Success: true}, nil, 9, 0},
	} {
		var last raft.AppendEntriesRequest
		n := m.transportOver(refusing{with: row.with, last: &last}, 0)
		req := raft.AppendEntriesRequest{Term: term, PrevLogEntry: 7, PrevLogTerm: term, Entries: []*raft.Log{{Index: 8, Term: term}}, LeaderCommitIndex: row.commit}
		err := n.AppendEntries("z", "127.0.0.1:1", &req, new(raft.AppendEntriesResponse))
		if !errors.Is(err, row.want) {
			t.Errorf("%s: %v, want %v", row.name, err, row.want)
		}
		told := uint64(0)
		if len(last.Entries) == 0 {
			told = last.LeaderCommitIndex
		}
		if told != row.told || last.PrevLogEntry != 7 || last.Term != term {
			t.Errorf("%s: it is told %d, want %d: %+v", row.name, told, row.told, last)
		}
	}
}

// Raft is not told what peers say once the store ends: see replication.Transport.AppendEntries.
func TestAnswersBehindTheEnd(t *testing.T) {
	c := newCluster(t, 1, nil)
	m := c.leader()
	m.comparison.mu.Lock()
	m.comparison.with["z"] = true
	m.comparison.mu.Unlock()
	n := m.transportOver(refusing{}, 0)
	term := m.node.Raft().CurrentTerm()
	ask := func(term uint64) error {
		return n.AppendEntries("z", "127.0.0.1:1", &raft.AppendEntriesRequest{Term: term}, new(raft.AppendEntriesResponse))
	}
	must.OK(t, ask(term))
	if err := ask(term - 1); !errors.Is(err, replication.ErrOldTerm) {
		t.Errorf("a message of an earlier term: %v, want %v", err, replication.ErrOldTerm)
	}
	c.close(m)
	if err := ask(term); !errors.Is(err, ErrClosed) {
		t.Errorf("%v, want %v", err, ErrClosed)
	}
}

// A peer that stopped where the log no longer reaches is not nudged again and
// again.
func TestNudgeGivesUp(t *testing.T) {
	c := newCluster(t, 1, nil)
	m := c.leader()
	// It acknowledged what is beyond any log, and does not know its commit.
	m.transport.SetProgress("z", replication.Progress{Term: m.node.LeadsIn(), Acked: 1 << 40})
	first, err := m.log.FirstIndex()
	must.OK(t, err)
	must.OK(t, m.log.Drop(first, m.node.Raft().CommitIndex()))
	m.transport.WakeUp()
	c.eventually("the peer counts as told", func() error {
		if p := m.transport.Progress("z"); p.Busy || p.Commit < m.node.Raft().CommitIndex() {
			return fmt.Errorf("told %d of %d", p.Commit, m.node.Raft().CommitIndex())
		}
		return nil
	})
}
