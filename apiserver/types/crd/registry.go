package crd

import (
	"log/slog"

	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/raftstore/mvcc"
	"github.com/quorate/quorate/raftstore/view"
)

// Registry knows the resources that a node serves. It is safe for concurrent
// use. Asking takes no lock, unless a definition has changed: see package view. A change
// that was seen in this node's state is found here.
type Registry struct {
	served   *view.View[*served]
	builtin  []*kinds.Resource
	log      *slog.Logger
	compiled compilations
}

// served is the resources of one state.
type served struct {
	resources   *kinds.Registry
	definitions []*Definition // by name
	byName      map[string]*Definition
}

// New returns the registry of the built-in resources and of the definitions in a
// store. Nothing runs in it; log is told of definitions that cannot be read.
func New(store view.Store, builtin *kinds.Registry, log *slog.Logger) *Registry {
	r := &Registry{builtin: builtin.All(), log: log}
	r.served = view.New(store, []string{Table}, r.follow)
	return r
}

// Current returns what is served now. The same registry is returned until a
// definition changes.
func (r *Registry) Current() *kinds.Registry { return r.served.Get().resources }

// Definitions returns the stored definitions in the order of their names, not to be
// changed.
func (r *Registry) Definitions() []*Definition { return r.served.Get().definitions }

// follow reads the definitions of a state. What has not changed since the last time
// is taken over, with all that was compiled for it. Errors: mvcc.ErrCompacted, before
// anything was taken over.
func (r *Registry) follow(now view.Reading, was *served) (*served, error) {
	next := &served{byName: map[string]*Definition{}}
	var versions []*mvcc.Version
	if t := now.Tables[0]; t != nil {
		page, err := t.Range(mvcc.Query{At: now.At})
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
