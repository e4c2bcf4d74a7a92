package mvcc

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/quorate/quorate/proto"
)

// The ledger keeps, for each namespace, what its keys use: the sum over the newest live
// versions in all tables, by facts (totals.go); and for each limit what is used of each of
// its bounds. Both follow from the versions and from nothing else: a version gives back what
// the one before it used, and what is used of new limits is added up from the totals, without
// a walk over the namespace. So a sum is at every index what a recount would find.
//
// A write looks only at the bounds of what it uses, however many others there are.
//
// Nothing here knows what is counted. Who writes says what an object uses; see
// proto.Usage and proto.Limit.

// ledger is of the writer, but for shown.
type ledger struct {
	of      map[string]*account // by namespace: those with keys
	limited int                 // how many of them have limits
	changed []*account          // to be shown by the next Publish
	loading bool                // limits are not counted before Publish
	// shown has what readers see of each account.
	shown sync.Map // namespace to *account
}

// account is a namespace.
type account struct {
	namespace string
	totals
	limits []*counted // in the order of tables, keys and places in the version
	// byAmount and byTable have the bounds of all limits.
	byAmount, byTable map[string][]ref
	dirty             bool // it is in ledger.changed
	shown             atomic.Pointer[statement]
}

// counted is a limit with what is used of it.
type counted struct {
	table, key string // of the version that sets it
	place      int    // among the limits of that
	*limit
	used []sum      // per bound
	show []BoundUse // used, as readers see it; nil if that has changed
}

// ref is a bound of a limit.
type ref struct {
	*counted
	at int
}

func (r ref) bound() *bound { return &r.bounds[r.at] }

// compareLimits is the order of limits.
func compareLimits(a, b *counted) int {
	return cmp.Or(strings.Compare(a.table, b.table), strings.Compare(a.key, b.key), cmp.Compare(a.place, b.place))
}

// namespaceOf is what a key has before its first slash; "" if it has none.
func namespaceOf(key string) string { return key[:max(0, strings.IndexByte(key, '/'))] }

// uses is what a live version of a table uses of a bound; nil uses nothing.
func (c *counted) uses(b *bound, table string, v *Version) int64 {
	if v == nil || !c.concerns(v.charge) {
		return 0
	}
	return b.uses(table, v.charge)
}

// exceeded says which limit a write would exceed, or nil: the first in their order, with
// all of its bounds that it would exceed. live is the key's live version.
func (s *State) exceeded(w *proto.Write, c *charge, live *Version) *proto.Exceeded {
	if !w.EnforceLimits || w.Op == proto.Op_OP_DELETE || s.ledger.limited == 0 {
		return nil
	}
	a := s.ledger.of[namespaceOf(w.Key)]
	if a == nil || len(a.limits) == 0 {
		return nil
	}
	var first *counted
	look := func(refs []ref) {
		for _, r := range refs {
			if (first == nil || compareLimits(r.counted, first) < 0) && r.over(w.Table, c, live) != nil {
				first = r.counted
			}
		}
	}
	look(a.byTable[w.Table])
	for i := range c.ofAmounts() {
		look(a.byAmount[c.amounts[i].name])
	}
	if first == nil {
		return nil
	}
	e := &proto.Exceeded{Table: first.table, Key: first.key}
	for i := range first.bounds {
		if over := (ref{first, i}).over(w.Table, c, live); over != nil {
			e.Bounds = append(e.Bounds, over)
		}
	}
	return e
}

// over says by how much a write to a table would exceed the bound, or nil.
func (r ref) over(table string, c *charge, live *Version) *proto.ExceededBound {
	if !r.concerns(c) {
		return nil
	}
	b, used := r.bound(), r.used[r.at]
	was, is := r.uses(b, table, live), b.uses(table, c)
	if is <= was || !used.add(is-was).above(b.max) {
		return nil
	}
	return &proto.ExceededBound{Name: b.name, Requested: is - was, Used: used.int64(), Max: b.max}
}

// settle counts a version of a table that is linked now; old is the live one before it.
func (s *State) settle(t *Table, old, v *Version) {
	key := v.Key
	if v.Deleted {
		v = nil
	}
	namespace := namespaceOf(key)
	switch {
	case namespace == "":
		return
	case old != nil && v != nil && old.charge == nil && v.charge == nil, old == nil && v == nil:
		return
	}
	a := s.ledger.of[namespace]
	if a == nil {
		a = s.ledger.open(namespace)
	}
	if !sameUse(old, v) {
		s.ledger.move(&a.totals, t.name, old, v)
		if len(a.limits) > 0 && !s.ledger.loading && a.move(t.name, old, v) {
			s.ledger.touch(a)
		}
	}
	if limits := limitsOf(v); !sameLimits(limitsOf(old), limits) {
		s.ledger.relimit(a, t.name, key, limits)
	}
	if a.keys == 0 && len(a.limits) == 0 && !a.dirty {
		delete(s.ledger.of, namespace)
	}
}

// open begins an account.
func (b *ledger) open(namespace string) *account {
	a := &account{namespace: namespace}
	b.of[namespace] = a
	return a
}

// touch has the next Publish show an account.
func (b *ledger) touch(a *account) {
	if !a.dirty {
		a.dirty = true
		b.changed = append(b.changed, a)
	}
}

// move takes what one version of a table uses away from all bounds that it counts for, and
// adds what another one uses; nil is none. It reports whether that made a difference.
func (a *account) move(table string, old, v *Version) (changed bool) {
	each := func(refs []ref) {
		for _, r := range refs {
			b := r.bound()
			if was, is := r.uses(b, table, old), r.uses(b, table, v); was != is {
				r.used[r.at] = r.used[r.at].sub(was).add(is)
				r.show, changed = nil, true
			}
		}
	}
	each(a.byTable[table])
	var had *charge
	if old != nil {
		had = old.charge
		for i := range had.ofAmounts() {
			each(a.byAmount[had.amounts[i].name])
		}
	}
	if v != nil {
		for i := range v.charge.ofAmounts() {
			if name := v.charge.amounts[i].name; !had.names(name) {
				each(a.byAmount[name])
			}
		}
	}
	return changed
}

// relimit replaces the limits that a key sets, and counts the new ones.
func (b *ledger) relimit(a *account, table, key string, limits []limit) {
	if len(a.limits) == 0 {
		b.limited++
		a.byAmount, a.byTable = map[string][]ref{}, map[string][]ref{}
	}
	from, _ := slices.BinarySearchFunc(a.limits, &counted{table: table, key: key}, compareLimits)
	to := from
	for ; to < len(a.limits) && a.limits[to].table == table && a.limits[to].key == key; to++ {
		a.unlist(a.limits[to])
	}
	fresh := make([]*counted, len(limits))
	for i := range limits {
		fresh[i] = &counted{table: table, key: key, place: i, limit: &limits[i], used: make([]sum, len(limits[i].bounds))}
		a.list(fresh[i])
		if !b.loading {
			a.count(fresh[i])
		}
	}
	a.limits = slices.Replace(a.limits, from, to, fresh...)
	if len(a.limits) == 0 {
		b.limited--
	}
	b.touch(a)
}

func (a *account) index(b *bound) (map[string][]ref, string) {
	if b.table != "" {
		return a.byTable, b.table
	}
	return a.byAmount, b.name
}

// list enters the bounds of a limit.
func (a *account) list(l *counted) {
	for i := range l.bounds {
		index, name := a.index(&l.bounds[i])
		index[name] = append(index[name], ref{l, i})
	}
}

// unlist takes them out again.
func (a *account) unlist(l *counted) {
	for i := range l.bounds {
		index, name := a.index(&l.bounds[i])
		if rest := slices.DeleteFunc(index[name], func(r ref) bool { return r.counted == l }); len(rest) > 0 {
			index[name] = rest
		} else {
			delete(index, name)
		}
	}
}

// countLoaded counts the limits of a state that was loaded.
func (b *ledger) countLoaded() {
	b.loading = false
	for _, a := range b.changed {
		for _, l := range a.limits {
			a.count(l)
		}
	}
}
