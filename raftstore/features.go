package raftstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/local"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// A cluster's feature version is raised when all members have said that they support more.
const (
	// oldestFeature is what a cluster speaks before its first entry says so.
	oldestFeature = 1
	// newFeature is what a new cluster speaks: all releases support as much.
	newFeature = 2
)

// features says which entries the cluster's nodes all understand.
type features struct {
	node     *local.Node
	hooks    *TestHooks
	state    func() *mvcc.State
	waiters  *waiters
	noLeader time.Duration
}

// both are the feature version that the cluster speaks, as far as this node's state knows, and the one that this node supports.
func (f *features) both() (cluster, supported uint32) {
	return max(f.state().Mark().Feature, oldestFeature), f.hooks.Supports
}

// Features returns the feature version that the cluster speaks, as far as this node's
// state knows, and the one that this node supports.
func (s *Store) Features() (cluster, supported uint32) {
	return s.features.both()
}

// allowed refuses entries that need a newer feature version than the cluster speaks. It
// costs nothing when the cluster speaks all that this node supports.
func (f *features) allowed(kind proto.Kind, m proto.Message) error {
	cluster, supported := f.both()
	if cluster >= supported {
		return nil
	}
	if needs := f.hooks.Needs(kind, m); needs > cluster {
		return fmt.Errorf("it needs feature version %d, the cluster speaks %d: %w", needs, cluster, ErrFeature)
	}
	return nil
}

// allowedByQuorum is allowed for a write of this node. A state that lags, or that is empty
// because the node has just joined, does not know what the cluster speaks. So what it would
// refuse costs a quorum round first. Errors: also those of ReadIndex.
func (s *Store) allowedByQuorum(ctx context.Context, w *proto.Write) error {
	if s.features.allowed(proto.KindWrite, w) == nil {
		return nil
	}
	index, err := s.ReadIndex(ctx)
	if err == nil {
		err = s.WaitApplied(ctx, index)
	}
	if err != nil {
		return fmt.Errorf("ask what the cluster speaks: %w", err)
	}
	return s.features.allowed(proto.KindWrite, w)
}

// checkFeature refuses a state whose cluster speaks more than this node supports.
func checkFeature(speaks, supports uint32) error {
	if speaks > supports {
		return fmt.Errorf("the cluster speaks feature version %d, this node supports %d: %w", speaks, supports, ErrTooOld)
	}
	return nil
}

// RaiseFeature makes the cluster speak a feature version, which never falls again. The
// caller has seen that all members support it, in the configuration of index prev. Only
// the leader can do it. Errors: ErrNotLeader, ErrConfigurationChanged, ErrTooOld; after
// any other it may take effect.
func (s *Store) RaiseFeature(ctx context.Context, version uint32, prev uint64) error {
	term := s.node.LeadsIn()
	cluster, supported := s.Features()
	index, _ := s.Members()
	switch {
	case term == 0:
		return fmt.Errorf("raise the feature version: %w", ErrNotLeader)
	case index != prev:
		return fmt.Errorf("raise the feature version: %w", ErrConfigurationChanged)
	case version <= cluster:
		return nil
	case version > supported:
		return fmt.Errorf("raise the feature version to %d, this node supports %d: %w", version, supported, ErrTooOld)
	}
	if err := s.decide(ctx, &proto.Cluster{FeatureVersion: version, Term: term}); err != nil {
		return fmt.Errorf("raise the feature version to %d: %w", version, err)
	}
	if now, _ := s.Features(); now < version {
		return fmt.Errorf("raise the feature version to %d: %w", version, ErrNotLeader)
	}
	return nil
}

// decide writes what is true of the cluster as a whole. In another term of this leader than c's the
// members may be others: then it has no effect.
func (s *Store) decide(ctx context.Context, c *proto.Cluster) error {
	c.ClusterId = string(s.Cluster())
	frame, err := proto.Encode(proto.KindCluster, c)
	if err == nil {
		_, err = s.proposals.apply(ctx, frame)
	}
	return err
}

// parsers are for checkEntry.
var parsers = sync.Pool{New: func() any { return new(mvcc.Parser) }}

// checkEntry refuses what the state machine would have to stop for, on some node: once
// an entry is committed, no node can refuse it any more.
func (f *features) checkEntry(frame []byte) error {
	kind, body, err := proto.Split(frame)
	if err != nil {
		return err
	}
	switch kind {
	case proto.KindWrite:
		p := parsers.Get().(*mvcc.Parser)
		defer parsers.Put(p)
		w, err := p.Parse(body)
		if err == nil {
			err = f.allowedHere(w)
		}
		if err != nil {
			return err
		}
		return mvcc.Validate(w)
	case proto.KindCompact:
		var c proto.Compact
		if err := mvcc.Decode(body, &c); err != nil {
			return err
		}
		return f.allowed(kind, &c)
	}
	return fmt.Errorf("kind %d is not for forwarding: %w", kind, proto.ErrUnknownKind)
}

// allowedHere is allowed for what another node proposes. That node may have applied the
// entry that raises the version, and this one, which leads, not yet.
func (f *features) allowedHere(w *proto.Write) error {
	err := f.allowed(proto.KindWrite, w)
	if err == nil || proto.Revision(w.Since) <= f.state().Applied() {
		return err
	}
	ctx, cancel := context.WithTimeout(f.node.Context(), f.noLeader)
	defer cancel()
	if late := f.waiters.wait(ctx, proto.Revision(w.Since), func() proto.Revision { return f.state().Applied() }); late != nil {
		return errors.Join(err, late)
	}
	return f.allowed(proto.KindWrite, w)
}

// speaks stops this node when the state machine has come to an entry after which the
// cluster speaks more than it supports. It reports whether it may go on.
func (f *fsm) speaks(l *raft.Log, state *mvcc.State) bool {
	if err := checkFeature(state.Feature(), f.supports); err != nil {
		f.fatal(fmt.Errorf("entry %d: %w", l.Index, err))
		return false
	}
	return true
}
