package objects

import (
	"context"
	"errors"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/wire/codec"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/quorate/quorate/apiserver/objects/storage"
	"github.com/quorate/quorate/consistency"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// Current returns the newest local version of a key of a resource, or nil.
func (s *Store) Current(table, key string) (*mvcc.Version, error) {
	return storage.Current(s.Storage, table, key)
}

// Confirm makes sure that the local state includes everything that was
// acknowledged before now.
func (s *Store) Confirm(ctx context.Context) error {
	_, err := s.Reads.Await(ctx, consistency.Plan{Mode: consistency.MostRecent})
	return err
}

// Find reads one key, scan a range of a table, at the plan's revision or at the
// newest one that this node has. at is what Await returned. They return the
// revision that was read. Errors: mvcc.ErrCompacted, for an exact plan alone.
func (s *Store) Find(table, key string, plan consistency.Plan, at proto.Revision) (v *mvcc.Version, _ proto.Revision, _ error) {
	for {
		t, at, err := s.tableAt(table, plan, at)
		if t != nil {
			v, err = t.Get(key, at)
		}
		if !s.overtaken(err, plan, at) {
			return v, at, err
		}
	}
}

func (s *Store) Scan(table string, plan consistency.Plan, at proto.Revision, q mvcc.Query) (mvcc.Page, proto.Revision, error) {
	for {
		t, at, err := s.tableAt(table, plan, at)
		page := mvcc.Page{Remaining: -1}
		if t != nil {
			q.At = at
			page, err = t.Range(q)
		}
		if !s.overtaken(err, plan, at) {
			return page, at, err
		}
	}
}

// tableAt returns a table and the revision to read it at. The table is nil if
// nothing was ever written to it: then there is nothing, at any revision that is
// not forgotten.
func (s *Store) tableAt(table string, plan consistency.Plan, at proto.Revision) (*mvcc.Table, proto.Revision, error) {
	state := s.Storage.State()
	if plan.Mode != consistency.Exact {
		at = state.Applied()
	}
	t := state.Table(table)
	if t == nil && state.Floor() > at {
		return nil, at, mvcc.ErrCompacted
	}
	return t, at, nil
}

// overtaken reports whether the read is to be done again: the floor has passed what was the newest revision a
// moment ago, or the table was dropped meanwhile, so that the error says nothing about the revision.
func (s *Store) overtaken(err error, plan consistency.Plan, at proto.Revision) bool {
	return errors.Is(err, mvcc.ErrCompacted) && (plan.Mode != consistency.Exact || s.Storage.State().Floor() <= at)
}

// Range returns the live versions of a table below a prefix.
func (s *Store) Range(table, prefix string) ([]*mvcc.Version, error) {
	return s.Match(table, mvcc.Query{Prefix: prefix})
}

// Match returns the live versions of a table that a query selects.
func (s *Store) Match(table string, q mvcc.Query) ([]*mvcc.Version, error) {
	page, _, err := s.Scan(table, consistency.Plan{Mode: consistency.Any}, 0, q)
	return page.Versions, err
}

// Newest returns the newest version of a key, which is asked of a quorum, or nil.
func (r *Request) Newest(table, key string) (*mvcc.Version, error) {
	if err := r.Store.Confirm(r.Context); err != nil {
		return nil, err
	}
	return r.Store.Current(table, key)
}

// Typed reads a stored version into a type of k8s.io/api.
func Typed(res *kinds.Resource, v *mvcc.Version, into any) error {
	obj, err := codec.DecodeStored(res, v)
	if err != nil {
		return err
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(obj, into)
}
