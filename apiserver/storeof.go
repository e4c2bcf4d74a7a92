package apiserver

import (
	"context"
	"time"

	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// Watching is Store but for the type that Watch returns: a store has a type of
// its own for it.
type Watching[W Watcher] interface {
	Propose(ctx context.Context, w *proto.Write) (mvcc.Result, error)
	State() *mvcc.State
	Watch(table string, after proto.Revision) (W, error)
	WatchOnly(table string, after proto.Revision, only mvcc.Interest) (W, error)
	Published() (<-chan struct{}, func())
	Staleness() time.Duration
	Role() string
	NodeID() proto.NodeID
	NodeName() string
}

// StoreOf makes a Store of *raftstore.Store and *raftstore.Memory.
func StoreOf[W Watcher](s Watching[W]) Store { return adapted[W]{s} }

type adapted[W Watcher] struct{ Watching[W] }

// Watch implements Store.
func (a adapted[W]) Watch(table string, after proto.Revision) (Watcher, error) {
	w, err := a.Watching.Watch(table, after)
	if err != nil {
		return nil, err
	}
	return w, nil
}

// WatchOnly implements Store.
func (a adapted[W]) WatchOnly(table string, after proto.Revision, only mvcc.Interest) (Watcher, error) {
	w, err := a.Watching.WatchOnly(table, after, only)
	if err != nil {
		return nil, err
	}
	return w, nil
}
