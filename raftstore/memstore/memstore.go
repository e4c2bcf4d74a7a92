// Package memstore is the store's contract in one process, without Raft and without
// a disk: the same state machine behind a counter. It is for tests of what is built on
// the store; no program imports it.
package memstore

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"github.com/quorate/quorate/proto"
	storeerrors "github.com/quorate/quorate/raftstore/errors"
	"github.com/quorate/quorate/raftstore/mvcc"
	"github.com/quorate/quorate/raftstore/watch"
	pb "google.golang.org/protobuf/proto"
)

// Store passes the contract of package storetest, as raftstore.Store does. All methods
// are safe for concurrent use.
type Store struct {
	hub  *watch.Hub
	done chan struct{} // closed by Close

	mu     sync.Mutex // held while an entry is applied: Store is the state's one writer
	index  proto.RaftIndex
	closed bool
}

// New returns an empty store that leads itself. It begins with the entries
// that every log begins with, so that no list ever has revision zero.
func New() *Store {
	s := &Store{hub: watch.New(mvcc.New()), done: make(chan struct{})}
	for _, e := range []struct {
		kind proto.Kind
		msg  pb.Message
	}{
		{proto.KindNewTerm, &proto.NewTerm{Term: 1, LeaderId: rand.Text()}},
		{proto.KindCluster, &proto.Cluster{ClusterId: rand.Text(), FeatureVersion: mvcc.FeatureVersion}},
	} {
		if _, err := s.apply(context.Background(), e.kind, e.msg); err != nil {
			panic(fmt.Sprintf("memstore: an empty state refuses its first entries: %v", err))
		}
	}
	return s
}

// Propose applies one write. See raftstore.Store.Propose; ErrNoLeader, ErrUnknownOutcome
// and ErrOverloaded do not occur.
func (s *Store) Propose(ctx context.Context, w *proto.Write) (mvcc.Result, error) {
	if len(w.RequestId) == 0 {
		w.RequestId = make([]byte, proto.RequestIDSize)
		rand.Read(w.RequestId)
	}
	if err := mvcc.Validate(w); err != nil {
		return mvcc.Result{}, fmt.Errorf("write %s %s: %w", w.Table, w.Key, err)
	}
	w.Since = uint64(s.State().Applied())
	r, err := s.apply(ctx, proto.KindWrite, w)
	if err != nil {
		return mvcc.Result{}, fmt.Errorf("write %s %s: %w", w.Table, w.Key, err)
	}
	if r.Outcome == proto.Outcome_OUTCOME_DUPLICATE {
		if t := s.State().Table(w.Table); t != nil {
			r.Table, r.Version = t, t.Version(w.Key, r.Revision)
		}
	}
	return r, nil
}

// Compact drops the history up to floor.
func (s *Store) Compact(ctx context.Context, floor proto.Revision) error {
	if _, err := s.apply(ctx, proto.KindCompact, &proto.Compact{Floor: uint64(floor)}); err != nil {
		return fmt.Errorf("compact to %d: %w", floor, err)
	}
	return nil
}

// LimitStorage bounds what the live keys take. See raftstore.Store.LimitStorage.
func (s *Store) LimitStorage(ctx context.Context, bytes int64, _ uint64) error {
	if _, err := s.apply(ctx, proto.KindCluster, &proto.Cluster{ClusterId: string(s.State().Mark().Cluster), StorageBytes: uint64(bytes)}); err != nil {
		return fmt.Errorf("limit the storage to %d bytes: %w", bytes, err)
	}
	return nil
}

func (s *Store) apply(ctx context.Context, kind proto.Kind, msg pb.Message) (mvcc.Result, error) {
	entry, err := proto.Encode(kind, msg)
	if err != nil {
		return mvcc.Result{}, err
	}
	if len(entry) > proto.MaxEntryBytes {
		return mvcc.Result{}, fmt.Errorf("%d bytes, the limit is %d: %w", len(entry), proto.MaxEntryBytes, storeerrors.ErrTooLarge)
	}
	if ctx.Err() != nil {
		return mvcc.Result{}, context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return mvcc.Result{}, storeerrors.ErrClosed
	}
	came := watch.Now()
	state := s.hub.State()
	r, err := state.Apply(s.index+1, 1, entry)
	if err != nil {
		return mvcc.Result{}, err
	}
	s.index++
	state.Publish()
	if mvcc.Invariants() {
		if err := state.CheckSome(); err != nil {
			panic(fmt.Sprintf("memstore: state machine at %d: %v", s.index, err))
		}
	}
	var grown []string
	if r.Version != nil {
		grown = append(grown, r.Table.Name())
	}
	s.hub.Published(proto.Revision(s.index), grown, came)
	return r, nil
}

// State is the state. It is never replaced.
func (s *Store) State() *mvcc.State { return s.hub.State() }

// Applied is the newest revision that reads see.
func (s *Store) Applied() proto.Revision { return s.hub.State().Applied() }

// Watch returns a watcher behind revision after. See raftstore.Store.Watch.
func (s *Store) Watch(table string, after proto.Revision, interest mvcc.Interest) (*watch.Watcher, error) {
	return s.hub.Watch(table, after, interest)
}

// WatchesBehind is since when the oldest change waits that the hub has told no watcher of, if
// one does. See raftstore.Store.WatchesBehind.
func (s *Store) WatchesBehind() (since watch.Moment, behind bool) { return s.hub.Behind() }

// HoldWatches keeps the hub from telling watchers of anything, as if it hung, until release
// is called.
func (s *Store) HoldWatches() (release func()) { return s.hub.Hold() }

// Published tells that something was applied. See raftstore.Store.Published.
func (s *Store) Published() (<-chan struct{}, func()) { return s.hub.Listen() }

// ReadIndex returns the applied index: everything that was acknowledged is
// applied here. Errors: ErrClosed and the context's.
func (s *Store) ReadIndex(ctx context.Context) (proto.Revision, error) {
	if ctx.Err() != nil {
		return 0, fmt.Errorf("read index: %w", context.Cause(ctx))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, fmt.Errorf("read index: %w", storeerrors.ErrClosed)
	}
	return proto.Revision(s.index), nil
}

// WaitApplied returns when index r is applied. Errors: ErrClosed and the
// context's.
func (s *Store) WaitApplied(ctx context.Context, r proto.Revision) error {
	// Before the look at the state: what is applied after that look is told.
	applied, end := s.hub.Listen()
	defer end()
	for s.Applied() < r {
		select {
		case <-applied:
		case <-s.done:
			return storeerrors.ErrClosed
		case <-ctx.Done():
			return fmt.Errorf("wait for index %d at %d: %w", r, s.Applied(), context.Cause(ctx))
		}
	}
	return nil
}

// Staleness is always zero.
func (s *Store) Staleness() time.Duration { return 0 }

// Role is leader, or shutdown after Close.
func (s *Store) Role() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return "shutdown"
	}
	return "leader"
}

// NodeName is memory.
func (s *Store) NodeName() string { return "memory" }

// Close ends all waits. Reads of the state go on working.
func (s *Store) Close() error {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.mu.Unlock()
	if closed {
		return nil
	}
	close(s.done)
	s.hub.Close()
	return nil
}
