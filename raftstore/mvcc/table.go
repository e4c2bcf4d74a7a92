package mvcc

import (
	"sort"
	"strings"
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
	root    atomic.Pointer[tree]
	dirty   bool // keys has changed since root was copied
	touched bool // the table is in State.touched

	hist history

	live      atomic.Int64
	liveBytes atomic.Int64
	latest    atomic.Uint64 // newest Revision in the table
	// tombstones counts the keys whose newest version is one.
	tombstones atomic.Int64
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
	if it, ok := t.root.Load().Get(&item{key: key}); ok {
		v = it.newest.Load().at(at)
	}
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

// Query selects a range of keys at one revision.
type Query struct {
	// Prefix that keys must have; empty for all.
	Prefix string
	// From is the first key, inclusive; empty for the first with the prefix.
	From string
	// At is the revision to read as of.
	At proto.Revision
	// Limit bounds the number of versions; zero means no bound.
	Limit int
	// Match, if set, drops versions. It must be pure and fast.
	Match func(*Version) bool
}

// Page is the answer to a Query.
type Page struct {
	Versions []*Version
	// More is set when the limit cut the range before its last live key; Next is
	// then the key to go on from. Whether a key behind the page matches is not
	// looked for, so that a full page costs no walk to the next match or the end.
	More bool
	Next string
	// Remaining counts the live keys after the page. Only with Limit and
	// without Match; else -1.
	Remaining int64
}

// Range returns live versions in key order as of q.At. Errors: ErrCompacted,
// ErrFuture. It holds no lock, and what it returns does not change.
func (t *Table) Range(q Query) (Page, error) {
	if q.At > t.state.Applied() {
		return Page{}, ErrFuture
	}
	page := Page{Remaining: -1}
	if q.Limit > 0 && q.Match == nil {
		page.Remaining = 0
	}
	from := max(q.From, q.Prefix)
	root := t.root.Load()
	if q.Limit > 0 {
		page.Versions = make([]*Version, 0, min(q.Limit, root.Len()))
	}
	root.Ascend(&item{key: from}, func(it *item) bool {
		if !strings.HasPrefix(it.key, q.Prefix) {
			return false
		}
		v := it.newest.Load().at(q.At)
		if v == nil || v.Deleted {
			return true
		}
		full := q.Limit > 0 && len(page.Versions) == q.Limit
		if !full && q.Match != nil && !q.Match(v) {
			return true
		}
		if full {
			if !page.More {
				page.More, page.Next = true, it.key
				if page.Remaining == 0 {
					counted, ok := t.countAllLive(root, it.key, q)
					if ok {
						page.Remaining = counted
						return false
					}
				}
			}
			if page.Remaining < 0 {
				return false
			}
			page.Remaining++
			return true
		}
		if len(page.Versions) == manyVersions && q.Limit == 0 && q.Match == nil {
			page.Versions = grow(page.Versions, end(root, q.Prefix)-rank(root, it.key))
		}
		page.Versions = append(page.Versions, v)
		return true
	})
	if t.state.Floor() > q.At {
		return Page{}, ErrCompacted
	}
	return page, nil
}

// countAllLive counts the keys of the query's range from a key on, from their
// places in the tree, without looking at each. ok is false when some of them may
// not be live at q.At, and only a walk can tell.
func (t *Table) countAllLive(root *tree, from string, q Query) (n int64, ok bool) {
	n = int64(end(root, q.Prefix) - rank(root, from))
	// No tombstone and no change above q.At: then every key is live at q.At, as
	// long as these are still the keys that were counted.
	if t.tombstones.Load() != 0 || t.Latest() > q.At || t.root.Load() != root {
		return 0, false
	}
	return n, true
}

// end returns the rank of the first key behind those with a prefix.
func end(root *tree, prefix string) int {
	if prefix == "" {
		return root.Len()
	}
	last := len(prefix) - 1 // keys are never all 0xff
	return rank(root, prefix[:last]+string(prefix[last]+1))
}

// rank returns how many keys are below key.
func rank(root *tree, key string) int {
	return sort.Search(root.Len(), func(i int) bool {
		it, ok := root.GetAt(i)
		return !ok || it.key >= key
	})
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
	it, ok := t.keys.Get(&item{key: key})
	if !ok {
		return nil, nil
	}
	return it, it.newest.Load()
}

// link makes v the newest version of its key. Writer only.
func (t *Table) link(it *item, v *Version) {
	if it == nil {
		it = &item{key: v.Key}
		it.newest.Store(v)
		t.keys.Set(it)
		t.dirty = true
	} else {
		old := it.newest.Load()
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
}

// publish shows the writer's keys to readers. Writer only.
func (t *Table) publish() {
	if t.dirty {
		t.root.Store(t.keys.Copy())
		t.dirty = false
	}
	t.touched = false
}
