package mvcc

import "slices"

// totals are what the live keys of a namespace use together, by facts: as many classes as there
// are different sets of facts.
type totals struct {
	keys    int64
	plain   class // without facts
	classes map[Attributes]*class
}

// class is the keys whose usage has the same facts.
type class struct {
	of      charge // its facts
	keys    int64
	tables  map[string]int64 // how many keys of a table
	amounts map[string]sum   // by name; none is zero
}

// sameUse reports whether two live versions of a key use the same; nil is none.
func sameUse(a, b *Version) bool {
	if a == nil || b == nil {
		return a == b
	}
	if a.charge == nil || b.charge == nil {
		return a.charge == b.charge
	}
	return a.charge.facts == b.charge.facts && slices.Equal(a.charge.amounts, b.charge.amounts)
}

// move takes what one version of a table uses away, and adds what another one uses; nil is none.
func (b *ledger) move(t *totals, table string, old, v *Version) {
	if v != nil {
		t.keys++
		b.class(t, v.charge).add(table, v.charge)
	}
	if old == nil {
		return
	}
	t.keys--
	c := b.class(t, old.charge)
	if c.sub(table, old.charge); c.keys == 0 && c != &t.plain {
		delete(t.classes, old.charge.facts)
	}
}

// class is that of a charge.
func (b *ledger) class(t *totals, c *charge) *class {
	if c == nil || c.facts.Len() == 0 {
		return &t.plain
	}
	if there := t.classes[c.facts]; there != nil {
		return there
	}
	if t.classes == nil {
		t.classes = map[Attributes]*class{}
	}
	made := &class{of: charge{facts: c.facts}}
	t.classes[c.facts] = made
	return made
}

func (c *class) add(table string, of *charge) {
	if c.tables == nil {
		c.tables = map[string]int64{}
	}
	c.keys++
	c.tables[table]++
	for i := range of.ofAmounts() {
		a := &of.amounts[i]
		if n := max(0, a.value); n > 0 {
			if c.amounts == nil {
				c.amounts = map[string]sum{}
			}
			c.amounts[a.name] = c.amounts[a.name].add(n)
		}
	}
}

func (c *class) sub(table string, of *charge) {
	c.keys--
	if c.tables[table]--; c.tables[table] == 0 {
		delete(c.tables, table)
	}
	for i := range of.ofAmounts() {
		a := &of.amounts[i]
		if n := max(0, a.value); n > 0 {
			if rest := c.amounts[a.name].sub(n); rest != (sum{}) {
				c.amounts[a.name] = rest
			} else {
				delete(c.amounts, a.name)
			}
		}
	}
}

// count adds up what is used of a limit. The order of classes does not matter: sums have room
// for all there is.
func (t *totals) count(l *counted) {
	clear(l.used)
	t.countClass(l, &t.plain)
	for _, c := range t.classes {
		t.countClass(l, c)
	}
	l.show = nil
}

func (t *totals) countClass(l *counted, c *class) {
	if c.keys == 0 || !l.concerns(&c.of) {
		return
	}
	for i := range l.bounds {
		if b := &l.bounds[i]; b.table != "" {
			l.used[i] = l.used[i].add(c.tables[b.table])
		} else {
			l.used[i] = l.used[i].plus(c.amounts[b.name])
		}
	}
}
