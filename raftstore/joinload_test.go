package raftstore

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/raftstore/peer"
)

// bigState is a transport whose snapshots are so large that the leader takes others,
// and cuts its log behind them, before one has arrived.
type bigState struct {
	*peer.Transport
	leader *atomic.Pointer[testNode]
	behind uint64
}

func (b *bigState) InstallSnapshot(id raft.ServerID, to raft.ServerAddress, req *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	if l := b.leader.Load(); l != nil {
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if list, err := l.snapshots.List(); err == nil && list[0].Index > req.LastLogIndex+b.behind {
				break
			}
		}
	}
	return b.Transport.InstallSnapshot(id, to, req, resp, data)
}

// TestNodeCatchesUpUnderLoad: a node that needs a snapshot catches up while writes go
// on, though by the time that it has loaded one, the leader would have cut the entries
// behind it: they are kept for it.
func TestNodeCatchesUpUnderLoad(t *testing.T) {
	const trailing = 64
	var leader atomic.Pointer[testNode]
	c := newCluster(t, 3, func(cfg *Config) {
		cfg.Transport = &bigState{cfg.Transport.(*peer.Transport), &leader, 4 * trailing}
		cfg.Limits = Limits{TrailingLogs: trailing, SnapshotThreshold: trailing / 2}
		cfg.Timing.SnapshotInterval = 20 * time.Millisecond
	})
	l := c.leader()
	away := c.other(l)
	c.close(away)
	missed := l.Applied()
	ctx, cancel := context.WithCancel(context.Background())
	var writers sync.WaitGroup
	for w := range 8 {
		writers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				_, _ = l.Propose(ctx, write(fmt.Sprint(w), fmt.Sprint(i)))
			}
		})
	}
	defer writers.Wait()
	defer cancel()
	// A message that is repeated to the node holds the first ones that it has missed.
	beyond := uint64(missed) + uint64(l.cfg.Limits.MaxAppendEntries) + 1
	// Both: on a slow machine the other one may lead by the time that the node is back.
	for _, m := range []*testNode{l, c.other(l)} {
		c.eventually(fmt.Sprintf("%s cuts what the node has missed", m.id), func() error {
			if first, err := m.log.FirstIndex(); err != nil || first <= beyond {
				return fmt.Errorf("its log begins at %d, %w", first, err)
			}
			return nil
		})
	}
	leader.Store(l)
	term := l.node.Raft().CurrentTerm()
	c.open(away)
	c.eventually("the joining node caught up under load", func() error {
		end, at := l.node.Raft().LastIndex(), uint64(away.Applied())
		if away.fsm.restored.Load() == 0 || at+trailing < end {
			return fmt.Errorf("the leader's log ends at %d, the node has applied %d, after %d snapshots", end, at, away.fsm.restored.Load())
		}
		return nil
	})
	// Another leader may send another one, for all that it knows of the node.
	if n := away.fsm.restored.Load(); n > 2 || n > 1 && l.IsLeader() && l.node.Raft().CurrentTerm() == term {
		t.Errorf("it took %d snapshots", n)
	}
}
