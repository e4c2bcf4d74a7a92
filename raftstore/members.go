package raftstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/raft"
	"github.com/quorate/quorate/proto"
)

// Server is a member of the Raft configuration.
type Server struct {
	ID      proto.NodeID
	Address string
	Voter   bool
}

// Members returns the newest Raft configuration that this node knows and its
// index.
func (s *Store) Members() (index uint64, servers []Server, err error) {
	// The library's future for this has no index (it is always zero), so the state
	// machine keeps it. First the index, then the servers: should they differ, the
	// servers are newer, and a change with that index is refused.
	index = s.fsm.configuration.Load()
	future := s.raft.GetConfiguration()
	if err := future.Error(); err != nil {
		return 0, nil, fmt.Errorf("members: %w", err)
	}
	for _, m := range future.Configuration().Servers {
		servers = append(servers, Server{ID: proto.NodeID(m.ID), Address: string(m.Address), Voter: m.Suffrage == raft.Voter})
	}
	return index, servers, nil
}

// Committed returns the servers of the newest configuration that this node knows to be
// committed; ok is false before there is one. Members may be ahead of it by a change
// that is never committed.
func (s *Store) Committed() (servers []Server, ok bool) {
	c := s.fsm.servers.Load()
	if c == nil {
		return nil, false
	}
	for _, m := range c.Servers {
		servers = append(servers, Server{ID: proto.NodeID(m.ID), Address: string(m.Address), Voter: m.Suffrage == raft.Voter})
	}
	return servers, true
}

// HasState reports whether this node has taken part in a cluster before.
func (s *Store) HasState() bool {
	return s.raft.LastIndex() > 0 || s.raft.CurrentTerm() > 0
}

// Bootstrap makes this node part of a new cluster of the given voters. All of
// them must be given the same servers and cluster id; the first leader writes the
// id into the state. A node that has state already ignores it.
func (s *Store) Bootstrap(servers []Server, cluster proto.ClusterID) error {
	s.bootstrapped.Store(&cluster)
	var c raft.Configuration
	for _, m := range servers {
		suffrage := raft.Voter
		if !m.Voter {
			suffrage = raft.Nonvoter
		}
		c.Servers = append(c.Servers, raft.Server{ID: raft.ServerID(m.ID), Address: raft.ServerAddress(m.Address), Suffrage: suffrage})
	}
	err := s.raft.BootstrapCluster(c).Error()
	switch {
	case errors.Is(err, raft.ErrCantBootstrap):
		return nil
	case err != nil:
		return fmt.Errorf("bootstrap: %w", err)
	}
	s.formed <- struct{}{} // once in a store's life: after that it has state
	return nil
}

// Leader returns the leader that this node knows, or "".
func (s *Store) Leader() (proto.NodeID, string) {
	addr, id := s.raft.LeaderWithID()
	return proto.NodeID(id), string(addr)
}

// IsLeader reports whether this node leads and has committed an entry of its
// own term.
func (s *Store) IsLeader() bool { return s.leader.ready() }

// LeaderChanged returns a channel that is closed when the leader, or this node's
// readiness to lead, next changes.
func (s *Store) LeaderChanged() <-chan struct{} { return s.leader.watch() }

// AddNonvoter adds a node without a vote, if the configuration is still the one
// at prev. Errors of this and the other changes: ErrNotLeader,
// ErrConfigurationChanged, ErrUnknownOutcome.
func (s *Store) AddNonvoter(ctx context.Context, id proto.NodeID, addr string, prev uint64) error {
	return s.change(ctx, "add non-voter", id, prev, func(t time.Duration) raft.IndexFuture {
		return s.raft.AddNonvoter(raft.ServerID(id), raft.ServerAddress(addr), prev, t)
	})
}

// AddVoter gives a node a vote, or a voter another address.
func (s *Store) AddVoter(ctx context.Context, id proto.NodeID, addr string, prev uint64) error {
	return s.change(ctx, "add voter", id, prev, func(t time.Duration) raft.IndexFuture {
		return s.raft.AddVoter(raft.ServerID(id), raft.ServerAddress(addr), prev, t)
	})
}

// DemoteVoter takes a node's vote.
func (s *Store) DemoteVoter(ctx context.Context, id proto.NodeID, prev uint64) error {
	return s.change(ctx, "demote", id, prev, func(t time.Duration) raft.IndexFuture {
		return s.raft.DemoteVoter(raft.ServerID(id), prev, t)
	})
}

// RemoveServer removes a node.
func (s *Store) RemoveServer(ctx context.Context, id proto.NodeID, prev uint64) error {
	return s.change(ctx, "remove", id, prev, func(t time.Duration) raft.IndexFuture {
		return s.raft.RemoveServer(raft.ServerID(id), prev, t)
	})
}

func (s *Store) change(ctx context.Context, op string, id proto.NodeID, prev uint64, do func(time.Duration) raft.IndexFuture) error {
	if !s.leader.ready() {
		return fmt.Errorf("%s %s: %w", op, id, ErrNotLeader)
	}
	if index, _, err := s.Members(); err != nil || prev != 0 && index != prev {
		return fmt.Errorf("%s %s: %w", op, id, errors.Join(ErrConfigurationChanged, err))
	}
	err := s.await(ctx, func() error { return do(s.cfg.Timing.Election).Error() })
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

// await runs f, which cannot be cancelled, in a goroutine of its own. Raft may
// end without an answer to it (see awaitFuture).
func (s *Store) await(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return errors.Join(ErrUnknownOutcome, context.Cause(ctx))
	case <-s.ended:
		return errors.Join(ErrUnknownOutcome, ErrClosed)
	}
}

// TransferLeadership hands leadership to a voter; "" means the one that is most
// caught up. It must not be called again for a follower that has not moved since:
// raft would block all writes (raft#696).
func (s *Store) TransferLeadership(ctx context.Context, to proto.NodeID) error {
	if !s.leader.ready() {
		return fmt.Errorf("transfer leadership: %w", ErrNotLeader)
	}
	if !s.leader.transfer.TryLock() {
		return fmt.Errorf("transfer leadership: %w", raft.ErrLeadershipTransferInProgress)
	}
	err := s.await(ctx, func() error {
		defer s.leader.transfer.Unlock()
		if to == "" {
			return s.raft.LeadershipTransfer().Error()
		}
		_, servers, err := s.Members()
		if err != nil {
			return err
		}
		for _, m := range servers {
			if m.ID == to && m.Voter {
				return s.raft.LeadershipTransferToServer(raft.ServerID(to), raft.ServerAddress(m.Address)).Error()
			}
		}
		return fmt.Errorf("%s is not a voter", to)
	})
	if err != nil {
		return fmt.Errorf("transfer leadership: %w", err)
	}
	return nil
}
