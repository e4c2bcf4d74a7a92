package raftstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/local"
)

// Server is a member of the Raft configuration.
type Server = local.Server

// members is the Raft configuration, and who leads in it. It is a part of Store.
type members struct {
	node     *local.Node
	fsm      *fsm
	election time.Duration // bounds how long Raft may take to begin with a change

	transfer sync.Mutex // held while leadership is handed over: one at a time
}

// Members returns the newest Raft configuration that this node knows and its
// index.
func (m *members) Members() (index uint64, servers []Server) {
	// The library's future for this has no index (it is always zero), so the state
	// machine keeps it. First the index, then the servers: should they differ, the
	// servers are newer, and a change with that index is refused.
	index = m.fsm.configuration.Load()
	return index, m.node.Members()
}

// Committed returns the servers of the newest configuration that this node knows to be
// committed; ok is false before there is one. Members may be ahead of it by a change
// that is never committed.
func (m *members) Committed() (servers []Server, ok bool) {
	c := m.fsm.servers.Load()
	if c == nil {
		return nil, false
	}
	return local.Members(c.Servers), true
}

// HasState reports whether this node has taken part in a cluster before.
func (m *members) HasState() bool {
	return m.node.Raft().LastIndex() > 0 || m.node.Raft().CurrentTerm() > 0
}

// Leader returns the leader that this node knows, or "".
func (m *members) Leader() (proto.NodeID, string) {
	addr, id := m.node.Raft().LeaderWithID()
	return proto.NodeID(id), string(addr)
}

// IsLeader reports whether this node leads and has committed an entry of its
// own term.
func (m *members) IsLeader() bool { return m.node.Ready() }

// LeaderChanged returns a channel that is closed when the leader, or this node's
// readiness to lead, next changes.
func (m *members) LeaderChanged() <-chan struct{} { return m.node.Changed() }

// AddNonvoter adds a node without a vote, if the configuration is still the one
// at prev. Errors of this and the other changes: ErrNotLeader,
// ErrConfigurationChanged, ErrUnknownOutcome.
func (m *members) AddNonvoter(ctx context.Context, id proto.NodeID, addr string, prev uint64) error {
	return m.change(ctx, "add non-voter", id, prev, func(t time.Duration) raft.IndexFuture {
		return m.node.Raft().AddNonvoter(raft.ServerID(id), raft.ServerAddress(addr), prev, t)
	})
}

// AddVoter gives a node a vote, or a voter another address.
func (m *members) AddVoter(ctx context.Context, id proto.NodeID, addr string, prev uint64) error {
	return m.change(ctx, "add voter", id, prev, func(t time.Duration) raft.IndexFuture {
		return m.node.Raft().AddVoter(raft.ServerID(id), raft.ServerAddress(addr), prev, t)
	})
}

// DemoteVoter takes a node's vote.
func (m *members) DemoteVoter(ctx context.Context, id proto.NodeID, prev uint64) error {
	return m.change(ctx, "demote", id, prev, func(t time.Duration) raft.IndexFuture {
		return m.node.Raft().DemoteVoter(raft.ServerID(id), prev, t)
	})
}

// RemoveServer removes a node.
func (m *members) RemoveServer(ctx context.Context, id proto.NodeID, prev uint64) error {
	return m.change(ctx, "remove", id, prev, func(t time.Duration) raft.IndexFuture {
		return m.node.Raft().RemoveServer(raft.ServerID(id), prev, t)
	})
}

func (m *members) change(ctx context.Context, op string, id proto.NodeID, prev uint64, do func(time.Duration) raft.IndexFuture) error {
	if !m.node.Ready() {
		return fmt.Errorf("%s %s: %w", op, id, ErrNotLeader)
	}
	if index, _ := m.Members(); prev != 0 && index != prev {
		return fmt.Errorf("%s %s: %w", op, id, ErrConfigurationChanged)
	}
	err := m.node.Do(ctx, func() error { return do(m.election).Error() })
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader):
		err = errors.Join(ErrNotLeader, err)
	case errors.Is(err, raft.ErrLeadershipLost):
		err = errors.Join(ErrUnknownOutcome, err)
	case strings.HasPrefix(err.Error(), "configuration changed since"):
		err = errors.Join(ErrConfigurationChanged, err)
	}
	return fmt.Errorf("%s %s: %w", op, id, err)
}

// TransferLeadership hands leadership to a voter; "" means the one that is most
// caught up. It must not be called again for a follower that has not moved since:
// raft would block all writes (raft#696).
func (m *members) TransferLeadership(ctx context.Context, to proto.NodeID) error {
	if !m.node.Ready() {
		return fmt.Errorf("transfer leadership: %w", ErrNotLeader)
	}
	if !m.transfer.TryLock() {
		return fmt.Errorf("transfer leadership: %w", raft.ErrLeadershipTransferInProgress)
	}
	err := m.node.Do(ctx, func() error {
		defer m.transfer.Unlock()
		if to == "" {
			return m.node.Raft().LeadershipTransfer().Error()
		}
		for _, s := range m.node.Members() {
			if s.ID == to && s.Voter {
				return m.node.Raft().LeadershipTransferToServer(raft.ServerID(to), raft.ServerAddress(s.Address)).Error()
			}
		}
		return fmt.Errorf("%s is not a voter", to)
	})
	if err != nil {
		return fmt.Errorf("transfer leadership: %w", err)
	}
	return nil
}
