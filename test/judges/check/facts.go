package check

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/test/judges/history"
)

// never is a revision beyond all others.
const never = ^uint64(0)

// version is an entry of the log in its place.
type version struct {
	rev     uint64
	key     string
	value   string // of a deletion: the value that it deleted
	deleted bool
	// live reports whether the key had an object before; unsure that nobody knows:
	// that version is below LogFrom.
	live, unsure bool
	prev         string // the value before, if live and known
	next         uint64 // revision of the key's next version, or never
	writer       int    // index of the operation that wrote it, or -1
}

// facts is a history made fast to ask: the log by revision and by key, what each
// write came to, and what was seen when.
type facts struct {
	h *history.History
	// complete: the log was given; otherwise it is put together from what clients
	// saw, and lacks what nobody saw.
	complete bool
	log      []version // by revision
	keys     map[string][]int32
	base     map[string]history.Item // objects from before LogFrom that were seen
	names    []string                // all keys, sorted

	rev  []uint64 // of each operation: the revision that it wrote, 0 if none
	done []bool   // it is a write that is known to have happened

	restarts map[string][]window
	floor    uint64 // the highest floor of any node; only with floors
	floors   bool

	seen       []seen // what was observed, by time, with rising revisions
	selections map[filter]*selection
	counts     []int   // objects before each position of the log
	later      []later // writes by call, with the least revision of those called later
}

type window struct{ begin, end time.Duration }

func newFacts(h *history.History) *facts {
	f := &facts{
		h: h, complete: len(h.Log) > 0,
		keys: map[string][]int32{}, base: map[string]history.Item{},
		rev: make([]uint64, len(h.Ops)), done: make([]bool, len(h.Ops)),
		restarts: map[string][]window{},
	}
	for i := range h.Faults {
		x := &h.Faults[i]
		if x.Restarts() {
			for _, n := range x.Nodes {
				f.restarts[n] = append(f.restarts[n], window{x.Begin, x.End})
			}
		}
	}
	for _, s := range h.States {
		f.floors = true
		f.floor = max(f.floor, s.Floor)
	}
	return f
}

// load indexes the log. The entries must be in order.
func (f *facts) load(log []history.Entry) {
	f.log = make([]version, 0, len(log))
	for _, e := range log {
		f.log = append(f.log, version{rev: e.Revision, key: e.Key, value: e.Value, deleted: e.Deleted, next: never, writer: -1})
		f.keys[e.Key] = append(f.keys[e.Key], int32(len(f.log)-1))
	}
	for key, versions := range f.keys {
		var before *version
		for _, i := range versions {
			v := &f.log[i]
			switch {
			case before != nil:
				before.next = v.rev
				v.live, v.prev = !before.deleted, before.value
			default:
				b, ok := f.base[key]
				v.live, v.prev = ok, b.Value
			}
			if v.deleted && v.live {
				v.value = v.prev
			}
			before = v
		}
	}
	f.name()
}

func (f *facts) name() {
	f.names = f.names[:0]
	for key := range f.keys {
		f.names = append(f.names, key)
	}
	for key := range f.base {
		if _, ok := f.keys[key]; !ok {
			f.names = append(f.names, key)
		}
	}
	slices.Sort(f.names)
}

// at returns the version that was written at a revision, or nil.
func (f *facts) at(rev uint64) *version {
	i, ok := slices.BinarySearchFunc(f.log, rev, func(v version, rev uint64) int { return cmp.Compare(v.rev, rev) })
	if !ok {
		return nil
	}
	return &f.log[i]
}

// after returns the position of the first version above a revision.
func (f *facts) after(rev uint64) int {
	i, _ := slices.BinarySearchFunc(f.log, rev, func(v version, rev uint64) int {
		if v.rev <= rev {
			return -1
		}
		return 1
	})
	return i
}

// present is what a key was at a revision.
type present struct {
	rev   uint64 // of the version; 0 if there never was one
	value string
	live  bool
	until uint64 // revision of the next version, or never
}

// state returns what key was at a revision.
func (f *facts) state(key string, rev uint64) present {
	versions := f.keys[key]
	i, _ := slices.BinarySearchFunc(versions, rev, func(at int32, rev uint64) int {
		if f.log[at].rev <= rev {
			return -1
		}
		return 1
	})
	if i > 0 {
		v := &f.log[versions[i-1]]
		return present{v.rev, v.value, !v.deleted, v.next}
	}
	until := never
	if len(versions) > 0 {
		until = f.log[versions[0]].rev
	}
	if b, ok := f.base[key]; ok {
		return present{b.Revision, b.Value, true, until}
	}
	return present{until: until}
}

// shown returns the state in which an item was current, or false if it never was.
func (f *facts) shown(it history.Item) (present, bool) {
	p := f.state(it.Key, it.Revision)
	if p.live && p.rev == it.Revision && p.value == it.Value {
		return p, true
	}
	return p, false
}

// snapshot returns the objects at a revision whose keys begin with prefix, are
// greater than after, and whose values contain selector; at most limit of them (0: all).
func (f *facts) snapshot(rev uint64, prefix, after, selector string, limit int) (items []history.Item, more bool) {
	i, _ := slices.BinarySearch(f.names, max(prefix, after))
	for ; i < len(f.names); i++ {
		key := f.names[i]
		if !strings.HasPrefix(key, prefix) {
			if key > prefix {
				break
			}
			continue
		}
		if after != "" && key <= after {
			continue
		}
		p := f.state(key, rev)
		if !p.live || !strings.Contains(p.value, selector) {
			continue
		}
		if limit > 0 && len(items) == limit {
			return items, true
		}
		items = append(items, history.Item{Key: key, Value: p.value, Revision: p.rev})
	}
	return items, false
}

// restarted reports whether a node may have been another process at some time in
// the window.
func (f *facts) restarted(node string, begin, end time.Duration) bool {
	for _, w := range f.restarts[node] {
		if w.begin <= end && begin <= w.end {
			return true
		}
	}
	return false
}

func isWrite(k history.Kind) bool {
	switch k {
	case history.Create, history.Update, history.UpdateIf, history.Delete, history.DeleteIf:
		return true
	}
	return false
}

func isDelete(k history.Kind) bool { return k == history.Delete || k == history.DeleteIf }

func conditional(k history.Kind) bool { return k == history.UpdateIf || k == history.DeleteIf }

// fresh reports whether a read must be linearizable.
func fresh(o *history.Op) bool { return !isWrite(o.Kind) && o.Mode == history.MostRecent }
