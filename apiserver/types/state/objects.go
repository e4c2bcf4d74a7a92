package state

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/raftstore/mvcc"
	"github.com/quorate/quorate/raftstore/view"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Objects are the built-in objects of one resource, decoded. It is for tables that are small:
// all of it is in memory, and a change costs a walk over all keys. Objects that have not
// changed are the same pointers as before. Safe for concurrent use; asking takes no lock.
type Objects[T any] struct {
	gr   schema.GroupResource
	view *view.View[*set[T]]
}

// set is a table at one moment.
type set[T any] struct {
	sorted      []entry[T] // by key
	byKey       map[string]*T
	byNamespace map[string][]*T
	all         []*T
	unreadable  []unreadable
}

// unreadable is an object that cannot be decoded.
type unreadable struct {
	key string
	err error
}

type entry[T any] struct {
	key     string
	version *mvcc.Version
	object  *T
}

// All returns the objects of a resource. T is their type of k8s.io/api in the version in which
// they are stored. An object that cannot be decoded is left out, log is told of it, and Unreadable.
func All[T any](s *State, gr schema.GroupResource, log *slog.Logger) *Objects[T] {
	names := []string{kinds.BuiltinTable(gr)}
	return &Objects[T]{gr, view.New(s.store, names, func(now view.Reading, before *set[T]) (*set[T], error) {
		return next(gr, now, before, log)
	})}
}

// next is the set of a reading. What has not changed is taken over. Errors: mvcc.ErrCompacted.
func next[T any](gr schema.GroupResource, now view.Reading, before *set[T], log *slog.Logger) (*set[T], error) {
	made := &set[T]{byKey: map[string]*T{}, byNamespace: map[string][]*T{}}
	if now.Tables[0] == nil {
		return made, nil
	}
	page, err := now.Tables[0].Range(mvcc.Query{At: now.At})
	if err != nil {
		return nil, err
	}
	var had []entry[T]
	if before != nil {
		had = before.sorted
	}
	for _, v := range page.Versions {
		for len(had) > 0 && had[0].key < v.Key {
			had = had[1:]
		}
		var obj *T
		if len(had) > 0 && had[0].version == v {
			obj = had[0].object
		} else if obj, err = decode[T](gr, v); err != nil {
			log.Warn("an object that admission goes by cannot be read", "resource", gr.String(), "key", v.Key, "err", err)
			made.unreadable = append(made.unreadable, unreadable{v.Key, err})
			continue
		}
		made.add(v, obj)
	}
	return made, nil
}

func (s *set[T]) add(v *mvcc.Version, obj *T) {
	s.sorted = append(s.sorted, entry[T]{v.Key, v, obj})
	s.byKey[v.Key] = obj
	s.all = append(s.all, obj)
	if namespace, _, ok := strings.Cut(v.Key, "/"); ok {
		s.byNamespace[namespace] = append(s.byNamespace[namespace], obj)
	}
}

// Get returns an object, nil if there is none. It is shared and not to be changed.
func (o *Objects[T]) Get(namespace, name string) *T {
	if namespace != "" {
		name = namespace + "/" + name
	}
	return o.view.Get().byKey[name]
}

// In returns the objects of a namespace in the order of their names. The slice and the objects
// are shared and not to be changed.
func (o *Objects[T]) In(namespace string) []*T { return o.view.Get().byNamespace[namespace] }

// List returns all objects in the order of their keys. As long as none has changed it is the
// same slice. It and the objects are shared and not to be changed.
func (o *Objects[T]) List() []*T { return o.view.Get().all }

// Unreadable is the refusal of a write that may be about an object which cannot be decoded: what
// it asks for is not known. nil: there is none, but those that are to be passed over. pass may be nil.
func (o *Objects[T]) Unreadable(pass func(name string) bool) error {
	for _, x := range o.view.Get().unreadable {
		if pass == nil || !pass(x.key) {
			return apierrors.NewInternalError(fmt.Errorf("admission does not know what %s/%s asks for, which cannot be read: replace or delete it: %w", o.gr, x.key, x.err))
		}
	}
	return nil
}
