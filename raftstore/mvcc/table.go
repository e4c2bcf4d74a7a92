package mvcc

import (
	"math"
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

	// keys and dead belong to the writer; shown are the copies that readers use.
	// Copying is O(1), the trees are copy-on-write.
	keys      *tree
	dead      *tree          // the items of keys whose newest version is a tombstone
	hint      btree.PathHint // where in keys the writer was last
	shown     atomic.Pointer[shown]
	keysDirty bool // keys has changed since it was copied
	deadDirty bool // dead has changed since it was copied
	touched   bool // the table is in State.touched
	rule      bool // it is one of proto.Rules

	hist history

	// gone says that the state has dropped the table. There may be another one of its name.
	gone atomic.Bool

	live      atomic.Int64
	liveBytes atomic.Int64
	latest    atomic.Uint64 // newest Revision in the table

	// Of the goroutine that packs: the latest used first, and how many values in a row fitted none.
	templates []*template
	misses    int
}

// shown is a table's keys as of one revision: what lists walk and count.
type shown struct {
	keys *tree
	// dead are the items of keys that are not live as of at. What their newest version
	// is now may be another matter.
	dead *tree
	at   proto.Revision
}

func newTable(s *State, name string) *Table {
	t := &Table{name: name, state: s, keys: newTree(), dead: newTree()}
	t.shown.Store(&shown{keys: t.keys.Copy(), dead: t.dead.Copy()})
	return t
}

// Name returns the table's name.
func (t *Table) Name() string { return t.name }

// Live returns how many keys have a live newest version, and the bytes that these count for in the storage limit.
func (t *Table) Live() (keys, bytes int64) { return t.live.Load(), t.liveBytes.Load() }

// Latest is the revision of the newest change in this table. Of one that was dropped it is above all
// others, so that who compares it with what he has read looks for the table again.
func (t *Table) Latest() proto.Revision {
	if t.gone.Load() {
		return math.MaxUint64
	}
	return proto.Revision(t.latest.Load())
}

// forgot reports whether a read as of a revision that has just ended may lack something: the floor has
// passed it, or the table was dropped, and another one may have what came since.
func (t *Table) forgot(at proto.Revision) bool { return t.state.Floor() > at || t.gone.Load() }

// Get returns the live version of key as of revision at, or nil if there is
// none. Errors: ErrCompacted, ErrFuture.
func (t *Table) Get(key string, at proto.Revision) (*Version, error) {
	if at > t.state.Applied() {
		return nil, ErrFuture
	}
	var v *Version
	probe := probes.Get().(*item)
	probe.key = key
	if it, ok := t.shown.Load().keys.Get(probe); ok {
		v = it.newest.Load().at(at)
	}
	probe.key = ""
	probes.Put(probe)
	if t.forgot(at) {
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
	it, ok := t.shown.Load().keys.Get(&item{key: key})
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
	if t.forgot(after) {
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
		t.keysDirty = true
	} else {
		old = it.newest.Load()
		v.prev.Store(old)
		if old.Deleted {
			t.dead.Delete(it)
			t.deadDirty = true
		}
		it.newest.Store(v)
	}
	if v.Deleted {
		t.dead.Set(it)
		t.deadDirty = true
	}
	t.state.space.move(t, old, v)
	t.latest.Store(uint64(v.Revision))
	t.state.wait(t, old, v)
}

// publish shows the writer's keys to readers. Writer only.
func (t *Table) publish() {
	next := *t.shown.Load()
	next.at = proto.Revision(t.latest.Load())
	if t.keysDirty {
		next.keys = t.keys.Copy()
	}
	if t.deadDirty {
		next.dead = t.dead.Copy()
	}
	t.shown.Store(&next)
	t.keysDirty, t.deadDirty, t.touched = false, false, false
}
