package mvcc

import (
	"fmt"
	"maps"
	"slices"
)

// checkLedger counts everything again.
func (s *State) checkLedger() (errs []error) {
	if s.ledger.loading || len(s.ledger.changed) > 0 {
		return []error{fmt.Errorf("usage is not published")}
	}
	want := s.recount()
	limited := 0
	for namespace, w := range want.of {
		if len(w.limits) > 0 {
			limited++
		}
		if a := s.ledger.of[namespace]; a == nil {
			errs = append(errs, fmt.Errorf("namespace %s is not counted", namespace))
		} else {
			errs = append(errs, a.differs(w)...)
			errs = append(errs, s.checkShown(w)...)
		}
	}
	shown := 0
	s.ledger.shown.Range(func(any, any) bool { shown++; return true })
	if len(s.ledger.of) != len(want.of) || s.ledger.limited != limited || shown != limited {
		errs = append(errs, fmt.Errorf("%d namespaces have keys, %d limits; %d are counted, %d with limits, %d are shown",
			len(want.of), limited, len(s.ledger.of), s.ledger.limited, shown))
	}
	return errs
}

// recount is the ledger that follows from the live versions, by a walk over all keys. What
// limits count is added up key by key, and not from totals.
func (s *State) recount() *ledger {
	l := &ledger{of: map[string]*account{}, loading: true}
	each := func(f func(t *Table, v *Version)) {
		for _, t := range s.Tables() {
			t.keys.Scan(func(it *item) bool {
				if v := it.newest.Load(); !v.Deleted && namespaceOf(v.Key) != "" {
					f(t, v)
				}
				return true
			})
		}
	}
	each(func(t *Table, v *Version) {
		a := l.of[namespaceOf(v.Key)]
		if a == nil {
			a = l.open(namespaceOf(v.Key))
		}
		l.move(&a.totals, t.name, nil, v)
		if limits := limitsOf(v); len(limits) > 0 {
			l.relimit(a, t.name, v.Key, limits)
		}
	})
	each(func(t *Table, v *Version) {
		for _, c := range l.of[namespaceOf(v.Key)].limits {
			for i := range c.bounds {
				c.used[i] = c.used[i].add(c.uses(&c.bounds[i], t.name, v))
			}
		}
	})
	return l
}

// differs says how an account differs from a recount.
func (a *account) differs(want *account) (errs []error) {
	fail := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("namespace "+a.namespace+": "+format, args...))
	}
	if a.keys != want.keys || len(a.classes) != len(want.classes) || !a.plain.same(&want.plain) {
		fail("%d keys in %d classes, there are %d in %d; without facts %+v, there is %+v",
			a.keys, len(a.classes), want.keys, len(want.classes), a.plain, want.plain)
	}
	for name, w := range want.classes {
		if c := a.classes[name]; c == nil || !c.same(w) {
			fail("of %v %+v is used, there is %+v", w.of.facts, c, w)
		}
	}
	if !slices.EqualFunc(a.limits, want.limits, func(l, w *counted) bool {
		return compareLimits(l, w) == 0 && sameLimits([]limit{*l.limit}, []limit{*w.limit}) && slices.Equal(l.used, w.used)
	}) {
		for _, l := range slices.Concat(a.limits, want.limits) {
			fail("limit %d of %s %s counts %v", l.place, l.table, l.key, l.used)
		}
	}
	if len(a.limits) > 0 && (!sameRefs(a.byAmount, want.byAmount) || !sameRefs(a.byTable, want.byTable)) {
		fail("the bounds are not those of the limits")
	}
	return errs
}

func (c *class) same(w *class) bool {
	return c.keys == w.keys && c.of.facts == w.of.facts && maps.Equal(c.tables, w.tables) && maps.Equal(c.amounts, w.amounts)
}

// sameRefs reports whether as many bounds are listed under the same names.
func sameRefs(a, b map[string][]ref) bool {
	return maps.EqualFunc(a, b, func(x, y []ref) bool { return len(x) == len(y) })
}

// checkShown compares what readers see with a recount.
func (s *State) checkShown(want *account) (errs []error) {
	for _, l := range want.limits {
		var used []int64
		for _, of := range want.limits {
			for i := range of.used {
				if of.table == l.table && of.key == l.key {
					used = append(used, of.used[i].int64())
				}
			}
		}
		if shown, _ := s.Usage(l.table, l.key); !slices.EqualFunc(shown, used, func(u BoundUse, n int64) bool { return u.Used == n }) {
			errs = append(errs, fmt.Errorf("namespace %s: limit of %s %s shows %v, has %v", want.namespace, l.table, l.key, shown, used))
		}
	}
	return errs
}
