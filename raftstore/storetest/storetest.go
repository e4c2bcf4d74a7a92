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
	"github.com/quorate/quorate/raftstore/watch"
)

// Store is the contract. All methods are safe for concurrent use.
type Store interface {
	Propose(ctx context.Context, w *proto.Write) (mvcc.Result, error)
	State() *mvcc.State
	Watch(table string, after proto.Revision, interest mvcc.Interest) (*watch.Watcher, error)
	ReadIndex(ctx context.Context) (proto.Revision, error)
	WaitApplied(ctx context.Context, r proto.Revision) error
	Staleness() time.Duration
	Role() string
}

// Compactor is implemented by stores whose floor a test can move.
type Compactor interface {
	Compact(ctx context.Context, floor proto.Revision) error
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
		{"Rules", rules},
		{"Limits", limits},
		{"Duplicates", duplicates},
		{"ConcurrentDuplicates", concurrentDuplicates},
		{"CompareAndSwap", compareAndSwap},
		{"ReadIndex", readIndex},
		{"WaitApplied", waitApplied},
		{"WatchWhileWriting", watchWhileWriting},
		{"WatchWakes", watchWakes},
		{"WatchFromThePast", watchFromThePast},
		{"WatchOneKey", watchOneKey},
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
