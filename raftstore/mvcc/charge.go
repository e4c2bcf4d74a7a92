package mvcc

import (
	"fmt"
	"slices"
	"strings"

	"github.com/quorate/quorate/proto"
)

// charge is what a version uses of what limits bound, and the limits that it sets. Most
// versions have none.
type charge struct {
	facts   Attributes // a name has several values if its fact has
	amounts []amount   // sorted by name
	limits  []limit
}

type amount struct {
	name  string
	value int64
}

// limit bounds what the keys of a namespace use together that meet all requirements.
type limit struct {
	requirements []requirement
	bounds       []bound
}

type requirement struct {
	name     string
	operator proto.Operator
	values   []string
}

// bound is of an amount, or of the number of keys in a table.
type bound struct {
	name  string
	max   int64
	table string
}

// chargeOf is the charge of a write or a record, nil if it has none.
func chargeOf(usage *proto.Usage, limits []*proto.Limit) *charge {
	if len(usage.GetFacts()) == 0 && len(usage.GetMoreFacts()) == 0 && len(usage.GetAmounts()) == 0 && len(limits) == 0 {
		return nil
	}
	c := &charge{facts: factsOf(usage)}
	c.amounts = make([]amount, len(usage.GetAmounts()))
	for i, a := range usage.GetAmounts() {
		c.amounts[i] = amount{a.Name, a.Value}
	}
	if !slices.IsSortedFunc(c.amounts, compareAmounts) { // validateCharge refuses it, and it counts all the same
		slices.SortStableFunc(c.amounts, compareAmounts)
	}
	c.amounts = slices.CompactFunc(c.amounts, func(a, b amount) bool { return a.name == b.name })
	for _, l := range limits {
		var out limit
		for _, r := range l.Requirements {
			out.requirements = append(out.requirements, requirement{r.Name, r.Operator, r.Values})
		}
		for _, b := range l.Bounds {
			out.bounds = append(out.bounds, bound{b.Name, b.Max, b.Table})
		}
		c.limits = append(c.limits, out)
	}
	return c
}

// factsOf packs facts with all their values.
func factsOf(usage *proto.Usage) Attributes {
	facts := usage.GetFacts()
	if more := usage.GetMoreFacts(); len(more) > 0 {
		facts = slices.Concat(facts, more)
		slices.SortStableFunc(facts, func(a, b *proto.Attribute) int { return strings.Compare(a.Name, b.Name) })
		return Attributes{string(appendPairs(nil, len(facts), func(i int) (name, value string) { return facts[i].Name, facts[i].Value }))}
	}
	return Attributes{string(appendAttributes(nil, len(facts), func(i int) (name, value string) { return facts[i].Name, facts[i].Value }))}
}

// record is the stored form.
func (c *charge) record() (usage *proto.Usage, limits []*proto.Limit) {
	if c == nil {
		return nil, nil
	}
	if c.facts.Len() > 0 || len(c.amounts) > 0 {
		usage = &proto.Usage{}
		for _, f := range c.facts.records() {
			if n := len(usage.Facts); n > 0 && usage.Facts[n-1].Name == f.Name {
				usage.MoreFacts = append(usage.MoreFacts, f)
			} else {
				usage.Facts = append(usage.Facts, f)
			}
		}
		for _, a := range c.amounts {
			usage.Amounts = append(usage.Amounts, &proto.Amount{Name: a.name, Value: a.value})
		}
	}
	for _, l := range c.limits {
		out := &proto.Limit{}
		for _, r := range l.requirements {
			out.Requirements = append(out.Requirements, &proto.Requirement{Name: r.name, Operator: r.operator, Values: r.values})
		}
		for _, b := range l.bounds {
			out.Bounds = append(out.Bounds, &proto.Bound{Name: b.name, Max: b.max, Table: b.table})
		}
		limits = append(limits, out)
	}
	return usage, limits
}

// size is what a charge roughly costs in memory, in bytes.
func (c *charge) size() (n int) {
	if c == nil {
		return 0
	}
	n = 72 + len(c.facts.packed)
	for _, a := range c.amounts {
		n += 24 + len(a.name)
	}
	for _, l := range c.limits {
		n += 48
		for _, r := range l.requirements {
			n += 48 + len(r.name)
			for _, v := range r.values {
				n += 16 + len(v)
			}
		}
		for _, b := range l.bounds {
			n += 40 + len(b.name) + len(b.table)
		}
	}
	return n
}

func compareAmounts(a, b amount) int { return strings.Compare(a.name, b.name) }

// ofAmounts are the amounts, of no charge none.
func (c *charge) ofAmounts() []amount {
	if c == nil {
		return nil
	}
	return c.amounts
}

// names reports whether there is an amount of a name.
func (c *charge) names(name string) bool {
	_, ok := slices.BinarySearchFunc(c.ofAmounts(), amount{name: name}, compareAmounts)
	return ok
}

// amount is how much there is of a name. Less than nothing is nothing.
func (c *charge) amount(name string) int64 {
	if c == nil {
		return 0
	}
	i, ok := slices.BinarySearchFunc(c.amounts, name, func(a amount, name string) int { return strings.Compare(a.name, name) })
	if !ok {
		return 0
	}
	return max(0, c.amounts[i].value)
}

// Charges reports whether the version has this charge.
func (v *Version) Charges(usage *proto.Usage, limits []*proto.Limit) bool {
	if v.charge == nil || len(limits) > 0 || len(v.charge.limits) > 0 || len(usage.GetMoreFacts()) > 0 {
		c := chargeOf(usage, limits)
		if v.charge == nil || c == nil {
			return v.charge == c
		}
		return v.charge.facts == c.facts && slices.Equal(v.charge.amounts, c.amounts) && sameLimits(v.charge.limits, c.limits)
	}
	facts := usage.GetFacts()
	if v.charge.facts.Len() != len(facts) {
		return false
	}
	for _, f := range facts {
		if value, ok := v.charge.facts.Get(f.Name); !ok || value != f.Value {
			return false
		}
	}
	return slices.EqualFunc(v.charge.amounts, usage.GetAmounts(), func(a amount, b *proto.Amount) bool { return a.name == b.Name && a.value == b.Value })
}

// Charged reports whether the version uses or limits anything.
func (v *Version) Charged() bool { return v.charge != nil }

// limitsOf are the limits that a live version sets.
func limitsOf(v *Version) []limit {
	if v == nil || v.charge == nil {
		return nil
	}
	return v.charge.limits
}

// concerns reports whether what has this charge meets all requirements.
func (l *limit) concerns(c *charge) bool {
	for i := range l.requirements {
		if !l.requirements[i].holds(c) {
			return false
		}
	}
	return true
}

func (r *requirement) holds(c *charge) bool {
	there := false
	if c != nil {
		for name, value := range c.facts.All() {
			if name != r.name {
				continue
			}
			there = true
			if r.operator == proto.Operator_OPERATOR_IN && slices.Contains(r.values, value) ||
				r.operator == proto.Operator_OPERATOR_NOT_IN && !slices.Contains(r.values, value) {
				return true
			}
		}
	}
	switch r.operator {
	case proto.Operator_OPERATOR_IN:
		return false
	case proto.Operator_OPERATOR_EXISTS:
		return there
	default:
		return !there
	}
}

// uses is how much a key of a table with this charge, which the bound's limit concerns,
// uses of the bound.
func (b *bound) uses(table string, c *charge) int64 {
	switch b.table {
	case "":
		return c.amount(b.name)
	case table:
		return 1
	}
	return 0
}

// same reports whether limits bound the same by the same.
func sameLimits(a, b []limit) bool {
	return slices.EqualFunc(a, b, func(a, b limit) bool {
		return slices.Equal(a.bounds, b.bounds) && slices.EqualFunc(a.requirements, b.requirements, func(a, b requirement) bool {
			return a.name == b.name && a.operator == b.operator && slices.Equal(a.values, b.values)
		})
	})
}

// What one version can have: every write in its namespace looks at all bounds.
const (
	maxAmounts      = 1024
	maxBounds       = 4096
	maxRequirements = 4096 // values included
)

// validateCharge is Validate for what limits are about.
func validateCharge(w *proto.Write) error {
	if len(w.Limits) > 0 && namespaceOf(w.Key) == "" {
		return fmt.Errorf("limits of a key that is in no namespace would bound nothing: %w", ErrInvalid)
	}
	facts, amounts := w.Usage.GetFacts(), w.Usage.GetAmounts()
	if !sortedUnique(facts, func(a *proto.Attribute) string { return a.Name }) ||
		!sortedUnique(amounts, func(a *proto.Amount) string { return a.Name }) {
		return fmt.Errorf("facts or amounts of its usage are not sorted, or named twice: %w", ErrInvalid)
	}
	if err := validateMoreFacts(facts, w.Usage.GetMoreFacts()); err != nil {
		return err
	}
	bounds, requirements := 0, 0
	for _, l := range w.Limits {
		bounds += len(l.Bounds)
		for _, r := range l.Requirements {
			requirements += 1 + len(r.Values)
		}
		for _, b := range l.Bounds {
			if b.Max < 0 || b.Name == "" {
				return fmt.Errorf("bound %q of %d: %w", b.Name, b.Max, ErrInvalid)
			}
		}
	}
	if len(facts)+len(w.Usage.GetMoreFacts()) > maxAmounts || len(amounts) > maxAmounts || bounds > maxBounds || requirements > maxRequirements {
		return fmt.Errorf("%d facts, %d amounts, %d bounds, %d requirements; at most %d, %d, %d and %d: %w",
			len(facts)+len(w.Usage.GetMoreFacts()), len(amounts), bounds, requirements, maxAmounts, maxAmounts, maxBounds, maxRequirements, ErrInvalid)
	}
	for _, a := range amounts {
		if a.Value < 0 {
			return fmt.Errorf("it uses %d of %s: %w", a.Value, a.Name, ErrInvalid)
		}
	}
	return nil
}

// validateMoreFacts checks that more holds other values, sorted, of facts that are there.
func validateMoreFacts(facts, more []*proto.Attribute) error {
	for i, f := range more {
		at, ok := slices.BinarySearchFunc(facts, f.Name, func(a *proto.Attribute, name string) int { return strings.Compare(a.Name, name) })
		before := facts[:0]
		if ok {
			before = facts[at : at+1]
		}
		if i > 0 && more[i-1].Name >= f.Name {
			before = more[i-1 : i]
		}
		if len(before) == 0 || before[0].Name != f.Name || before[0].Value >= f.Value {
			return fmt.Errorf("further values of facts are not sorted, or of no fact: %w", ErrInvalid)
		}
	}
	return nil
}

func sortedUnique[E any](list []E, name func(E) string) bool {
	for i := range list {
		if i > 0 && name(list[i-1]) >= name(list[i]) {
			return false
		}
	}
	return true
}

// knownCharge reports whether this release understands all of it.
func knownCharge(u *proto.Usage, limits []*proto.Limit) bool {
	if u != nil {
		if unknownFields(u) || unknownAttributes(u.Facts) || unknownAttributes(u.MoreFacts) {
			return false
		}
		for _, a := range u.Amounts {
			if unknownFields(a) {
				return false
			}
		}
	}
	for _, l := range limits {
		if unknownFields(l) {
			return false
		}
		for _, r := range l.Requirements {
			if unknownFields(r) || r.Operator < proto.Operator_OPERATOR_IN || r.Operator > proto.Operator_OPERATOR_DOES_NOT_EXIST {
				return false
			}
		}
		for _, b := range l.Bounds {
			if unknownFields(b) {
				return false
			}
		}
	}
	return true
}
