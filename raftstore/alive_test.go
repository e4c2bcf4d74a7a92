package raftstore

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/raftstore/mvcc"
	"github.com/quorate/quorate/raftstore/peer"
)

// noCommands is a transport on which, while it is on, no message carries a command.
type noCommands struct {
	*peer.Transport
	on *atomic.Bool
}

func (n noCommands) AppendEntries(id raft.ServerID, to raft.ServerAddress, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	for i, l := range req.Entries {
		if n.on.Load() && l.Type == raft.LogCommand {
			req.Entries = req.Entries[:i]
			time.Sleep(time.Millisecond) // raft sends the rest at once
			break
		}
	}
	return n.Transport.AppendEntries(id, to, req, resp)
}

// AppendEntriesPipeline is refused, so that all entries pass AppendEntries.
func (noCommands) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

// A leader's first entry is one that no state machine sees. A node is not taken for dead
// when the quorum is lost behind it.
func TestAliveBehindAnEmptyEntry(t *testing.T) {
	var on atomic.Bool
	c := newCluster(t, 3, func(cfg *Config) {
		cfg.Transport = noCommands{cfg.Transport.(*peer.Transport), &on}
	})
	leader := c.leader()
	_, err := leader.Propose(c.ctx(), write("k", "v"))
	must.OK(t, err)
	for _, m := range c.nodes {
		must.OK(t, m.WaitApplied(c.ctx(), leader.Applied()))
	}
	on.Store(true)
	c.close(leader)
	for _, m := range c.nodes {
		if m == leader {
			continue
		}
		c.eventually("an entry is committed that the state machine does not see", func() error {
			if commit, applied := m.node.Raft().CommitIndex(), uint64(m.Applied()); commit <= applied {
				return fmt.Errorf("commit %d, applied %d", commit, applied)
			}
			return nil
		})
	}
	const limit = 50 * time.Millisecond
	for end := time.Now().Add(4 * limit); time.Now().Before(end); time.Sleep(limit / 10) {
		for _, m := range c.nodes {
			if m != leader && !m.Alive(limit) {
				t.Fatalf("%s counts as dead: commit %d, applied %d", m.id, m.node.Raft().CommitIndex(), m.Applied())
			}
		}
	}
}

// A state machine that hangs is no living node.
func TestHungStateMachineIsNotAlive(t *testing.T) {
	hang := make(chan struct{})
	var on atomic.Bool
	c := newCluster(t, 1, func(cfg *Config) {
		cfg.TestHooks.Applied = func(*raft.Log, mvcc.Result) {
			if on.Load() {
				<-hang
			}
		}
	})
	m := c.leader()
	on.Store(true)
	written := make(chan struct{})
	go func() {
		defer close(written)
		_, _ = m.Propose(c.ctx(), write("k", "v"))
	}()
	c.eventually("it counts as dead", func() error {
		if m.Alive(50 * time.Millisecond) {
			return fmt.Errorf("commit %d, applied %d", m.node.Raft().CommitIndex(), m.Applied())
		}
		return nil
	})
	close(hang)
	<-written
	if !m.Alive(time.Minute) {
		t.Error("it goes on, and counts as dead")
	}
}
