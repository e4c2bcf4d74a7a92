package raftstore

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	"github.com/quorate/quorate/raftstore/watch"
	pb "google.golang.org/protobuf/proto"
)

// Memory is the store's contract in one process without Raft and without a
// disk: the same state machine behind a counter. It is for tests of what is
// built on the store. All methods are safe for concurrent use.
type Memory struct {
	id      proto.NodeID
	hub     *watch.Hub
	waiters waiters

	mu     sync.Mutex // held while an entry is applied: Memory is the state's one writer
	index  proto.RaftIndex
	closed bool
}

// NewMemory returns an empty store that leads itself. It begins with the entries
// that every log begins with, so that no list ever has revision zero.
func NewMemory() *Memory {
	m := &Memory{id: proto.NodeID(rand.Text()), hub: watch.New(mvcc.New())}
	for _, e := range []struct {
		kind proto.Kind
		msg  pb.Message
	}{
		{proto.KindNewTerm, &proto.NewTerm{Term: 1, LeaderId: string(m.id)}},
		{proto.KindCluster, &proto.Cluster{ClusterId: rand.Text(), FeatureVersion: mvcc.FeatureVersion}},
	} {
		if _, err := m.apply(context.Background(), e.kind, e.msg); err != nil {
			panic(fmt.Sprintf("raftstore: an empty state refuses its first entries: %v", err))
		}
	}
	return m
}

// Propose applies one write. See Store.Propose; ErrNoLeader, ErrUnknownOutcome
// and ErrOverloaded do not occur.
func (m *Memory) Propose(ctx context.Context, w *proto.Write) (mvcc.Result, error) {
	if len(w.RequestId) == 0 {
		w.RequestId = make([]byte, proto.RequestIDSize)
		rand.Read(w.RequestId)
	}
	if err := mvcc.Validate(w); err != nil {
		return mvcc.Result{}, fmt.Errorf("write %s %s: %w", w.Table, w.Key, err)
	}
	w.Since = uint64(m.State().Applied())
	r, err := m.apply(ctx, proto.KindWrite, w)
	if err != nil {
		return mvcc.Result{}, fmt.Errorf("write %s %s: %w", w.Table, w.Key, err)
	}
	if r.Outcome == proto.Outcome_OUTCOME_DUPLICATE {
		if t := m.State().Table(w.Table); t != nil {
			r.Table, r.Version = t, t.Version(w.Key, r.Revision)
		}
	}
	return r, nil
}

// Compact drops the history up to floor.
func (m *Memory) Compact(ctx context.Context, floor proto.Revision) error {
	if _, err := m.apply(ctx, proto.KindCompact, &proto.Compact{Floor: uint64(floor)}); err != nil {
		return fmt.Errorf("compact to %d: %w", floor, err)
	}
	return nil
}

func (m *Memory) apply(ctx context.Context, kind proto.Kind, msg pb.Message) (mvcc.Result, error) {
	entry, err := proto.Encode(kind, msg)
	if err != nil {
		return mvcc.Result{}, err
	}
	if len(entry) > proto.MaxEntryBytes {
		return mvcc.Result{}, fmt.Errorf("%d bytes, the limit is %d: %w", len(entry), proto.MaxEntryBytes, ErrTooLarge)
	}
	if ctx.Err() != nil {
		return mvcc.Result{}, context.Cause(ctx)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return mvcc.Result{}, ErrClosed
	}
	state := m.hub.State()
	r, err := state.Apply(m.index+1, 1, entry)
	if err != nil {
		return mvcc.Result{}, err
	}
	m.index++
	state.Publish()
	if invariants {
		if err := state.Check(); err != nil {
			panic(fmt.Sprintf("raftstore: state machine at %d: %v", m.index, err))
		}
	}
	m.waiters.advance(proto.Revision(m.index))
	var grown []string
	if r.Version != nil {
		grown = append(grown, r.Table.Name())
	}
	m.hub.Published(proto.Revision(m.index), grown)
	return r, nil
}

// State is the state. It is never replaced.
func (m *Memory) State() *mvcc.State { return m.hub.State() }

// Applied is the newest revision that reads see.
func (m *Memory) Applied() proto.Revision { return m.hub.State().Applied() }

// Watch returns a watcher behind revision after. See Store.Watch.
func (m *Memory) Watch(table string, after proto.Revision, interest mvcc.Interest) (*watch.Watcher, error) {
	return m.hub.Watch(table, after, interest)
}

// Published tells that something was applied. See Store.Published.
func (m *Memory) Published() (<-chan struct{}, func()) { return m.hub.Listen() }

// ReadIndex returns the applied index: everything that was acknowledged is
// applied here. Errors: ErrClosed and the context's.
func (m *Memory) ReadIndex(ctx context.Context) (proto.Revision, error) {
	if ctx.Err() != nil {
		return 0, fmt.Errorf("read index: %w", context.Cause(ctx))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return 0, fmt.Errorf("read index: %w", ErrClosed)
	}
	return proto.Revision(m.index), nil
}

// WaitApplied returns when index r is applied. Errors: ErrClosed and the
// context's.
func (m *Memory) WaitApplied(ctx context.Context, r proto.Revision) error {
	return m.waiters.wait(ctx, r, m.Applied)
}

// Staleness is always zero.
func (m *Memory) Staleness() time.Duration { return 0 }

// Role is leader, or shutdown after Close.
func (m *Memory) Role() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return "shutdown"
	}
	return "leader"
}

// NodeID is random.
func (m *Memory) NodeID() proto.NodeID { return m.id }

// NodeName is memory.
func (m *Memory) NodeName() string { return "memory" }

// Close ends all waits. Reads of the state go on working.
func (m *Memory) Close() error {
	m.mu.Lock()
	closed := m.closed
	m.closed = true
	m.mu.Unlock()
	if closed {
		return nil
	}
	m.waiters.close(ErrClosed)
	m.hub.Close()
	return nil
}
