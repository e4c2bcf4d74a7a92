package mvcc

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
)

// fullEntries are entries with every field set, by kind.
func fullEntries() map[proto.Kind]proto.Message {
	return map[proto.Kind]proto.Message{
		proto.KindWrite: &proto.Write{
			Table: "t", Key: "n/k", Op: proto.Op_OP_PUT, Value: []byte("v"),
			Guard: &proto.Guard{Table: "g", Key: "k"}, SecondGuard: &proto.Guard{Table: "h", Key: "k"},
			Labels: []*proto.Attribute{{Name: "a", Value: "b"}}, Fields: []*proto.Attribute{{Name: "c", Value: "d"}},
			DecidedAt: 1, RuleRanges: []*proto.RuleRange{{Table: "t", Prefix: "k", Uid: "u"}}, Usage: fullUsage(), Limits: fullLimits(),
		},
		proto.KindCompact: &proto.Compact{Floor: 1},
		proto.KindNewTerm: &proto.NewTerm{Term: 1, LeaderId: "a"},
		proto.KindCluster: &proto.Cluster{ClusterId: "c", FeatureVersion: 1},
	}
}

func fullUsage() *proto.Usage {
	return &proto.Usage{Facts: []*proto.Attribute{{Name: "f", Value: "v"}}, MoreFacts: []*proto.Attribute{{Name: "f", Value: "w"}}, Amounts: []*proto.Amount{{Name: "a", Value: 1}}}
}

func fullLimits() []*proto.Limit {
	return []*proto.Limit{{
		Requirements: []*proto.Requirement{{Name: "f", Operator: proto.Operator_OPERATOR_IN, Values: []string{"v"}}},
		Bounds:       []*proto.Bound{{Name: "a", Max: 1, Table: "t"}},
	}}
}

// TestFeaturesAreComplete: anyone who gives entries a field, a value or a flag says with
// which feature version it comes.
func TestFeaturesAreComplete(t *testing.T) {
	found := map[protoreflect.FullName]bool{}
	newest := uint32(0)
	part := func(name protoreflect.FullName) {
		found[name] = true
		v, ok := features.Parts[name]
		if !ok || v < 1 || v > FeatureVersion {
			t.Errorf("%s comes with feature version %d (%v), this release supports %d", name, v, ok, FeatureVersion)
		}
		newest = max(newest, v)
	}
	var walk func(protoreflect.MessageDescriptor)
	walk = func(d protoreflect.MessageDescriptor) {
		for i := range d.Fields().Len() {
			f := d.Fields().Get(i)
			part(f.FullName())
			if f.Message() != nil {
				walk(f.Message())
			}
			for j := 0; f.Enum() != nil && j < f.Enum().Values().Len(); j++ {
				part(f.Enum().Values().Get(j).FullName())
			}
		}
	}
	for kind, m := range fullEntries() {
		if _, ok := features.Kinds[kind]; !ok {
			t.Errorf("kind %d is in no feature version", kind)
		}
		walk(m.ProtoReflect().Descriptor())
	}
	for name := range features.Parts {
		if !found[name] {
			t.Errorf("%s is no part of an entry", name)
		}
	}
	for _, table := range []uint32{newest, maxOf(features.Kinds), maxOf(features.Flags), maxOf(features.Tables)} {
		newest = max(newest, table)
	}
	if newest != FeatureVersion {
		t.Errorf("the newest part came with feature version %d, this release supports %d", newest, FeatureVersion)
	}
	flags := uint32(0)
	for bit := range features.Flags {
		flags |= bit
	}
	if flags != knownFlags {
		t.Errorf("flags %x are in the table, Apply knows %x", flags, knownFlags)
	}
}

func maxOf[K comparable](table map[K]uint32) (v uint32) {
	for _, x := range table {
		v = max(v, x)
	}
	return v
}

// TestNeeds plays a release in which some parts have come with versions 2 to 5.
func TestNeeds(t *testing.T) {
	f := featureTable{Kinds: maps.Clone(features.Kinds), Flags: maps.Clone(features.Flags), Parts: maps.Clone(features.Parts)}
	f.Parts["quorate.v1.Write.second_guard"] = 2
	f.Parts["quorate.v1.CONDITION_EXISTS"] = 3
	f.Flags[4] = 4
	f.Parts["quorate.v1.Attribute.value"] = 5
	f.Kinds[9] = 3
	f.Tables = map[string]uint32{"quorate/later": 3}
	for name, c := range map[string]struct {
		kind proto.Kind
		m    proto.Message
		want uint32
	}{
		"old parts only":              {proto.KindWrite, &proto.Write{Table: "t", Key: "k", Op: proto.Op_OP_PUT, Guard: &proto.Guard{Table: "g"}, Flags: 1}, 1},
		"a newer field":               {proto.KindWrite, &proto.Write{SecondGuard: &proto.Guard{}}, 2},
		"a newer value":               {proto.KindWrite, &proto.Write{Condition: proto.Condition_CONDITION_EXISTS}, 3},
		"a newer flag":                {proto.KindWrite, &proto.Write{Flags: 5}, 4},
		"a flag that is nowhere":      {proto.KindWrite, &proto.Write{Flags: 1 << 31}, unheard},
		"a value that is nowhere":     {proto.KindWrite, &proto.Write{Op: 77}, unheard},
		"a newer table":               {proto.KindWrite, &proto.Write{Table: "quorate/later", Key: "k"}, 3},
		"a deletion in it":            {proto.KindWrite, &proto.Write{Table: "quorate/later", Key: "k", Op: proto.Op_OP_DELETE}, 3},
		"inside a list":               {proto.KindWrite, &proto.Write{Labels: []*proto.Attribute{{Name: "a"}, {Value: "b"}}}, 5},
		"the newest counts":           {proto.KindWrite, &proto.Write{SecondGuard: &proto.Guard{}, Flags: 4, Condition: proto.Condition_CONDITION_EXISTS}, 4},
		"a newer kind":                {9, &proto.Compact{Floor: 1}, 3},
		"a kind that is nowhere":      {10, &proto.Compact{}, unheard},
		"another kind, old parts":     {proto.KindCompact, &proto.Compact{Floor: 1}, 1},
		"a field that is nowhere":     {proto.KindWrite, withUnknown(&proto.Write{}), unheard},
		"one inside, that is nowhere": {proto.KindWrite, &proto.Write{Guard: withUnknown(&proto.Guard{}).(*proto.Guard)}, unheard},
	} {
		if got := f.needs(c.kind, c.m); got != c.want {
			t.Errorf("%s: needs %d, want %d", name, got, c.want)
		}
	}
}

// withUnknown gives a message a field of a later release.
func withUnknown(m proto.Message) proto.Message {
	m.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 999, protowire.VarintType), 1))
	return m
}

// everywhere calls f once for every message inside m, m first, with a function that
// takes the unknown field off again.
func everywhere(m protoreflect.Message, f func(where protoreflect.FullName)) {
	withUnknown(m.Interface())
	f(m.Descriptor().FullName())
	m.SetUnknown(nil)
	m.Range(func(d protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case d.Message() == nil:
		case d.IsList():
			for i := range v.List().Len() {
				everywhere(v.List().Get(i).Message(), f)
			}
		default:
			everywhere(v.Message(), f)
		}
		return true
	})
}

// TestUnknownFieldsStop: what a later release has written, and this one would ignore,
// stops the state machine, wherever in the entry it is, and is never proposed.
func TestUnknownFieldsStop(t *testing.T) {
	places := 0
	for kind, m := range fullEntries() {
		everywhere(m.ProtoReflect(), func(where protoreflect.FullName) {
			places++
			frame, err := proto.Encode(kind, m)
			must.OK(t, err)
			s := New()
			before := s.now
			if _, err := s.Apply(5, 1, frame); !errors.Is(err, proto.ErrUnknownKind) {
				t.Errorf("kind %d, a field in %s: %v, want that the node stops", kind, where, err)
			}
			if s.now != before || s.tables.Load().Len() != 0 {
				t.Errorf("kind %d, a field in %s: it has left something", kind, where)
			}
			if w, ok := m.(*proto.Write); ok {
				if err := Validate(w); !errors.Is(err, ErrInvalid) {
					t.Errorf("a field in %s may be proposed: %v", where, err)
				}
			}
		})
		frame, err := proto.Encode(kind, m)
		must.OK(t, err)
		if _, err := New().Apply(5, 1, frame); err != nil {
			t.Errorf("kind %d without unknown fields: %v", kind, err)
		}
	}
	if places != 12+4 {
		t.Errorf("%d places were tried", places)
	}
	w := fullEntries()[proto.KindWrite].(*proto.Write)
	w.Flags = 1 << 9
	frame, err := proto.Encode(proto.KindWrite, w)
	must.OK(t, err)
	if _, err := New().Apply(5, 1, frame); !errors.Is(err, proto.ErrUnknownKind) {
		t.Errorf("an unknown flag: %v", err)
	}
}

// TestUnknownRules: a bit that a later release has given a meaning is not passed over, and
// rules are not named in vain.
func TestUnknownRules(t *testing.T) {
	for _, c := range []struct {
		name  string
		w     *proto.Write
		stops bool
	}{
		{"a bit of a later release", &proto.Write{DecidedAt: 1, Rules: proto.AllRules + 1}, true},
		{"no revision to check by", &proto.Write{Rules: 1}, false},
		{"none for ranges", &proto.Write{RuleRanges: []*proto.RuleRange{{Table: "t"}}}, false},
		{"too many ranges", &proto.Write{DecidedAt: 1, RuleRanges: slices.Repeat([]*proto.RuleRange{{Table: "t"}}, maxRuleRanges+1)}, false},
	} {
		w := c.w
		w.Table, w.Key, w.Op = "t", "k", proto.Op_OP_PUT
		if err := Validate(w); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s may be proposed: %v", c.name, err)
		}
		frame, err := proto.Encode(proto.KindWrite, w)
		must.OK(t, err)
		if _, err := New().Apply(5, 1, frame); errors.Is(err, proto.ErrUnknownKind) != c.stops {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestUnknownFieldsOfRecords: a state that a later release has written is not loaded
// without them.
func TestUnknownFieldsOfRecords(t *testing.T) {
	if err := New().LoadState(withUnknown(&proto.StateRecord{Applied: 9}).(*proto.StateRecord)); !errors.Is(err, proto.ErrUnknownKind) {
		t.Errorf("the state's record: %v", err)
	}
	v := &proto.VersionRecord{
		Revision: 3, CreateRevision: 3, Table: "t", Key: "k",
		Labels: []*proto.Attribute{{Name: "a"}}, Fields: []*proto.Attribute{{Name: "b"}},
		Usage: fullUsage(), Limits: fullLimits(),
	}
	everywhere(v.ProtoReflect(), func(where protoreflect.FullName) {
		s := New()
		must.OK(t, s.LoadState(&proto.StateRecord{Applied: 9}))
		if err := s.LoadVersion(v); !errors.Is(err, proto.ErrUnknownKind) {
			t.Errorf("a version with a field in %s: %v", where, err)
		}
	})
}

// TestFeatureVersionNeverFalls applies Cluster entries one after the other.
func TestFeatureVersionNeverFalls(t *testing.T) {
	s := New()
	for i, c := range []struct {
		entry *proto.Cluster
		term  proto.Term
		want  string
	}{
		{&proto.Cluster{ClusterId: "a", FeatureVersion: 1}, 1, "a 1"},
		{&proto.Cluster{ClusterId: "a", FeatureVersion: 3, Term: 1}, 1, "a 3"},
		{&proto.Cluster{ClusterId: "a", FeatureVersion: 2, Term: 1}, 1, "a 3"},
		{&proto.Cluster{ClusterId: "a", FeatureVersion: 5, Term: 1}, 2, "a 3"},
		{&proto.Cluster{ClusterId: "b", FeatureVersion: 5, Term: 2}, 2, "b 5"},
		{&proto.Cluster{ClusterId: "b"}, 3, "b 5"},
	} {
		frame, err := proto.Encode(proto.KindCluster, c.entry)
		must.OK(t, err)
		if _, err := s.Apply(proto.RaftIndex(i+1), c.term, frame); err != nil {
			t.Fatal(err)
		}
		if m := s.Mark(); s.Feature() != s.now.Feature || i == 0 && m.Feature != 0 {
			t.Errorf("the writer sees %d, readers %d before they may", s.Feature(), m.Feature)
		}
		s.Publish()
		if m := s.Mark(); fmt.Sprint(m.Cluster, " ", m.Feature) != c.want {
			t.Errorf("entry %d: %s %d, want %s", i, m.Cluster, m.Feature, c.want)
		}
	}
}
