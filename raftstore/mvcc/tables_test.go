package mvcc

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/quorate/quorate/proto"
)

// applied applies an entry at the next index.
func applied(t testing.TB, s *State, kind proto.Kind, m proto.Message) Result {
	t.Helper()
	b, err := proto.Encode(kind, m)
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Apply(proto.RaftIndex(s.now.Applied+1), 1, b)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func putInto(table, key string) *proto.Write {
	return &proto.Write{Table: table, Key: key, Op: proto.Op_OP_PUT, Value: []byte(`{}`)}
}

// TestManyTables: what a new table costs does not depend on how many there are.
func TestManyTables(t *testing.T) {
	const tables, most = 20_000, 16 << 10 // bytes each
	s := New()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range tables {
		applied(t, s, proto.KindWrite, putInto(fmt.Sprintf("kind%05d", i), "ns/p"))
	}
	s.Publish()
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / tables; each > most {
		t.Errorf("%d tables have allocated %d bytes each, want %d at most", tables, each, most)
	}
	n := 0
	for name, table := range s.Tables() {
		if table.Name() != name || s.Table(name) != table {
			t.Fatalf("table %s is found under %s", table.Name(), name)
		}
		n++
	}
	if n != tables {
		t.Errorf("%d tables, want %d", n, tables)
	}
}
