// Package state is what admission plugins read: the objects in this node's own state. Nothing
// is cached beside it and nothing runs: a write that is visible at this node counts in every
// decision after it.
//
// The types to know:
//
//   - State gets single objects, of tables of any size.
//   - Objects are all objects of a small table, decoded once for each version.
package state

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/raftstore/mvcc"
	"github.com/quorate/quorate/raftstore/view"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// State is this node's state, as far as it is what plugins decide by. Safe for concurrent use.
type State struct{ store view.Store }

// New returns the state of a store.
func New(store view.Store) *State { return &State{store} }

// Version returns the newest version of a built-in object, nil if there is none. Its labels
// can be read without decoding it. namespace is empty for cluster-scoped resources.
func (s *State) Version(gr schema.GroupResource, namespace, name string) *mvcc.Version {
	key := name
	if namespace != "" {
		key = namespace + "/" + name
	}
	table := kinds.BuiltinTable(gr)
	for {
		state := s.store.State()
		t := state.Table(table)
		if t == nil {
			return nil
		}
		v, err := t.Get(key, state.Applied())
		if errors.Is(err, mvcc.ErrCompacted) {
			continue // the floor has passed an index that was current a moment ago
		}
		return v
	}
}

// In returns the newest versions of a namespace's objects, in the order of their names.
func (s *State) In(gr schema.GroupResource, namespace string) []*mvcc.Version {
	table := kinds.BuiltinTable(gr)
	for {
		state := s.store.State()
		t := state.Table(table)
		if t == nil {
			return nil
		}
		page, err := t.Range(mvcc.Query{Prefix: namespace + "/", At: state.Applied()})
		if errors.Is(err, mvcc.ErrCompacted) {
			continue
		}
		return page.Versions
	}
}

// Get decodes a built-in object, nil if there is none. T is its type of k8s.io/api in the
// version in which it is stored. Errors: it cannot be decoded.
func Get[T any](s *State, gr schema.GroupResource, namespace, name string) (*T, error) {
	v := s.Version(gr, namespace, name)
	if v == nil {
		return nil, nil
	}
	return decode[T](gr, v)
}

// In decodes the built-in objects of a namespace whose versions match. T is as for Get. Errors: one
// of them cannot be decoded.
func In[T any](s *State, gr schema.GroupResource, namespace string, match func(*mvcc.Version) bool) ([]*T, error) {
	versions := s.versions(kinds.BuiltinTable(gr), mvcc.Query{Prefix: namespace + "/", Match: match})
	out := make([]*T, len(versions))
	for i, v := range versions {
		var err error
		if out[i], err = decode[T](gr, v); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// versions are those of a table that a query selects, as of now.
func (s *State) versions(table string, q mvcc.Query) []*mvcc.Version {
	for {
		state := s.store.State()
		t := state.Table(table)
		if t == nil {
			return nil
		}
		q.At = state.Applied()
		page, err := t.Range(q)
		if errors.Is(err, mvcc.ErrCompacted) {
			continue // the floor has passed an index that was current a moment ago
		}
		return page.Versions
	}
}

// Usage returns what is used of the limits that a built-in object sets, bound by bound in the
// order in which its version names them; nil if it sets none.
func (s *State) Usage(gr schema.GroupResource, namespace, name string) []mvcc.BoundUse {
	used, _ := s.store.State().Usage(kinds.BuiltinTable(gr), namespace+"/"+name)
	return used
}

func decode[T any](gr schema.GroupResource, v *mvcc.Version) (*T, error) {
	obj := new(T)
	if err := json.Unmarshal(v.Value(), obj); err != nil {
		return nil, fmt.Errorf("decode %s %s: %w", gr, v.Key, err)
	}
	return obj, nil
}
