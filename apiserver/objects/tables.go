package objects

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/quorate/quorate/apiserver/types/kinds"
)

// tables are the resources by the table that they are stored in. Of several
// versions of a resource, one whose form is the stored one.
type tables struct {
	Registry *kinds.Registry
	ByName   map[string]*kinds.Resource
	Names    []string // sorted
}

// Tables returns the tables of the registry that is served now. It is made again
// when the registry is another one.
func (s *Store) Tables() *tables {
	registry := s.Kinds()
	if t := s.tablesOf.Load(); t != nil && t.Registry == registry {
		return t
	}
	t := &tables{Registry: registry, ByName: map[string]*kinds.Resource{}}
	for _, res := range registry.All() {
		if res.Virtual {
			continue
		}
		if other := t.ByName[res.Table()]; other == nil || other.StorageVersion != "" && res.StorageVersion == "" {
			t.ByName[res.Table()] = res
		}
	}
	t.Names = slices.Sorted(maps.Keys(t.ByName))
	s.tablesOf.Store(t)
	return t
}

// SplitKey takes a table's key apart. res may be nil: its kind is not served any more.
func SplitKey(res *kinds.Resource, key string) (namespace, name string) {
	if res != nil && !res.Namespaced {
		return "", key
	}
	namespace, name, ok := strings.Cut(key, "/")
	if !ok {
		return "", key
	}
	return namespace, name
}

// errNotServed is the refusal to change objects of a kind that is not served.
var errNotServed = errors.New("the kind is not served any more")

// SystemAt is system for the object at a key.
func (s *Store) SystemAt(ctx context.Context, table, key, verb string) (*Op, error) {
	res := s.Tables().ByName[table]
	if res == nil {
		return nil, errNotServed
	}
	namespace, name := SplitKey(res, key)
	return s.System(ctx, res, namespace, name, verb), nil
}
