package mvcc

import (
	"cmp"
	"slices"
	"strings"

	"github.com/quorate/quorate/proto"
)

// BoundUse is how much of a bound is used.
type BoundUse struct {
	// Name is the bound's.
	Name string
	// Used is the sum, or the greatest number if it is more. It is above Max if the limit
	// came later, or if a write was not to be refused.
	Used, Max int64
}

// statement is what readers see of an account: immutable, as of the mark at.
type statement struct {
	at     proto.Revision
	limits []limitUse
	// before is the statement that this one has replaced, without its own.
	before *statement
}

// limitUse is what is used of a limit; they are in the order of tables and keys.
type limitUse struct {
	table, key string
	bounds     []BoundUse
}

// Usage returns what is used of the limits that a key of a table sets, bound by bound as
// its version names them, and the applied mark as of which this is so. Nil: it sets none.
// The slice is shared and not to be changed. It is safe from any goroutine.
func (s *State) Usage(table, key string) ([]BoundUse, proto.Revision) {
	for {
		m := s.Applied()
		// A statement is there before the mark from which on it is true. So what is loaded
		// now has replaced all that are older than m, and is the one for m or a later one.
		var now *statement
		if a, ok := s.ledger.shown.Load(namespaceOf(key)); ok {
			if now = a.(*account).shown.Load(); now.at > m {
				now = now.before
			}
		}
		switch {
		case now != nil && now.at <= m:
			return now.of(table, key), m
		case s.Applied() == m: // and so it has not been true for longer
			return nil, m
		}
	}
}

// of is what is used of the limits of one key.
func (n *statement) of(table, key string) (out []BoundUse) {
	at, _ := slices.BinarySearchFunc(n.limits, limitUse{table: table, key: key}, func(a, b limitUse) int {
		return cmp.Or(strings.Compare(a.table, b.table), strings.Compare(a.key, b.key))
	})
	for ; at < len(n.limits) && n.limits[at].table == table && n.limits[at].key == key; at++ {
		if out == nil {
			out = n.limits[at].bounds // of most keys all
		} else {
			out = append(slices.Clip(out), n.limits[at].bounds...)
		}
	}
	return out
}

// show gives readers what has changed. Writer only, before the mark moves.
func (b *ledger) show(at proto.Revision) {
	for _, a := range b.changed {
		a.dirty = false
		next := &statement{at: at, limits: make([]limitUse, len(a.limits))}
		for i, l := range a.limits {
			next.limits[i] = limitUse{l.table, l.key, l.shown()}
		}
		if old := a.shown.Load(); old != nil {
			next.before = &statement{at: old.at, limits: old.limits}
		}
		a.shown.Store(next)
		if len(a.limits) > 0 {
			b.shown.Store(a.namespace, a)
		} else {
			b.shown.Delete(a.namespace)
			a.byAmount, a.byTable = nil, nil
			if a.keys == 0 {
				delete(b.of, a.namespace)
			}
		}
	}
	b.changed = b.changed[:0]
}

// shown is what is used of a limit, for readers: the same slice as long as it is the same.
func (l *counted) shown() []BoundUse {
	if l.show == nil {
		l.show = make([]BoundUse, len(l.bounds))
		for i := range l.bounds {
			l.show[i] = BoundUse{Name: l.bounds[i].name, Used: l.used[i].int64(), Max: l.bounds[i].max}
		}
	}
	return l.show
}
