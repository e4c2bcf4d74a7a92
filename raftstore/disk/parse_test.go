package disk

import (
	"bytes"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	pb "google.golang.org/protobuf/proto"
)

// seedRecords are usual records and such that are left to protobuf.
func seedRecords(t testing.TB) (out [][]byte) {
	t.Helper()
	id := bytes.Repeat([]byte{7}, proto.RequestIDSize)
	a := func(pairs ...string) (out []*proto.Attribute) {
		for i := 0; i < len(pairs); i += 2 {
			out = append(out, &proto.Attribute{Name: pairs[i], Value: pairs[i+1]})
		}
		return out
	}
	for _, r := range []*proto.VersionRecord{
		{},
		{Revision: 9, CreateRevision: 9, Table: "configmaps", Key: "ns/a", Value: []byte(`{"a":1}`), RevisionOffset: 3, Uid: "u", RequestId: id},
		{Revision: 10, CreateRevision: 9, Table: "configmaps", Key: "ns/a", Deleted: true, Value: []byte("x"), Labels: a("l", "1", "m", ""), Fields: a("metadata.name", "a"), Flags: 3},
		{Revision: 11, CreateRevision: 11, Table: "pods", Key: "ns/b", Labels: a("ä", "ö"), Flags: 1 << 31},
		{Revision: 12, CreateRevision: 12, Table: "pods", Key: "ns/c", Usage: &proto.Usage{Amounts: []*proto.Amount{{Name: "cpu", Value: 5}}}},
		{Revision: 13, CreateRevision: 13, Table: "quotas", Key: "ns/q", Limits: []*proto.Limit{{Bounds: []*proto.Bound{{Name: "cpu", Max: 9}}}}, Fields: a("f", "g")},
	} {
		b, err := proto.Encode(proto.KindVersionRecord, r)
		must.OK(t, err)
		out = append(out, b)
	}
	return append(out, []byte{1}, []byte{1, byte(proto.KindStateRecord), 8, 1},
		append(bytes.Clone(out[1]), 0xf8, 0x07, 1), // a field that is not known
		append(bytes.Clone(out[1]), 8, 4),          // revision, twice
		append(bytes.Clone(out[1]), 0x22, 1, 0xff), // a key that is no text
	)
}

// A record is what protobuf makes of it, whatever the record before it was.
func FuzzVersionParser(f *testing.F) {
	seeds := seedRecords(f)
	for _, first := range seeds {
		for _, second := range seeds {
			f.Add(first, second)
		}
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		var p versionParser
		var got proto.VersionRecord
		for _, payload := range [][]byte{first, second} {
			var want proto.VersionRecord
			wantErr := decodeVersion(payload, &want)
			err := p.parse(bytes.Clone(payload), &got)
			if (err == nil) != (wantErr == nil) {
				t.Fatalf("%x: %v, want %v", payload, err, wantErr)
			}
			if err == nil && !pb.Equal(&got, &want) {
				t.Fatalf("%x:\n%v, want\n%v", payload, &got, &want)
			}
		}
	})
}

// Nothing of a record aliases what it was parsed from: that is a page of the file.
func TestParsedRecordStandsAlone(t *testing.T) {
	for _, payload := range seedRecords(t) {
		var want, got proto.VersionRecord
		if decodeVersion(payload, &want) != nil {
			continue
		}
		page := bytes.Clone(payload)
		var p versionParser
		must.OK(t, p.parse(page, &got))
		clear(page)
		if !pb.Equal(&got, &want) {
			t.Errorf("%v, want %v", &got, &want)
		}
	}
}

// The usual record does not go by way of protobuf.
func TestUsualRecords(t *testing.T) {
	var p versionParser
	var r proto.VersionRecord
	for i, payload := range seedRecords(t)[1:4] {
		if !p.usual(payload, &r) {
			t.Errorf("record %d was left to protobuf", i)
		}
	}
}
