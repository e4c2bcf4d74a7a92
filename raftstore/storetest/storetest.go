// Package storetest is the contract of the replicated store as a test suite.
// Whatever serves the API's storage must pass Run: the store on memory, on one
// node and on several.
//
// A Store under test is one node. What it needs beside that node (its peers) is
// the business of the function that opens it.
package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// Store is the contract. All methods are safe for concurrent use.
type Store interface {
	Propose(ctx context.Context, w *proto.Write) (mvcc.Result, error)
	State() *mvcc.State
	Watch(table string, after proto.Revision) (Watcher, error)
	ReadIndex(ctx context.Context) (proto.Revision, error)
	WaitApplied(ctx context.Context, r proto.Revision) error
	Staleness() time.Duration
	Role() string
}

// Compactor is implemented by stores whose floor a test can move.
type Compactor interface {
	Compact(ctx context.Context, floor proto.Revision) error
}

// Watcher is a position in a table's history. For one goroutine.
type Watcher interface {
	Next(buf []*mvcc.Version) (n int, progress proto.Revision, err error)
	Wake() <-chan struct{}
	Close()
}

// Concrete is a store whose Watch returns a type of its own.
type Concrete[W Watcher] interface {
	Propose(ctx context.Context, w *proto.Write) (mvcc.Result, error)
	State() *mvcc.State
	Watch(table string, after proto.Revision) (W, error)
	ReadIndex(ctx context.Context) (proto.Revision, error)
	WaitApplied(ctx context.Context, r proto.Revision) error
	Staleness() time.Duration
	Role() string
}

// Of makes a Store of a Concrete one.
func Of[W Watcher](s Concrete[W]) Store { return adapter[W]{s} }

type adapter[W Watcher] struct{ Concrete[W] }

func (a adapter[W]) Watch(table string, after proto.Revision) (Watcher, error) {
	w, err := a.Concrete.Watch(table, after)
	if err != nil {
		return nil, err
	}
	return w, nil
}

// Compact passes the call on; ok is false if the store has no such method.
func (a adapter[W]) compactor() (c Compactor, ok bool) {
	c, ok = any(a.Concrete).(Compactor)
	return c, ok
}

// compactorOf returns the store's Compact, also through an adapter.
func compactorOf(s Store) (Compactor, bool) {
	if a, ok := s.(interface{ compactor() (Compactor, bool) }); ok {
		return a.compactor()
	}
	c, ok := s.(Compactor)
	return c, ok
}

// Run checks the contract. open returns a node of a cluster that accepts writes;
// it may be the same one each time, because every test uses tables and keys of
// its own, and it registers its own cleanup.
func Run(t *testing.T, open func(t *testing.T) Store) {
	for _, c := range []struct {
		name string
		test func(*testing.T, *env)
	}{
		{"AcknowledgedIsStored", acknowledgedIsStored},
		{"ReadYourWrites", readYourWrites},
		{"Outcomes", outcomes},
		{"Guard", guard},
		{"Duplicates", duplicates},
		{"ConcurrentDuplicates", concurrentDuplicates},
		{"CompareAndSwap", compareAndSwap},
		{"ReadIndex", readIndex},
		{"WaitApplied", waitApplied},
		{"WatchWhileWriting", watchWhileWriting},
		{"WatchWakes", watchWakes},
		{"WatchFromThePast", watchFromThePast},
		{"Compaction", compaction},
		{"PagesAtOneRevision", pagesAtOneRevision},
		{"TooLarge", tooLarge},
		{"Role", role},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			c.test(t, &env{t: t, s: open(t), ctx: ctx, table: "storetest/" + c.name + "/" + unique()})
		})
	}
}
