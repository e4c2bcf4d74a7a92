package mvcc

import (
	"bytes"
	"strconv"
	"strings"
	"testing"

	pb "google.golang.org/protobuf/proto"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
)

// usualWrites are writes that the parser takes itself.
func usualWrites() []*proto.Write {
	a := func(pairs ...string) (out []*proto.Attribute) {
		for i := 0; i < len(pairs); i += 2 {
			out = append(out, &proto.Attribute{Name: pairs[i], Value: pairs[i+1]})
		}
		return out
	}
	id := bytes.Repeat([]byte{7}, proto.RequestIDSize)
	return []*proto.Write{
		{},
		{
			Table: "configmaps", Key: "ns/a", Op: proto.Op_OP_PUT, Condition: proto.Condition_CONDITION_ABSENT,
			Guard: &proto.Guard{Table: "namespaces", Key: "ns"}, Value: []byte(`{"a":""}`), RevisionOffset: 6, Uid: "u-1",
			Labels: a("app", "x", "zone", ""), Fields: a("metadata.name", "a", "metadata.namespace", "ns"), RequestId: id, Since: 12,
			DecidedAt: 1 << 40, Rules: proto.AllRules, EnforceLimits: true,
		},
		{
			Table: "widgets", Key: "ns/ä", Op: proto.Op_OP_DELETE, Condition: proto.Condition_CONDITION_REVISION, ExpectRevision: 1 << 50,
			ExpectUid: "u-2", Flags: proto.FlagTerminating, Guard: &proto.Guard{}, SecondGuard: &proto.Guard{Table: "definitions", Key: "ö"}, Term: 3,
		},
		{Table: "pods", Key: "ns/p", Op: proto.Op_OP_PUT, Condition: proto.Condition_CONDITION_EXISTS, Value: []byte("as it is"), Labels: a("", "b")},
	}
}

// unusualWrites are those that it leaves to protobuf.
func unusualWrites() []*proto.Write {
	return []*proto.Write{
		{Table: "pods", Key: "ns/p", Usage: &proto.Usage{Amounts: []*proto.Amount{{Name: "cpu", Value: 5}}}},
		{Table: "quotas", Key: "ns/q", Limits: []*proto.Limit{{Bounds: []*proto.Bound{{Name: "cpu", Max: 9}}}}},
		{Table: "pods", Key: "ns/p", RuleRanges: []*proto.RuleRange{{Table: "params"}}},
		{Table: "pods", Key: "ns/p", Flags: 1 << 31},
		{Table: "pods", Key: "ns/p", Op: -1},
		withUnknown(&proto.Write{Table: "pods"}).(*proto.Write),
		{Table: "pods", Guard: withUnknown(&proto.Guard{Table: "t"}).(*proto.Guard)},
	}
}

func body(t testing.TB, w *proto.Write) []byte {
	t.Helper()
	b, err := pb.MarshalOptions{Deterministic: true}.Marshal(w)
	must.OK(t, err)
	return b
}

// What the parser makes of a body is what protobuf makes of it, whatever the body before it was.
func FuzzParser(f *testing.F) {
	var seeds [][]byte
	for _, w := range append(usualWrites(), unusualWrites()...) {
		seeds = append(seeds, body(f, w))
	}
	full := seeds[1]
	frame := append([]byte{proto.FormatVersion, byte(proto.KindWrite)}, full...)
	seeds = append(seeds, proto.InTerm(frame, 9)[2:], proto.InTerm(proto.InTerm(frame, 9), 10)[2:],
		append(bytes.Clone(full), full...), // twice: guards are merged, labels are added
		full[:len(full)-1],
		[]byte{0x0a, 1, 0xff},                   // a table that is no text
		[]byte{0x0a, 1, 0xc3, 0x12, 1, 0xa4},    // table and key that are text together only
		[]byte{0x5a, 3, 0x0a, 1, 0xff},          // a label that is none
		[]byte{0x12, 1, 0xb2, 0x12, 1, 0x30},    // a key that is no text, and one that is
		[]byte{0x3a, 2, 0x08, 0},                // a guard whose table is a number
		[]byte{0x3a, 3, 0x08, 1, 'A'},           // one with something behind it
		[]byte{0x3a, 2, 0x1a, 0},                // a guard with a third text
		[]byte{0x3a, 1, 0x80},                   // one that ends before it says what comes
		[]byte{0x08, 1},                         // a table that is a number
		[]byte{0xb8, 0x01, 2},                   // a boolean of two
		[]byte{0x48, 0x80, 0x80, 0x80, 0x80, 1}, // an offset of 33 bits
		[]byte{0x5b, 0x5c},                      // a group
	)
	for _, first := range seeds {
		for _, second := range seeds {
			f.Add(first, second)
		}
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		var p Parser
		for _, b := range [][]byte{first, second} {
			var want proto.Write
			wantErr := proto.Decode(b, &want)
			got, err := p.Parse(b)
			if (err == nil) != (wantErr == nil) {
				t.Fatalf("%x: %v, want %v", b, err, wantErr)
			}
			if err == nil && !pb.Equal(got, &want) {
				t.Fatalf("%x:\n%v, want\n%v", b, got, &want)
			}
		}
	})
}

// The usual write does not go by way of protobuf, and only the usual one.
func TestUsualWrites(t *testing.T) {
	var p Parser
	for i, w := range usualWrites() {
		if !p.usual(body(t, w)) {
			t.Errorf("write %d was left to protobuf", i)
		}
	}
	for i, w := range unusualWrites() {
		if p.usual(body(t, w)) {
			t.Errorf("unusual write %d was not left to protobuf", i)
		}
	}
}

// A state keeps nothing of an entry: the entry's bytes are the log's, and texts and values of later
// entries come into the same places of the parser.
func TestAppliedEntryStandsAlone(t *testing.T) {
	writes := []*proto.Write{
		{Table: "a", Key: "ns/1", Op: proto.Op_OP_PUT, Value: []byte("as it is"), Uid: "first", Labels: []*proto.Attribute{{Name: "l", Value: "one"}}},
		{Table: "a", Key: "ns/2", Op: proto.Op_OP_PUT, Value: []byte(`{"r":""}`), RevisionOffset: 6, Uid: "second"},
		{Table: "a", Key: "ns/1", Op: proto.Op_OP_DELETE, Value: []byte("last words"), Uid: "first"},
		{Table: "a", Key: "ns/1", Op: proto.Op_OP_PUT, Value: []byte("again"), Uid: "third"},
		{Table: "b", Key: "ns/2", Op: proto.Op_OP_PUT, Value: []byte("other"), Uid: "fourth", Labels: []*proto.Attribute{{Name: "m", Value: "two"}}},
	}
	s := New()
	for i, w := range writes {
		entry, err := proto.Encode(proto.KindWrite, w)
		must.OK(t, err)
		r, err := s.Apply(proto.RaftIndex(i+1), 1, entry)
		if err != nil || r.Version == nil {
			t.Fatalf("%v: %v %v", w, r.Outcome, err)
		}
		clear(entry)
	}
	s.Publish()
	for i, w := range writes {
		v := s.Table(w.Table).Version(w.Key, proto.Revision(i+1))
		value := bytes.Replace(w.Value, []byte(`""`), []byte(`"2"`), 1)
		if v == nil || v.Key != w.Key || v.UID != w.Uid || !bytes.Equal(v.Value(), value) || v.Labels.Len() != len(w.Labels) {
			t.Fatalf("write %d: %+v, want %v", i+1, v, w)
		}
		for _, l := range w.Labels {
			if has, _ := v.Labels.Get(l.Name); has != l.Value {
				t.Errorf("write %d: label %s is %q, want %q", i+1, l.Name, has, l.Value)
			}
		}
	}
}

// What a write of very many labels took is not kept for the writes behind it.
func TestParserForgets(t *testing.T) {
	var p Parser
	large := &proto.Write{Table: "t", Key: strings.Repeat("k", 2*keptText)}
	for i := range 2 * keptAttributes {
		large.Labels = append(large.Labels, &proto.Attribute{Name: strconv.Itoa(i)})
	}
	for _, w := range []*proto.Write{large, usualWrites()[1]} {
		if got, err := p.Parse(body(t, w)); err != nil || !pb.Equal(got, w) {
			t.Fatalf("%v %v", got, err)
		}
	}
	if len(p.made) > keptAttributes || cap(p.text) > keptText {
		t.Errorf("%d attributes and %d bytes are kept", len(p.made), cap(p.text))
	}
}

// What a write of as many labels as a parser keeps took is there for the next one: of that write only the
// texts are made anew.
func TestParserKeeps(t *testing.T) {
	w := &proto.Write{Table: "t"}
	for i := range keptAttributes {
		w.Labels = append(w.Labels, &proto.Attribute{Name: strconv.Itoa(i)})
	}
	var p Parser
	entry := body(t, w)
	if n := testing.AllocsPerRun(5, func() {
		if _, err := p.Parse(entry); err != nil {
			t.Fatal(err)
		}
	}); n > 1 {
		t.Errorf("another write of %d labels takes %v allocations", keptAttributes, n)
	}
}

// BenchmarkParse compares the parser with protobuf, on the create of a ConfigMap of 1 KiB.
func BenchmarkParse(b *testing.B) {
	w := usualWrites()[1]
	w.Value = bytes.Repeat([]byte("x"), 1400)
	entry := body(b, w)
	b.Run("parser", func(b *testing.B) {
		b.ReportAllocs()
		var p Parser
		for b.Loop() {
			if _, err := p.Parse(entry); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("protobuf", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := proto.Decode(entry, new(proto.Write)); err != nil {
				b.Fatal(err)
			}
		}
	})
}
