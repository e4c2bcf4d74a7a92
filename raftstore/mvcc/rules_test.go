package mvcc

import (
	"fmt"
	"slices"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
)

// TestRulesAfterALoad has a state that lived through a history and one that was loaded
// from its records answer every question: decided at any index, by each rule.
func TestRulesAfterALoad(t *testing.T) {
	lived := &log{TB: t, s: New()}
	records := map[proto.Revision]*proto.VersionRecord{}
	note := func(r Result) {
		if r.Version != nil {
			records[r.Version.Revision] = r.Version.Record(r.Table.Name())
		}
		for _, rev := range r.Removed {
			delete(records, rev)
		}
	}
	// Every rule's table: a key that is only below the floor, one with a tombstone there,
	// one that changes above it, and a table that is empty when it is loaded.
	for i, r := range proto.Rules {
		for j, op := range []proto.Op{proto.Op_OP_PUT, proto.Op_OP_PUT, proto.Op_OP_DELETE}[:1+i%3] {
			key := []string{"ns", "ns/a"}[i/3%2]
			if j > 0 {
				key = "other/b"
			}
			note(lived.entry(proto.Encode(proto.KindWrite, &proto.Write{Table: r.Table, Key: key, Op: op, Value: []byte("v")})))
		}
	}
	floor := lived.s.Applied() - 7
	note(lived.entry(proto.Encode(proto.KindCompact, &proto.Compact{Floor: uint64(floor)})))
	for i, r := range proto.Rules {
		if i%4 != 0 {
			note(lived.entry(proto.Encode(proto.KindWrite, &proto.Write{Table: r.Table, Key: "ns/a", Op: proto.Op_OP_PUT, Uid: "u", Flags: uint32(i % 4), Value: []byte("v")})))
		}
	}
	loaded := load(t, lived.s, records)
	changed := map[bool]int{}
	for at := proto.Revision(1); at <= lived.s.Applied()+2; at++ {
		for bit := range proto.Rules {
			for _, key := range []string{"ns", "ns/x", "other/x"} {
				w := &proto.Write{Table: "t", Key: key, DecidedAt: uint64(at), Rules: 1 << bit}
				r := &proto.Write{Table: "t", Key: key, DecidedAt: uint64(at), RuleRanges: []*proto.RuleRange{{Table: proto.Rules[bit].Table, Prefix: key}}}
				one := &proto.Write{Table: "t", Key: key, DecidedAt: uint64(at), RuleRanges: []*proto.RuleRange{{Table: proto.Rules[bit].Table, Prefix: "ns/a", Uid: "u"}}}
				for _, w := range []*proto.Write{w, r, one} {
					a, b := lived.s.rulesChanged(w, lived.s.Applied()+1), loaded.rulesChanged(w, loaded.Applied()+1)
					if a != b {
						t.Errorf("%v: changed %v, on a node that was loaded %v", w, a, b)
					}
					if at >= floor {
						changed[a]++
					}
				}
			}
		}
	}
	if changed[true] < 100 || changed[false] < 100 {
		t.Errorf("the history asks too little: %v", changed)
	}
}

// load is a state from the records that a disk would hold.
func load(t testing.TB, of *State, records map[proto.Revision]*proto.VersionRecord) *State {
	t.Helper()
	s := New()
	must.OK(t, s.LoadState(of.StateRecord()))
	revisions := make([]proto.Revision, 0, len(records))
	for rev := range records {
		revisions = append(revisions, rev)
	}
	slices.Sort(revisions)
	for _, rev := range revisions {
		must.OK(t, s.LoadVersion(records[rev]))
	}
	s.Publish()
	must.OK(t, s.Check())
	return s
}

// TestRulesOfIdentity: of an object that a decision follows from being there, only its end counts,
// and what becomes of it once it is being deleted.
func TestRulesOfIdentity(t *testing.T) {
	l := &log{TB: t, s: New()}
	put := func(uid string, flags uint32) {
		l.entry(proto.Encode(proto.KindWrite, &proto.Write{Table: "pods", Key: "ns/p", Op: proto.Op_OP_PUT, Uid: uid, Flags: flags, Value: []byte("v")}))
	}
	remove := func() {
		l.entry(proto.Encode(proto.KindWrite, &proto.Write{Table: "pods", Key: "ns/p", Op: proto.Op_OP_DELETE}))
	}
	for _, row := range []struct {
		name   string
		change func()
		want   bool
	}{
		{"never there", func() {}, true},
		{"another one", func() { put("u2", 0) }, true},
		{"there", func() { put("u1", 0) }, false},
		{"changed", func() { put("u1", 0) }, false},
		{"ends", func() { put("u1", proto.FlagTerminating) }, true},
		{"is still ending", func() {}, false},
		{"ends sooner", func() { put("u1", proto.FlagTerminating) }, true},
		{"gone", remove, true},
		{"still gone", func() {}, true},
		{"replaced", func() { put("u2", 0) }, true},
	} {
		w := &proto.Write{Table: "t", Key: "ns/x", DecidedAt: uint64(l.s.Applied()), RuleRanges: []*proto.RuleRange{{Table: "pods", Prefix: "ns/p", Uid: "u1"}}}
		if w.DecidedAt == 0 {
			l.put("something")
			w.DecidedAt = uint64(l.s.Applied())
		}
		row.change()
		if got := l.s.rulesChanged(w, l.s.Applied()+1); got != row.want {
			t.Errorf("%s: changed %v, want %v", row.name, got, row.want)
		}
	}
}

// TestRulesWalkIsBounded: behind too many changes of others the answer is that one may
// count.
func TestRulesWalkIsBounded(t *testing.T) {
	l := &log{TB: t, s: New()}
	for i := range maxRuleWalk {
		l.put(fmt.Sprint("other/", i%10))
	}
	w := &proto.Write{Table: "u", Key: "ns/a", Op: proto.Op_OP_PUT, DecidedAt: 1, RuleRanges: []*proto.RuleRange{{Table: "t", Prefix: "ns/"}}}
	if l.s.rulesChanged(w, l.s.Applied()+1) {
		t.Error("changes of others count")
	}
	l.put("other/1")
	l.put("other/1")
	if !l.s.rulesChanged(w, l.s.Applied()+1) {
		t.Error("more versions were looked at than maxRuleWalk")
	}
	w.DecidedAt = 2
	if l.s.rulesChanged(w, l.s.Applied()+1) {
		t.Error("as many as may be looked at are too many")
	}
}

// BenchmarkRules is what the check of all rules costs, each with a table, by what has
// changed since: nothing, others' rules, and one whose scope is to be looked at.
func BenchmarkRules(b *testing.B) {
	l, _ := filled(b, 1_000)
	for _, r := range proto.Rules {
		l.entry(proto.Encode(proto.KindWrite, &proto.Write{Table: r.Table, Key: "default/a", Op: proto.Op_OP_PUT, Value: []byte("v")}))
	}
	w := benchWrite(1, nil)
	w.Rules, w.DecidedAt = proto.AllRules, uint64(l.s.Applied())
	for _, change := range []string{"", "t", "limitranges"} {
		if change != "" {
			l.entry(proto.Encode(proto.KindWrite, &proto.Write{Table: change, Key: "other/a", Op: proto.Op_OP_PUT, Value: []byte("v")}))
		}
		b.Run("changed="+change, func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				if l.s.rulesChanged(w, l.s.Applied()+1) {
					b.Fatal("refused")
				}
			}
		})
	}
}

// BenchmarkRulesOfIdentity is what it costs to look whether a service account and a Pod are there.
func BenchmarkRulesOfIdentity(b *testing.B) {
	l, _ := filled(b, 1_000)
	w := benchWrite(1, nil)
	for _, table := range []string{"serviceaccounts", "pods"} {
		l.entry(proto.Encode(proto.KindWrite, &proto.Write{Table: table, Key: "default/a", Op: proto.Op_OP_PUT, Uid: "u", Value: []byte("v")}))
		w.RuleRanges = append(w.RuleRanges, &proto.RuleRange{Table: table, Prefix: "default/a", Uid: "u"})
	}
	w.DecidedAt = uint64(l.s.Applied())
	b.ReportAllocs()
	for b.Loop() {
		if l.s.rulesChanged(w, l.s.Applied()+1) {
			b.Fatal("refused")
		}
	}
}
