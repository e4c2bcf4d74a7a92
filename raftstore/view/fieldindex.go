package view

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	"github.com/tidwall/btree"
)

// FieldIndex finds the objects of one table by the value of one field: the Pods of a
// node. It is no copy that lags: as a View, it is brought up to what the state shows by who asks,
// from what has changed since somebody asked last, and costs nothing while nobody does. It is
// safe for concurrent use.
//
// It is no View because it may not be asked for days: it must keep neither a state alive that a
// snapshot has replaced, nor versions that nobody can read any more. It has keys, and for each
// value one string.
type FieldIndex struct {
	store        Store
	table, field string
	value        func(*mvcc.Version) (string, bool)

	now atomic.Pointer[fieldKeys]
	mu  sync.Mutex // of the one that renews
	own *fieldTree // what now has, to be changed; nil before the first reading; of the one that renews
}

// fieldKeys is what a table had at a revision. It does not change.
type fieldKeys struct {
	state weak.Pointer[mvcc.State]
	at    proto.Revision
	tree  *fieldTree
}

// fieldKey is a live key and the value of the field, "" if it has none.
type fieldKey struct{ value, key string }

type fieldTree = btree.BTreeG[fieldKey]

func newFieldTree() *fieldTree {
	return btree.NewBTreeGOptions(func(a, b fieldKey) bool {
		if c := strings.Compare(a.value, b.value); c != 0 {
			return c < 0
		}
		return a.key < b.key
	}, btree.Options{NoLocks: true})
}

// NewFieldIndex returns the index of a table by a field. It starts nothing.
func NewFieldIndex(store Store, table, field string) *FieldIndex {
	return &FieldIndex{store: store, table: table, field: field, value: func(v *mvcc.Version) (string, bool) {
		value, _ := v.Fields.Get(field)
		return value, true
	}}
}

// NewIndex returns the index of a table by what follows from a version and from nothing else. Those
// for which value returns false cannot be found.
func NewIndex(store Store, table string, value func(*mvcc.Version) (string, bool)) *FieldIndex {
	return &FieldIndex{store: store, table: table, value: value}
}

// Field is the name of the field; "" of an index of something else.
func (x *FieldIndex) Field() string { return x.field }

// Range is mvcc.Table.Range for the objects whose field has a value, of what the state shows now:
// q.At does not count. It returns the revision that the page is of, at which it is exact. Unlike
// Table.Range it looks whether a key behind the page matches: More says that one does,
// and Next is its key. Remaining is -1.
func (x *FieldIndex) Range(value string, q mvcc.Query) (mvcc.Page, proto.Revision) {
	for {
		// First the mark, then the table, then the keys: these are of the mark, or of a later
		// one, or nothing has changed between theirs and the mark.
		state := x.store.State()
		at := state.Applied()
		t := state.Table(x.table)
		if t == nil {
			if state.Floor() > at {
				continue
			}
			return mvcc.Page{Remaining: -1}, at
		}
		keys, err := x.keys(state, t)
		if err == nil {
			at = max(at, keys.at)
			var page mvcc.Page
			if page, err = keys.read(t, value, q, at); err == nil {
				return page, at
			}
		}
		// The floor has passed what was the newest revision a moment ago.
	}
}

// read gets the versions of the keys that have a value.
func (k *fieldKeys) read(t *mvcc.Table, value string, q mvcc.Query, at proto.Revision) (page mvcc.Page, err error) {
	page.Remaining = -1
	k.tree.Ascend(fieldKey{value, max(q.From, q.Prefix)}, func(e fieldKey) bool {
		if e.value != value || !strings.HasPrefix(e.key, q.Prefix) {
			return false
		}
		var v *mvcc.Version
		switch v, err = t.Get(e.key, at); {
		case err != nil:
			return false
		case v == nil || q.Match != nil && !q.Match(v):
		case q.Limit > 0 && len(page.Versions) == q.Limit:
			page.More, page.Next = true, e.key
			return false
		default:
			page.Versions = append(page.Versions, v)
		}
		return true
	})
	return page, err
}

// current reports whether keys have all that is visible in a table.
func (k *fieldKeys) current(state *mvcc.State, t *mvcc.Table) bool {
	// A table grows before that is visible.
	return k != nil && k.state.Value() == state && (t.Latest() <= k.at || state.Applied() <= k.at)
}

// keys returns those of what is visible in a state. The error is mvcc.ErrCompacted.
func (x *FieldIndex) keys(state *mvcc.State, t *mvcc.Table) (*fieldKeys, error) {
	if k := x.now.Load(); k.current(state, t) {
		return k, nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	was := x.now.Load()
	if was.current(state, t) {
		return was, nil
	}
	k := &fieldKeys{state: weak.Make(state), at: state.Applied()}
	err := errStartOver
	if x.own != nil && was.state == k.state {
		err = x.follow(t, was.at, k.at)
	}
	if err != nil {
		x.own = nil // whatever it has by now
		if err = x.readAll(t, k.at); err != nil {
			return nil, err
		}
	}
	k.tree = x.own.Copy()
	x.now.Store(k)
	return k, nil
}

// errStartOver says that it is cheaper to read the table as a whole.
var errStartOver = errors.New("too many changes")

// follow has the tree follow the table's history. On an error it must be read again.
func (x *FieldIndex) follow(t *mvcc.Table, from, to proto.Revision) error {
	changes, err := t.Watch(from)
	if err != nil {
		return err
	}
	live, _ := t.Live()
	var buf [64]*mvcc.Version
	for left := live + int64(len(buf)); left > 0; left -= int64(len(buf)) {
		n, err := changes.Next(buf[:], to)
		if err != nil {
			return err
		}
		for _, v := range buf[:n] {
			if err := x.change(v); err != nil {
				return err
			}
		}
		if n < len(buf) {
			return nil
		}
	}
	return errStartOver
}

// change puts one version in the place of the one before it.
func (x *FieldIndex) change(v *mvcc.Version) error {
	is, has := x.value(v)
	has = has && !v.Deleted
	if !v.Created() {
		before := v.Prev()
		if before == nil { // the floor has passed
			return mvcc.ErrCompacted
		}
		was, had := x.value(before)
		if was == is && had == has {
			return nil
		}
		if had {
			x.own.Delete(fieldKey{was, v.Key})
		}
	}
	if has {
		x.own.Set(fieldKey{x.intern(is), v.Key})
	}
	return nil
}

// intern returns the string that the tree has of a value, or a new one: what a version has is a
// part of a longer one.
func (x *FieldIndex) intern(value string) string {
	interned := ""
	x.own.Ascend(fieldKey{value: value}, func(e fieldKey) bool {
		if e.value == value {
			interned = e.value
		}
		return false
	})
	if interned == "" {
		interned = strings.Clone(value)
	}
	return interned
}

// readAll makes the tree of the whole table.
func (x *FieldIndex) readAll(t *mvcc.Table, at proto.Revision) error {
	page, err := t.Range(mvcc.Query{At: at})
	if err != nil {
		return err
	}
	defer page.Release()
	keys := map[string]*[]string{}
	for _, v := range page.Versions {
		value, has := x.value(v)
		if !has {
			continue
		}
		of := keys[value]
		if of == nil {
			of = new([]string)
			keys[strings.Clone(value)] = of
		}
		*of = append(*of, v.Key)
	}
	x.own = newFieldTree()
	for _, value := range slices.Sorted(maps.Keys(keys)) {
		for _, key := range *keys[value] {
			x.own.Load(fieldKey{value, key})
		}
	}
	return nil
}
