package mvcc

import (
	"math/bits"
	"strings"

	"github.com/quorate/quorate/proto"
)

// A write is decided by rules (roles, webhooks, labels of its namespace) that the node
// which decides reads in its own state, as of the write's decided_at. That state may lag,
// and the decision takes time. So the entry names the rules, and here, where it gets its
// place among all others, it is refused if one of them has changed above decided_at.
//
// All nodes answer alike, also one that has just loaded its state from records. Above the
// floor every node has the same versions; at or below it some have tombstones that others
// no longer have, and a table's Latest may differ. Only decided_at >= floor is looked at,
// and only whether there is a version above it.

const (
	// maxRuleRanges bounds what one entry can make every node look at.
	maxRuleRanges = 256
	// maxRuleWalk bounds for each rule how many versions are looked at. If there are
	// more, one of them may count: the write is refused, and decided by a newer state.
	maxRuleWalk = 4096
)

// ruleTables are the tables of proto.Rules, found without a look-up by name.
type ruleTables struct {
	tables [len(proto.Rules)]*Table // nil while nothing was ever written
	// latest is the newest change in any of them, if that is above the floor.
	latest proto.Revision
}

var ruleBits = func() map[string]int {
	out := map[string]int{}
	for bit, r := range proto.Rules {
		out[r.Table] = bit
	}
	return out
}()

// add notes a new table.
func (r *ruleTables) add(t *Table) {
	if bit, ok := ruleBits[t.name]; ok {
		r.tables[bit], t.rule = t, true
	}
}

// drop forgets a table that is dropped.
func (r *ruleTables) drop(t *Table) {
	if t.rule {
		r.tables[ruleBits[t.name]] = nil
	}
}

// note notes a change in a table.
func (r *ruleTables) note(t *Table, at proto.Revision) {
	if t.rule {
		r.latest = at
	}
}

// rulesChanged reports whether a write at index must be decided again.
func (s *State) rulesChanged(w *proto.Write, index proto.Revision) bool {
	at := proto.Revision(w.DecidedAt)
	switch {
	case at == 0:
		return false
	case at < s.Floor(), at >= index: // what changed may be forgotten; no node can have seen that
		return true
	case s.rules.latest > at && s.rulesChangedSince(w, at):
		return true
	}
	for _, r := range w.RuleRanges {
		if s.rangeChanged(r, at) {
			return true
		}
	}
	return false
}

// rangeChanged looks at one range.
func (s *State) rangeChanged(r *proto.RuleRange, at proto.Revision) bool {
	t := s.Table(r.Table)
	switch {
	case r.Uid == "":
		return t != nil && t.changedSince(at, r.Prefix)
	case t == nil:
		return true
	}
	_, v := t.newest(r.Prefix)
	return Gone(v, r.Uid, at)
}

// Gone reports whether a decision that was made as of a revision, and that follows from the object
// with a uid being there, has to be made again. v is the newest version of its key, nil if there
// is none. What is being deleted may count until a time that its content says, so there each
// change counts; of what is not, none does: Pods and Nodes change all the time.
func Gone(v *Version, uid string, at proto.Revision) bool {
	return v == nil || v.Deleted || v.UID != uid || v.Flags&proto.FlagTerminating != 0 && v.Revision > at
}

// rulesChangedSince looks at each rule that the write has a bit for.
func (s *State) rulesChangedSince(w *proto.Write, at proto.Revision) bool {
	for rest := w.Rules; rest != 0; rest &= rest - 1 {
		bit := bits.TrailingZeros32(rest)
		t := s.rules.tables[bit]
		if t == nil || t.Latest() <= at {
			continue
		}
		switch proto.Rules[bit].Scope {
		case proto.RuleOfNamespace:
			namespace, _, _ := strings.Cut(w.Key, "/")
			if t.changedSinceIn(at, namespace) {
				return true
			}
		case proto.RuleOfName:
			namespace, _, _ := strings.Cut(w.Key, "/")
			if _, v := t.newest(namespace); v != nil && v.Revision > at {
				return true
			}
		default:
			return true
		}
	}
	return false
}

// changedSince reports whether a key that begins with prefix has changed above at, or may
// have. at is not below the floor.
func (t *Table) changedSince(at proto.Revision, prefix string) bool {
	return t.Latest() > at && t.anySince(at, func(v *Version) bool { return strings.HasPrefix(v.Key, prefix) })
}

// changedSinceIn is changedSince for the rules of a namespace: of them only those versions count that
// say something else than the one before.
func (t *Table) changedSinceIn(at proto.Revision, namespace string) bool {
	return t.anySince(at, func(v *Version) bool { return v.ChangesRuleIn(namespace) })
}

// ChangesRuleIn reports whether decisions of before a version may be others after it, if it is one of
// a rule with the scope proto.RuleOfNamespace, for writes in a namespace.
func (v *Version) ChangesRuleIn(namespace string) bool {
	if v.Flags&proto.FlagSameRule != 0 && !v.Deleted { // a deletion takes over its version's flags
		return false
	}
	return len(v.Key) > len(namespace) && v.Key[len(namespace)] == '/' && strings.HasPrefix(v.Key, namespace)
}

// anySince reports whether a version above at counts, or there are too many of them to look at.
func (t *Table) anySince(at proto.Revision, counts func(*Version) bool) bool {
	c, next := t.hist.seek(at)
	for walked := 0; c != nil; c, next = c.next.Load(), 0 {
		for _, v := range c.versions[next:c.n.Load()] {
			if walked++; walked > maxRuleWalk || counts(v) {
				return true
			}
		}
	}
	return false
}
