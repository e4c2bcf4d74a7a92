package mvcc

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"unsafe"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
)

// charged is a write of an object that uses something.
func charged(key string, amount int64) *proto.Write {
	return &proto.Write{
		Table: "t", Key: key, Op: proto.Op_OP_PUT, Value: []byte("v"), EnforceLimits: true,
		Usage: &proto.Usage{Amounts: []*proto.Amount{{Name: "a", Value: amount}}},
	}
}

// limiting is a write of an object that limits.
func limiting(key string, most int64) *proto.Write {
	return &proto.Write{
		Table: "q", Key: key, Op: proto.Op_OP_PUT, Value: []byte("v"),
		Limits: []*proto.Limit{{Bounds: []*proto.Bound{{Name: "a", Max: most}, {Name: "count", Max: most, Table: "t"}}}},
	}
}

func (l *log) write(w *proto.Write) Result {
	l.Helper()
	return l.entry(proto.Encode(proto.KindWrite, w))
}

// TestInvalidCharges: what could not be counted as it says is not proposed.
func TestInvalidCharges(t *testing.T) {
	amounts := func(a ...*proto.Amount) *proto.Write {
		return &proto.Write{Key: "n/k", Usage: &proto.Usage{Amounts: a}}
	}
	facts := func(n int) (out []*proto.Attribute) {
		for i := range n {
			out = append(out, &proto.Attribute{Name: fmt.Sprintf("%06d", i)})
		}
		return out
	}
	limits := func(l *proto.Limit) *proto.Write { return &proto.Write{Key: "n/k", Limits: []*proto.Limit{l}} }
	for name, w := range map[string]*proto.Write{
		"too many facts":           {Key: "n/k", Usage: &proto.Usage{Facts: facts(maxAmounts + 1)}},
		"less than nothing":        amounts(&proto.Amount{Name: "a", Value: -1}),
		"amounts not sorted":       amounts(&proto.Amount{Name: "b"}, &proto.Amount{Name: "a"}),
		"an amount twice":          amounts(&proto.Amount{Name: "a"}, &proto.Amount{Name: "a"}),
		"too many amounts":         amounts(make([]*proto.Amount, 0)...),
		"a fact twice":             {Key: "n/k", Usage: &proto.Usage{Facts: []*proto.Attribute{{Name: "a"}, {Name: "a"}}}},
		"a value twice":            {Key: "n/k", Usage: &proto.Usage{Facts: []*proto.Attribute{{Name: "a", Value: "x"}}, MoreFacts: []*proto.Attribute{{Name: "a", Value: "x"}}}},
		"a value of no fact":       {Key: "n/k", Usage: &proto.Usage{Facts: []*proto.Attribute{{Name: "b"}}, MoreFacts: []*proto.Attribute{{Name: "a", Value: "x"}}}},
		"values not sorted":        {Key: "n/k", Usage: &proto.Usage{Facts: []*proto.Attribute{{Name: "a"}}, MoreFacts: []*proto.Attribute{{Name: "a", Value: "y"}, {Name: "a", Value: "x"}}}},
		"facts not sorted":         {Key: "n/k", Usage: &proto.Usage{Facts: []*proto.Attribute{{Name: "a"}, {Name: "b"}}, MoreFacts: []*proto.Attribute{{Name: "b", Value: "y"}, {Name: "a", Value: "z"}}}},
		"too many values of facts": {Key: "n/k", Usage: &proto.Usage{Facts: facts(maxAmounts), MoreFacts: []*proto.Attribute{{Name: "000000", Value: "x"}}}},
		"in no namespace":          {Key: "k", Limits: []*proto.Limit{{}}},
		"in an empty one":          {Key: "/k", Limits: []*proto.Limit{{}}},
		"a negative bound":         limits(&proto.Limit{Bounds: []*proto.Bound{{Name: "a", Max: -1}}}),
		"a bound of nothing":       limits(&proto.Limit{Bounds: []*proto.Bound{{Max: 1}}}),
		"too many bounds":          limits(&proto.Limit{Bounds: slices.Repeat([]*proto.Bound{{Name: "a"}}, maxBounds+1)}),
		"too many values":          limits(&proto.Limit{Requirements: []*proto.Requirement{{Operator: 1, Values: make([]string, maxRequirements)}}}),
		"no operator":              limits(&proto.Limit{Requirements: []*proto.Requirement{{Name: "a"}}}),
		"an unknown operator":      limits(&proto.Limit{Requirements: []*proto.Requirement{{Name: "a", Operator: 5}}}),
	} {
		if name == "too many amounts" {
			for i := range maxAmounts + 1 {
				w.Usage.Amounts = append(w.Usage.Amounts, &proto.Amount{Name: fmt.Sprintf("%06d", i)})
			}
		}
		w.Table, w.Op = "t", proto.Op_OP_PUT
		if Validate(w) == nil {
			t.Errorf("%s is valid", name)
		}
	}
	w := limiting("n/k", 1)
	w.Usage = charged("n/k", 1).Usage
	if err := Validate(w); err != nil {
		t.Error(err)
	}
	// As much as there may be.
	w.Usage = &proto.Usage{Facts: facts(maxAmounts)}
	for _, f := range w.Usage.Facts {
		w.Usage.Amounts = append(w.Usage.Amounts, &proto.Amount{Name: f.Name})
	}
	w.Limits = []*proto.Limit{{
		Bounds:       slices.Repeat([]*proto.Bound{{Name: "a"}}, maxBounds),
		Requirements: []*proto.Requirement{{Operator: 1, Values: make([]string, maxRequirements-2)}, {Operator: 1}},
	}}
	if err := Validate(w); err != nil {
		t.Error(err)
	}
}

// TestCommittedNonsense: what should never have been proposed counts for nothing, on nodes
// that lived through it and on those that load it.
func TestCommittedNonsense(t *testing.T) {
	l := &log{TB: t, s: New()}
	records := map[proto.Revision]*proto.VersionRecord{}
	for _, w := range []*proto.Write{
		limiting("/q", 1), limiting("q", 1), charged("/k", 5), charged("k", 5),
		limiting("n/q", 2), charged("n/k", -5), charged("n/k", -7), charged("n/l", 1),
	} {
		r := l.write(w)
		if r.Version == nil {
			t.Fatalf("%v: %v", w, r.Outcome)
		}
		records[r.Version.Revision] = r.Version.Record(r.Table.Name())
	}
	for name, s := range map[string]*State{"lived": l.s, "loaded": load(t, l.s, records)} {
		if err := s.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		use, _ := s.Usage("q", "n/q")
		if none, _ := s.Usage("q", "/q"); none != nil || len(use) != 2 || use[0].Used != 1 {
			t.Errorf("%s: %v, and of no namespace %v", name, use, none)
		}
	}
}

// TestChargeOfVersion: it is a part of a version's size, and a deletion keeps none.
func TestChargeOfVersion(t *testing.T) {
	l := &log{TB: t, s: New()}
	plain, full := charged("n/k", 1), charged("n/k", 1)
	plain.Usage = nil
	full.Usage, full.Limits = fullUsage(), fullLimits()
	full.Limits[0].Bounds[0].Max = 9
	small, large := l.write(plain).Version.Size(), l.write(full).Version.Size()
	if large < small+200 {
		t.Errorf("a version of %d bytes has %d with usage and limits", small, large)
	}
	gone := l.write(&proto.Write{Table: "t", Key: "n/k", Op: proto.Op_OP_DELETE, Value: []byte("v"), Usage: fullUsage(), Limits: fullLimits()})
	if r := gone.Version.Record("t"); r.Usage != nil || r.Limits != nil {
		t.Errorf("a tombstone keeps %v and %v", r.Usage, r.Limits)
	}
}

// TestSize: a version's size has all that it holds, element by element.
func TestSize(t *testing.T) {
	size := func(v *Version) int { return int(v.Size()) }
	empty := size(&Version{})
	pointers := 3 * unsafe.Sizeof(uintptr(0)) // in the tree and the history
	if least := int(unsafe.Sizeof(Version{}) + unsafe.Sizeof(item{}) + pointers + proto.RequestIDSize + unsafe.Sizeof(proto.Revision(0))); empty < least {
		t.Errorf("a version without a value has %d bytes, it takes %d at least", empty, least)
	}
	pairs := AttributesOf(Pair{"name", "value"})
	name := "123456789"
	with := func(c charge) *Version { return &Version{charge: &c} }
	charged := size(with(charge{}))
	if least := empty + int(unsafe.Sizeof(charge{})); charged < least {
		t.Errorf("a version with a charge has %d bytes, it takes %d at least", charged, least)
	}
	limited := charged + int(unsafe.Sizeof(limit{}))
	required := limited + int(unsafe.Sizeof(requirement{}))
	for what, c := range map[string]struct {
		v    *Version
		want int
	}{
		"a key":         {&Version{Key: name}, empty + 9},
		"a uid":         {&Version{UID: name}, empty + 9},
		"labels":        {&Version{Labels: pairs}, empty + len(pairs.packed)},
		"fields":        {&Version{Fields: pairs}, empty + len(pairs.packed)},
		"a value":       {(&Version{}).SetValue([]byte(name)), empty + 9},
		"facts":         {with(charge{facts: pairs}), charged + len(pairs.packed)},
		"an amount":     {with(charge{amounts: []amount{{name: name}}}), charged + int(unsafe.Sizeof(amount{})) + 9},
		"a limit":       {with(charge{limits: []limit{{}}}), limited},
		"a bound":       {with(charge{limits: []limit{{bounds: []bound{{name: name, table: "table"}}}}}), limited + int(unsafe.Sizeof(bound{})) + 9 + 5},
		"a requirement": {with(charge{limits: []limit{{requirements: []requirement{{name: name}}}}}), required + 9},
		"its values":    {with(charge{limits: []limit{{requirements: []requirement{{values: []string{name, ""}}}}}}), required + 2*int(unsafe.Sizeof("")) + 9},
		"limits":        {with(charge{limits: make([]limit, 3)}), charged + 3*int(unsafe.Sizeof(limit{}))},
	} {
		if got := size(c.v); got != c.want {
			t.Errorf("a version with %s has %d bytes, want %d", what, got, c.want)
		}
	}
}

// TestCharges compares every charge with every other one: Charges is for who asks whether a write would
// change what the object uses and limits.
func TestCharges(t *testing.T) {
	fact := func(name, value string) *proto.Usage {
		return &proto.Usage{Facts: []*proto.Attribute{{Name: name, Value: value}}}
	}
	amount := func(name string, value int64) *proto.Usage {
		return &proto.Usage{Amounts: []*proto.Amount{{Name: name, Value: value}}}
	}
	bound := func(b *proto.Bound) []*proto.Limit { return []*proto.Limit{{Bounds: []*proto.Bound{b}}} }
	requirement := func(r *proto.Requirement) []*proto.Limit {
		return []*proto.Limit{{Requirements: []*proto.Requirement{r}}}
	}
	in := proto.Operator_OPERATOR_IN
	all := []struct {
		usage  *proto.Usage
		limits []*proto.Limit
	}{
		{nil, nil},
		{fact("f", "v"), nil}, {fact("f", "w"), nil}, {fact("g", "v"), nil},
		{&proto.Usage{Facts: []*proto.Attribute{{Name: "f", Value: "v"}, {Name: "g", Value: "v"}}}, nil},
		{&proto.Usage{Facts: []*proto.Attribute{{Name: "f", Value: "v"}}, MoreFacts: []*proto.Attribute{{Name: "f", Value: "w"}}}, nil},
		{&proto.Usage{Facts: []*proto.Attribute{{Name: "f", Value: "v"}, {Name: "g", Value: "v"}}, MoreFacts: []*proto.Attribute{{Name: "f", Value: "w"}, {Name: "g", Value: "w"}, {Name: "g", Value: "x"}}}, nil},
		{amount("a", 1), nil}, {amount("a", 2), nil}, {amount("b", 1), nil},
		{&proto.Usage{Amounts: []*proto.Amount{{Name: "a", Value: 1}, {Name: "b", Value: 1}}}, nil},
		{fullUsage(), nil}, {fullUsage(), fullLimits()}, {nil, fullLimits()},
		{fact("f", "v"), fullLimits()}, {amount("a", 1), fullLimits()},
		{nil, []*proto.Limit{{}}}, {nil, []*proto.Limit{{}, {}}},
		{nil, bound(&proto.Bound{Name: "a", Max: 1})}, {nil, bound(&proto.Bound{Name: "a", Max: 2})},
		{nil, bound(&proto.Bound{Name: "b", Max: 1})}, {nil, bound(&proto.Bound{Name: "a", Max: 1, Table: "u"})},
		{nil, requirement(&proto.Requirement{Name: "f", Operator: in, Values: []string{"v"}})},
		{nil, requirement(&proto.Requirement{Name: "g", Operator: in, Values: []string{"v"}})},
		{nil, requirement(&proto.Requirement{Name: "f", Operator: proto.Operator_OPERATOR_NOT_IN, Values: []string{"v"}})},
		{nil, requirement(&proto.Requirement{Name: "f", Operator: in, Values: []string{"w"}})},
	}
	for i, has := range all {
		v := &Version{charge: chargeOf(has.usage, has.limits)}
		if v.Charged() != (i > 0) {
			t.Errorf("%v %v: charged is %v", has.usage, has.limits, v.Charged())
		}
		if usage, limits := v.charge.record(); (usage == nil) != (has.usage == nil) || !v.Charges(usage, limits) {
			t.Errorf("%v %v is stored as %v %v", has.usage, has.limits, usage, limits)
		}
		for j, other := range all {
			if got := v.Charges(other.usage, other.limits); got != (i == j) {
				t.Errorf("%v %v: it charges %v %v is %v", has.usage, has.limits, other.usage, other.limits, got)
			}
		}
	}
	if v := (&Version{}); !v.Charges(&proto.Usage{}, nil) {
		t.Error("a usage of nothing is something")
	}
}

// TestSum goes over the edges of 64 bits.
func TestSum(t *testing.T) {
	var s sum
	for range 5 {
		s = s.add(1<<63 - 1)
	}
	if s.high != 2 || s.low != 1<<63-5 || !s.above(1<<63-1) || s.int64() != 1<<63-1 {
		t.Errorf("five times the greatest: %+v", s)
	}
	for range 4 {
		s = s.sub(1<<63 - 1)
	}
	if s.high != 0 || s.above(1<<63-1) || !s.above(1<<63-2) || s.int64() != 1<<63-1 {
		t.Errorf("once: %+v", s)
	}
	if s = s.sub(1<<63 - 1); s != (sum{}) || s.above(0) {
		t.Errorf("none: %+v", s)
	}
}

// TestUsageAndMark reads usage while it is written: it is that of the mark that comes with
// it. Every entry changes the usage, so that the usage tells the mark.
func TestUsageAndMark(t *testing.T) {
	l := &log{TB: t, s: New()}
	l.write(limiting("n/q", 0))
	rounds := proto.Revision(3000)
	if testing.Short() {
		rounds = 1000
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				use, at := l.s.Usage("q", "n/q")
				if want := int64(at) - 1; len(use) != 2 || use[0].Used != want || use[1].Used != min(1, want) {
					t.Errorf("as of %d: %v", at, use)
					return
				}
				if at > rounds {
					return
				}
			}
		})
	}
	for i := range rounds + 1 {
		w := charged("n/k", int64(i+1))
		w.EnforceLimits = false
		l.write(w)
	}
	wg.Wait()
	// Between a statement and the mark from which on it is true, the one before it counts.
	entry, err := proto.Encode(proto.KindWrite, charged("n/k", 5))
	must.OK(t, err)
	l.index++
	if _, err := l.s.Apply(l.index, 1, entry); err != nil {
		t.Fatal(err)
	}
	l.s.ledger.show(l.s.now.Applied)
	if use, at := l.s.Usage("q", "n/q"); at != l.s.Applied() || len(use) != 2 || use[0].Used != int64(rounds)+1 {
		t.Errorf("before the mark: %v as of %d", use, at)
	}
	l.s.Publish()
	if use, _ := l.s.Usage("q", "n/q"); use[0].Used != 5 {
		t.Errorf("behind it: %v", use)
	}
	// What has gone is not shown, and not kept.
	l.write(&proto.Write{Table: "q", Key: "n/q", Op: proto.Op_OP_DELETE})
	if use, _ := l.s.Usage("q", "n/q"); use != nil || l.s.ledger.limited != 0 {
		t.Errorf("limits that are gone: %v", use)
	}
	// In one batch: gone and there again.
	l.write(limiting("n/q", 7))
	for _, w := range []*proto.Write{{Table: "q", Key: "n/q", Op: proto.Op_OP_DELETE}, limiting("n/q", 8)} {
		entry, err := proto.Encode(proto.KindWrite, w)
		must.OK(t, err)
		l.index++
		if _, err := l.s.Apply(l.index, 1, entry); err != nil {
			t.Fatal(err)
		}
	}
	if use, at := l.s.Usage("q", "n/q"); use[0].Max != 7 || at != l.s.Applied() {
		t.Errorf("before it is published: %v as of %d", use, at)
	}
	l.s.Publish()
	if use, _ := l.s.Usage("q", "n/q"); len(use) != 2 || use[0].Max != 8 || use[0].Used != 5 {
		t.Errorf("after it: %v", use)
	}
	if err := l.s.Check(); err != nil {
		t.Error(err)
	}
}

// BenchmarkCharge is what limits cost the write of an object that uses two things: none
// anywhere, some in other namespaces, and one with ten bounds in its own.
func BenchmarkCharge(b *testing.B) {
	usage := &proto.Usage{Amounts: []*proto.Amount{{Name: "cpu", Value: 1}, {Name: "pods", Value: 1}}}
	limits := []*proto.Limit{{Bounds: []*proto.Bound{{Name: "pods", Max: 1 << 40}, {Name: "cpu", Max: 1 << 40}}}}
	for i := range 8 {
		limits[0].Bounds = append(limits[0].Bounds, &proto.Bound{Name: fmt.Sprint("other", i), Max: 1})
	}
	for _, c := range []struct {
		name      string
		usage     *proto.Usage
		namespace string
	}{{"plain,none", nil, ""}, {"plain,elsewhere", nil, "other"}, {"none", usage, ""}, {"elsewhere", usage, "other"}, {"here", usage, "default"}} {
		b.Run(c.name, func(b *testing.B) {
			l, _ := filled(b, 1000)
			for i := range 1000 {
				if c.namespace == "other" {
					l.write(&proto.Write{Table: "q", Key: fmt.Sprint("other", i, "/q"), Op: proto.Op_OP_PUT, Limits: limits})
				}
			}
			if c.namespace == "default" {
				l.write(&proto.Write{Table: "q", Key: "default/q", Op: proto.Op_OP_PUT, Limits: limits})
			}
			t := l.s.Table("t")
			it, live := t.newest("default/object-000001")
			w := benchWrite(1, nil)
			w.EnforceLimits, w.Usage = true, c.usage
			v := &Version{Key: it.key, Revision: live.Revision + 1, charge: chargeOf(c.usage, nil)}
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				if l.s.exceeded(w, v.charge, live) != nil {
					b.Fatal("exceeded")
				}
				l.s.settle(t, live, v)
				l.s.settle(t, v, live)
			}
		})
	}
}

// BenchmarkNewLimits is what other limits cost in a namespace of many keys: of as many different
// facts as classes says, with one bound or two requirements too.
func BenchmarkNewLimits(b *testing.B) {
	for _, c := range []struct{ keys, classes int }{{1_000, 1}, {100_000, 1}, {100_000, 16}, {100_000, 10_000}} {
		b.Run(fmt.Sprintf("keys=%d,classes=%d", c.keys, c.classes), func(b *testing.B) {
			l := &log{TB: b, s: New()}
			for i := range c.keys {
				w := charged(fmt.Sprintf("n/%06d", i), 1)
				if c.classes > 1 {
					w.Usage.Facts = []*proto.Attribute{{Name: "f", Value: fmt.Sprint(i % c.classes)}}
				}
				l.write(w)
			}
			t := l.s.table("q")
			var old *Version
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				v := &Version{Key: "n/q", charge: chargeOf(nil, limiting("n/q", int64(i+1)).Limits)}
				l.s.settle(t, old, v)
				old = v
			}
		})
	}
}

// BenchmarkManyLimits is the write of an object that uses two things, in a namespace with a
// thousand limits, each with a thousand bounds, of which some are about what it uses.
func BenchmarkManyLimits(b *testing.B) {
	for _, about := range []int{0, 1, 1000} {
		b.Run(fmt.Sprintf("about=%d", about), func(b *testing.B) {
			l := &log{TB: b, s: New()}
			for i := range 1000 {
				w := &proto.Write{Table: "q", Key: fmt.Sprintf("n/q%04d", i), Op: proto.Op_OP_PUT, Limits: []*proto.Limit{{}}}
				if i < about {
					w.Limits[0].Bounds = append(w.Limits[0].Bounds, &proto.Bound{Name: "cpu", Max: 1 << 40})
				}
				for j := len(w.Limits[0].Bounds); j < 1000; j++ {
					w.Limits[0].Bounds = append(w.Limits[0].Bounds, &proto.Bound{Name: fmt.Sprint("other", j), Max: 1})
				}
				l.write(w)
			}
			w := charged("n/k", 1)
			w.Usage.Amounts = []*proto.Amount{{Name: "cpu", Value: 1}, {Name: "pods", Value: 1}}
			t := l.s.table("t")
			v := &Version{Key: w.Key, charge: chargeOf(w.Usage, nil)}
			gone := &Version{Key: w.Key, Deleted: true}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				if l.s.exceeded(w, v.charge, nil) != nil {
					b.Fatal("exceeded")
				}
				l.s.settle(t, nil, v)
				l.s.settle(t, v, gone)
				if i%2 == 0 {
					l.s.Publish()
				}
			}
		})
	}
}
