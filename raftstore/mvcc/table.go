package mvcc

import (
	"sync"
	"sync/atomic"

	"github.com/quorate/quorate/proto"
	"github.com/tidwall/btree"
)

// item is a key's place in the tree. It stays the same while the key has
// versions, so that an update touches no tree.
type item struct {
	key    string
	newest atomic.Pointer[Version]
}

// probes are items to look others up by: what is given to the tree escapes.
var probes = sync.Pool{New: func() any { return new(item) }}

type tree = btree.BTreeG[*item]

func newTree() *tree {
	return btree.NewBTreeGOptions(func(a, b *item) bool { return a.key < b.key }, btree.Options{NoLocks: true})
}

// Table is the keys of one resource and their history.
type Table struct {
	name  string
	state *State

	// keys belongs to the writer; root is the copy that readers use. Copying is
	// O(1), the tree is copy-on-write.
	keys    *tree
	hint    btree.PathHint // where in keys the writer was last
	root    atomic.Pointer[tree]
	dirty   bool // keys has changed since root was copied
	touched bool // the table is in State.touched
	rule    bool // it is one of proto.Rules

	hist history

	live      atomic.Int64
	liveBytes atomic.Int64
	latest    atomic.Uint64 // newest Revision in the table
	// tombstones counts the keys whose newest version is one.
	tombstones atomic.Int64

	// Of the goroutine that packs: the latest used first, and how many values in a row fitted none.
	templates []*template
	misses    int
}

// Name returns the table's name.
func (t *Table) Name() string { return t.name }

// Live returns how many keys have a live newest version, and their size in bytes.
func (t *Table) Live() (keys, bytes int64) { return t.live.Load(), t.liveBytes.Load() }

// Latest is the revision of the newest change in this table.
func (t *Table) Latest() proto.Revision { return proto.Revision(t.latest.Load()) }

// Get returns the live version of key as of revision at, or nil if there is
// none. Errors: ErrCompacted, ErrFuture.
func (t *Table) Get(key string, at proto.Revision) (*Version, error) {
	if at > t.state.Applied() {
		return nil, ErrFuture
	}
	var v *Version
	probe := probes.Get().(*item)
	probe.key = key
	if it, ok := t.root.Load().Get(probe); ok {
		v = it.newest.Load().at(at)
	}
	probe.key = ""
	probes.Put(probe)
	if t.state.Floor() > at {
		return nil, ErrCompacted
	}
	if v != nil && v.Deleted {
		v = nil
	}
	return v, nil
}

// Version returns the version of key that was written at exactly rev, a
// tombstone included, or nil if there is none or the floor has passed it.
func (t *Table) Version(key string, rev proto.Revision) *Version {
	it, ok := t.root.Load().Get(&item{key: key})
	if !ok {
		return nil
	}
	if v := it.newest.Load().at(rev); v != nil && v.Revision == rev {
		return v
	}
	return nil
}

// Watch returns a cursor behind revision after. It returns ErrCompacted when
// after is below the floor. A revision that is not applied yet is no error: the
// cursor returns nothing until the state is past it.
func (t *Table) Watch(after proto.Revision) (*Cursor, error) {
	if t.state.Floor() > after {
		return nil, ErrCompacted
	}
	return &Cursor{table: t, after: after}, nil
}

// newest returns the newest version of key, tombstones included. Writer only.
func (t *Table) newest(key string) (*item, *Version) {
	probe := probes.Get().(*item)
	probe.key = key
	it, ok := t.keys.GetHint(probe, &t.hint)
	probe.key = ""
	probes.Put(probe)
	if !ok {
		return nil, nil
	}
	return it, it.newest.Load()
}

// link makes v the newest version of its key. Writer only.
func (t *Table) link(it *item, v *Version) {
	var old *Version
	if it == nil {
		it = &item{key: v.Key}
		it.newest.Store(v)
		t.keys.SetHint(it, &t.hint)
		t.dirty = true
	} else {
		old = it.newest.Load()
		v.prev.Store(old)
		if old.Deleted {
			t.tombstones.Add(-1)
		} else {
			t.live.Add(-1)
			t.liveBytes.Add(-old.Size())
		}
		it.newest.Store(v)
	}
	if v.Deleted {
		t.tombstones.Add(1)
	} else {
		t.live.Add(1)
		t.liveBytes.Add(v.Size())
	}
	t.latest.Store(uint64(v.Revision))
	t.state.wait(t, old, v)
}

// publish shows the writer's keys to readers. Writer only.
func (t *Table) publish() {
	if t.dirty {
		t.root.Store(t.keys.Copy())
		t.dirty = false
	}
	t.touched = false
}
