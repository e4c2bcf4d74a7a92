package raftstore

import (
	"context"
	"fmt"

	"github.com/quorate/quorate/proto"
)

// LimitStorage bounds what the live keys take together, on all nodes: see package mvcc. The caller
// has asked the voters what they have room for, in the configuration of index prev. A limit below what is
// stored is one too: then keys can only become smaller. Only the leader can do it. Errors:
// ErrNotLeader, ErrConfigurationChanged, ErrFeature; after any other it may take effect.
func (s *Store) LimitStorage(ctx context.Context, bytes int64, prev uint64) error {
	err := s.limitStorage(ctx, &proto.Cluster{StorageBytes: uint64(bytes), Term: s.node.LeadsIn()}, prev)
	if err != nil {
		return fmt.Errorf("limit the storage to %d bytes: %w", bytes, err)
	}
	return nil
}

func (s *Store) limitStorage(ctx context.Context, c *proto.Cluster, prev uint64) error {
	index, _ := s.Members()
	switch {
	case c.Term == 0:
		return ErrNotLeader
	case index != prev:
		return ErrConfigurationChanged
	}
	if err := s.features.allowed(proto.KindCluster, c); err != nil {
		return err
	}
	if err := s.decide(ctx, c); err != nil {
		return err
	}
	if _, limit := s.Storage(); limit != int64(c.StorageBytes) {
		return ErrNotLeader
	}
	return nil
}

// Storage returns what the live keys take in this node's state, and what they may take; 0 if that is
// not bounded. In bytes.
func (s *Store) Storage() (used, limit int64) {
	state := s.State()
	return state.Used(), state.Mark().StorageBytes
}

// fullByQuorum says by how much a write would exceed the storage limit, or nil. What would be refused is
// not written to the log: a client that tries again and again would fill the disk by that. But a
// state that lags may be full where the cluster's is not any more, so a refusal costs a quorum round.
// Errors: those of ReadIndex.
func (s *Store) fullByQuorum(ctx context.Context, w *proto.Write) (*proto.Exceeded, error) {
	if s.State().NoRoom(w) == nil {
		return nil, nil
	}
	index, err := s.ReadIndex(ctx)
	if err == nil {
		err = s.WaitApplied(ctx, index)
	}
	if err != nil {
		return nil, fmt.Errorf("ask how much is stored: %w", err)
	}
	return s.State().NoRoom(w), nil
}
