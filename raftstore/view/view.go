// Package view keeps values that follow from some tables of this node's state: the
// index of all roles, the resources of all definitions. Such a value is not a cache
// that has to be kept up to date: nothing runs, and each question is answered
// from what the state shows at that moment. So a write that is visible at this node
// counts in everything that is decided here, and no informer can lag behind it.
//
// View is the shell: which state, which tables, read up to where, renewed by the first
// reader. What is derived, and from what it is taken over, is the caller's.
package view

import (
	"sync"
	"sync/atomic"

	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// Store is what is needed of the replicated store.
type Store interface {
	// State is the local state. It may be replaced as a whole by a snapshot.
	State() *mvcc.State
}

// View is a value derived from tables of a store's state. It is safe for concurrent
// use. Asking takes no lock and allocates nothing, unless one of the tables has changed:
// then the first reader derives the next value, and the others wait for it.
type View[T any] struct {
	store  Store
	names  []string
	derive func(Reading, T) (T, error)

	now atomic.Pointer[snapshot[T]]
	mu  sync.Mutex // of the one that renews
}

// Reading is what a value is derived from.
type Reading struct {
	// Tables are those of the view, in its order; nil where one does not exist yet.
	Tables []*mvcc.Table
	// At is the revision as of which they are to be read. It is applied.
	At proto.Revision
	// Follows says that the value before was derived from the same state: what has
	// changed since is in the tables' histories. Otherwise they are to be read as a
	// whole.
	Follows bool
}

// snapshot is a value and what it was derived from.
type snapshot[T any] struct {
	state *mvcc.State
	Reading
	value T
}

// New returns the view of the named tables. derive makes a value of a reading and of
// the value before, at first the zero T; it is called by one goroutine at a time, and
// must not change a value that it has returned. The only errors it may return are those
// of reading (mvcc.ErrCompacted): it is called again then, with a Reading that does not
// follow.
func New[T any](store Store, names []string, derive func(Reading, T) (T, error)) *View[T] {
	return &View[T]{store: store, names: names, derive: derive}
}

// Get returns the value of what is visible in the state now.
func (v *View[T]) Get() T {
	state := v.store.State()
	if s := v.now.Load(); s.current(state, v.names) {
		return s.value
	}
	return v.renew()
}

// current reports whether a snapshot has all that is visible in a state.
func (s *snapshot[T]) current(state *mvcc.State, names []string) bool {
	if s == nil || s.state != state {
		return false
	}
	for i, t := range s.Tables {
		if t == nil {
			if t = state.Table(names[i]); t == nil {
				continue
			}
		}
		// A table grows before that is visible.
		if t.Latest() > s.At && state.Applied() > s.At {
			return false
		}
	}
	return true
}

func (v *View[T]) renew() T {
	v.mu.Lock()
	defer v.mu.Unlock()
	for again := false; ; again = true {
		state, was := v.store.State(), v.now.Load()
		if was.current(state, v.names) {
			return was.value // another goroutine was first
		}
		next := &snapshot[T]{state: state, Reading: read(state, v.names)}
		var before T
		if was != nil {
			// In a table that is gone nothing can be followed.
			before, next.Follows = was.value, was.state == state && !again && state.Dropped() <= was.At
		}
		var err error
		if next.value, err = v.derive(next.Reading, before); err == nil {
			v.now.Store(next)
			return next.value
		}
		// The floor has passed what was current a moment ago, and part of it may have
		// been taken: everything is read as it is now.
	}
}

// read looks at a state: first the mark, then the tables. What the mark stands for is
// in the tables that are found after it; a table that is not found has nothing at or
// below it. A read of the tables at the mark fails if the floor has passed it
// meanwhile: tables look at the floor last.
func read(state *mvcc.State, names []string) Reading {
	r := Reading{At: state.Applied(), Tables: make([]*mvcc.Table, len(names))}
	for i, name := range names {
		r.Tables[i] = state.Table(name)
	}
	return r
}

// Mark stands for what was visible at a time. The zero Mark is before everything. It
// keeps the state alive that it is of.
type Mark struct {
	state *mvcc.State
	at    proto.Revision
}

// Mark returns what is visible now, or a little before. It costs two loads.
func (v *View[T]) Mark() Mark {
	state := v.store.State()
	return Mark{state, state.Applied()}
}

// Changed reports whether one of the tables has changed since a mark, or may have.
func (v *View[T]) Changed(since Mark) bool {
	now := v.Mark()
	switch {
	case now == since:
		return false
	case now.state != since.state:
		return true
	}
	for _, name := range v.names {
		if now.state.Latest(name) > since.at {
			return true
		}
	}
	return false
}
