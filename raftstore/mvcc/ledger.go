package mvcc

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/quorate/quorate/internal/planted"
	"github.com/quorate/quorate/proto"
)

// The ledger keeps, for each namespace that has limits, what is used of each bound: the
// sum over the newest live versions of the namespace's keys, in all tables. It follows
// from the versions and from nothing else: a version gives back what the one before it
// used, new limits are counted by a walk over the namespace, and a state that is loaded
// counts everything once. So a sum is at every index what a recount would find.
//
// Nothing here knows what is counted. Who writes says what an object uses; see
// proto.Usage and proto.Limit.

// ledger is of the writer, but for shown.
type ledger struct {
	of      map[string]*account // by namespace
	changed []*account          // to be shown by the next Publish
	// loading: nothing is counted before Publish. found are the namespaces in which a
	// version with limits was seen.
	loading bool
	found   map[string]bool
	// shown has what readers see of each account.
	shown sync.Map // namespace to *account
}

// account is a namespace with limits.
type account struct {
	namespace string
	limits    []*counted // in the order of tables, keys and places in the version
	dirty     bool       // it is in ledger.changed
	shown     atomic.Pointer[statement]
}

// counted is a limit with what is used of it.
type counted struct {
	table, key string // of the version that sets it
	*limit
	used []sum // per bound
}

// sum is a number of 128 bits: no number of int64 amounts is too much for it.
type sum struct{ high, low uint64 }

func (s sum) add(n int64) sum {
	low, carry := bits.Add64(s.low, uint64(n), 0)
	return sum{s.high + carry, low}
}

func (s sum) sub(n int64) sum {
	low, borrow := bits.Sub64(s.low, uint64(n), 0)
	return sum{s.high - borrow, low}
}

// above reports whether it is more than n, which is not negative.
func (s sum) above(n int64) bool { return s.high > 0 || s.low > uint64(n) }

// int64 is the sum, or the greatest number if it is more.
func (s sum) int64() int64 {
	if s.above(math.MaxInt64) {
		return math.MaxInt64
	}
	return int64(s.low)
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

// move takes the usage of one version away and adds that of another; nil is none. It
// reports whether that made a difference.
func (c *counted) move(table string, old, v *Version) (changed bool) {
	before := old != nil && c.concerns(old.charge)
	after := v != nil && c.concerns(v.charge)
	if !before && !after {
		return false
	}
	for i := range c.bounds {
		b, was, is := &c.bounds[i], int64(0), int64(0)
		if before {
			was = b.uses(table, old.charge)
		}
		if after {
			is = b.uses(table, v.charge)
		}
		if was != is {
			c.used[i] = c.used[i].sub(was).add(is)
			changed = true
		}
	}
	return changed
}

// exceeded says which limit a write would exceed, or nil. live is the key's live version.
func (s *State) exceeded(w *proto.Write, c *charge, live *Version) *proto.Exceeded {
	if !w.EnforceLimits || w.Op == proto.Op_OP_DELETE || len(s.ledger.of) == 0 || planted.On(planted.OverLimit) {
		return nil
	}
	a := s.ledger.of[namespaceOf(w.Key)]
	if a == nil {
		return nil
	}
	for _, l := range a.limits {
		if !l.concerns(c) {
			continue
		}
		var over []*proto.ExceededBound
		for i := range l.bounds {
			b := &l.bounds[i]
			was, is := l.uses(b, w.Table, live), b.uses(w.Table, c)
			if is > was && l.used[i].add(is-was).above(b.max) {
				over = append(over, &proto.ExceededBound{Name: b.name, Requested: is - was, Used: l.used[i].int64(), Max: b.max})
			}
		}
		if over != nil {
			return &proto.Exceeded{Table: l.table, Key: l.key, Bounds: over}
		}
	}
	return nil
}

// settle counts a version of a table that is linked now; old is the live one before it.
func (s *State) settle(t *Table, old, v *Version) {
	key := v.Key
	if v.Deleted {
		v = nil
	}
	limits, namespace := limitsOf(v), namespaceOf(key)
	switch {
	case namespace == "":
		return
	case v == nil && planted.On(planted.KeptUsage):
		return
	case s.ledger.loading:
		if len(limits) > 0 {
			s.ledger.found[namespace] = true
		}
		return
	case len(s.ledger.of) == 0 && len(limits) == 0:
		return
	}
	a := s.ledger.of[namespace]
	if a != nil {
		changed := false
		for _, l := range a.limits {
			changed = l.move(t.name, old, v) || changed
		}
		if changed {
			s.ledger.touch(a)
		}
	}
	if !sameLimits(limitsOf(old), limits) {
		if a == nil {
			a = s.ledger.open(namespace)
		}
		s.relimit(a, t.name, key, limits)
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

// relimit replaces the limits that a key sets, and counts the new ones: a walk over all
// keys of the namespace.
func (s *State) relimit(a *account, table, key string, limits []limit) {
	a.limits = slices.DeleteFunc(a.limits, func(l *counted) bool { return l.table == table && l.key == key })
	fresh := make([]*counted, len(limits))
	for i := range limits {
		fresh[i] = &counted{table: table, key: key, limit: &limits[i], used: make([]sum, len(limits[i].bounds))}
	}
	s.recount(a.namespace, fresh)
	a.limits = append(a.limits, fresh...)
	sortLimits(a.limits)
	s.ledger.touch(a)
}

func sortLimits(limits []*counted) {
	slices.SortStableFunc(limits, func(a, b *counted) int {
		return cmp.Or(strings.Compare(a.table, b.table), strings.Compare(a.key, b.key))
	})
}

// recount adds all of a namespace to limits of which nothing is counted.
func (s *State) recount(namespace string, limits []*counted) {
	if len(limits) == 0 {
		return
	}
	s.eachLive(namespace, func(t *Table, v *Version) {
		for _, l := range limits {
			l.move(t.name, nil, v)
		}
	})
}

// eachLive calls f for the live versions of a namespace, in the order of keys in each
// table; the tables come in none. Writer only.
func (s *State) eachLive(namespace string, f func(*Table, *Version)) {
	prefix := namespace + "/"
	for _, t := range s.Tables() {
		t.keys.Ascend(&item{key: prefix}, func(it *item) bool {
			if !strings.HasPrefix(it.key, prefix) {
				return false
			}
			if v := it.newest.Load(); !v.Deleted {
				f(t, v)
			}
			return true
		})
	}
}

// countLoaded counts a state that was loaded.
func (s *State) countLoaded() {
	s.ledger.loading = false
	for namespace := range s.ledger.found {
		a := s.counts(namespace)
		if len(a.limits) > 0 {
			s.ledger.of[namespace] = a
			s.ledger.touch(a)
		}
	}
	s.ledger.found = nil
}

// counts makes the account of a namespace of nothing but its versions.
func (s *State) counts(namespace string) *account {
	a := &account{namespace: namespace}
	s.eachLive(namespace, func(t *Table, v *Version) {
		limits := limitsOf(v)
		for i := range limits {
			a.limits = append(a.limits, &counted{table: t.name, key: v.Key, limit: &limits[i], used: make([]sum, len(limits[i].bounds))})
		}
	})
	sortLimits(a.limits)
	s.recount(namespace, a.limits)
	return a
}
