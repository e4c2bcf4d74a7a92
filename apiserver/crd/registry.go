package crd

import (
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/quorate/quorate/apiserver/kinds"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// Store is what is needed of the replicated store.
type Store interface {
	// State is the local state. It may be replaced as a whole by a snapshot.
	State() *mvcc.State
}

// Registry knows the resources that a node serves. It is safe for concurrent
// use. Asking takes no lock, unless a definition has changed: then the first who
// asks reads the changes, and the others wait for it. So whoever has seen a change
// in this node's state finds it here.
type Registry struct {
	store    Store
	builtin  []*kinds.Resource
	log      *slog.Logger
	compiled compilations

	now atomic.Pointer[snapshot]
	mu  sync.Mutex // of whoever renews
}

// snapshot is the resources of one state.
type snapshot struct {
	state *mvcc.State
	table *mvcc.Table // nil as long as it does not exist
	read  proto.Revision

	resources   *kinds.Registry
	definitions []*Definition // by name
	byName      map[string]*Definition
}

// New returns the registry of the built-in resources and of the definitions in a
// store. Nothing runs in it; log is told of definitions that cannot be read.
func New(store Store, builtin *kinds.Registry, log *slog.Logger) *Registry {
	return &Registry{store: store, builtin: builtin.All(), log: log}
}

func (s *snapshot) current(state *mvcc.State) bool {
	if s == nil || s.state != state {
		return false
	}
	t := s.table
	if t == nil {
		if t = state.Table(Table); t == nil {
			return true
		}
	}
	return t.Latest() <= s.read || state.Applied() <= s.read
}

// Current returns what is served now. The same registry is returned until a
// definition changes.
func (r *Registry) Current() *kinds.Registry { return r.snapshot().resources }

// Definitions returns the stored definitions in the order of their names, not to be
// changed.
func (r *Registry) Definitions() []*Definition { return r.snapshot().definitions }

func (r *Registry) snapshot() *snapshot {
	state := r.store.State()
	if s := r.now.Load(); s.current(state) {
		return s
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		state := r.store.State()
		was := r.now.Load()
		if was.current(state) {
			return was
		}
		next, err := r.follow(was, state)
		if err == nil {
			r.now.Store(next)
			return next
		}
		// The floor has passed what was current a moment ago.
	}
}

// follow reads the definitions of a state. What has not changed since the last time
// is taken over, with all that was compiled for it.
func (r *Registry) follow(was *snapshot, state *mvcc.State) (*snapshot, error) {
	// The mark first: what it stands for is in the table that is found after it.
	next := &snapshot{state: state, read: state.Applied(), byName: map[string]*Definition{}}
	var versions []*mvcc.Version
	if next.table = state.Table(Table); next.table != nil {
		page, err := next.table.Range(mvcc.Query{At: next.read})
		if err != nil {
			return nil, err
		}
		versions = page.Versions
	}
	var gone, come []*kinds.Resource
	for _, v := range versions {
		var before *Definition
		if was != nil {
			before = was.byName[v.Key]
		}
		d := before
		if d == nil || d.Stored != v {
			var err error
			if d, err = read(v, &r.compiled); err != nil {
				r.log.Error("a definition of a custom resource cannot be read", "err", err)
				d = &Definition{Stored: v}
			}
			if before != nil {
				gone = append(gone, before.Resources()...)
				d.succeed(before)
			}
			come = append(come, d.Resources()...)
		}
		next.definitions, next.byName[v.Key] = append(next.definitions, d), d
	}
	if was != nil && len(gone)+len(come) == 0 && len(was.definitions) == len(next.definitions) {
		next.resources = was.resources
		return next, nil
	}
	if was != nil {
		for _, d := range was.definitions {
			if next.byName[d.Stored.Key] == nil {
				d.end()
				gone = append(gone, d.Resources()...)
			}
		}
		var ok bool
		if next.resources, ok = was.resources.Replaced(gone, come); ok {
			return next, nil
		}
	}
	// A kind that two definitions have, which names do not allow, is the first's;
	// what is built in cannot be replaced.
	var all []*kinds.Resource
	for _, d := range next.definitions {
		all = append(all, d.Resources()...)
	}
	next.resources = kinds.NewRegistry(append(all, r.builtin...))
	return next, nil
}
