package disk

import (
	"bytes"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// A record is what protobuf makes of it, byte by byte: sums and totals of files are of these
// bytes, and so is what nodes send each other.
func FuzzEncodeVersion(f *testing.F) {
	long := strings.Repeat("l", 200)
	f.Add(uint64(9), uint64(9), "configmaps", "ns/a", false, []byte(`{"a":"9"}`), uint32(6), "u-1", "app", "x", 1, uint32(0), true)
	f.Add(uint64(1)<<40, uint64(7), "pods", "ns/ä", true, []byte("last words"), uint32(0), long, long, "", 12, proto.FlagTerminating, true)
	f.Add(uint64(1), uint64(0), "", "", false, []byte{}, uint32(0), "", "", "", 1, uint32(1<<31), false)
	f.Add(uint64(300), uint64(128), long, long, false, bytes.Repeat([]byte("v"), 70_000), uint32(128), "u", "", long, 130, uint32(0), true)
	f.Fuzz(func(t *testing.T, revision, created uint64, table, key string, deleted bool, value []byte, offset uint32, uid, name, label string, n int, flags uint32, id bool) {
		for _, s := range []*string{&table, &key, &uid, &name, &label} {
			*s = strings.ToValidUTF8(*s, "?")
		}
		var pairs []mvcc.Pair
		for i := range max(0, min(n, 200)) {
			pairs = append(pairs, mvcc.Pair{Name: name + strings.Repeat("+", i), Value: label})
		}
		v := &mvcc.Version{
			Key: key, UID: uid, Revision: proto.Revision(revision), CreateRevision: proto.Revision(created), Flags: flags,
			RevisionOffset: offset, Deleted: deleted, Labels: mvcc.AttributesOf(pairs...), Fields: mvcc.AttributesOf(mvcc.Pair{Name: label, Value: name}),
		}
		if v.SetValue(value); id {
			copy(v.RequestID[:], "sixteen bytes at most")
		}
		want, err := proto.Encode(proto.KindVersionRecord, v.Record(table))
		must.OK(t, err)
		got, err := encodeVersion(table, v)
		must.OK(t, err)
		if payload, _, err := open(got); err != nil || !bytes.Equal(payload, want) {
			t.Fatalf("%x, want %x: %v", payload, want, err)
		}
		if short := versionRoom(table, v); n <= 20 && len(got) > short {
			t.Errorf("%d bytes, room for %d", len(got), short)
		}
	})
}

// BenchmarkEncodeVersion is a record of a flush: a ConfigMap of 1 KiB.
func BenchmarkEncodeVersion(b *testing.B) {
	v := &mvcc.Version{
		Key: "bench/object-000001", UID: "0d4f2f5e-8a0e-4a57-b3a5-8c2b7d0f1c11", Revision: 123456, CreateRevision: 123456, RevisionOffset: 180,
		Labels: mvcc.AttributesOf(mvcc.Pair{Name: "app", Value: "bench"}, mvcc.Pair{Name: "n", Value: "1"}),
		Fields: mvcc.AttributesOf(mvcc.Pair{Name: "metadata.name", Value: "object-000001"}, mvcc.Pair{Name: "metadata.namespace", Value: "bench"}),
	}
	v.SetValue(bytes.Repeat([]byte("x"), 1400))
	v.RequestID[0] = 1
	b.Run("ours", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := encodeVersion("configmaps", v); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("protobuf", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			payload, err := proto.Encode(proto.KindVersionRecord, v.Record("configmaps"))
			if err != nil {
				b.Fatal(err)
			}
			seal(payload)
		}
	})
}
