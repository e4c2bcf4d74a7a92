package mvcc

import (
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
)

// applied applies an entry at the next index.
func applied(t testing.TB, s *State, kind proto.Kind, m proto.Message) Result {
	t.Helper()
	b, err := proto.Encode(kind, m)
	must.OK(t, err)
	r, err := s.Apply(proto.RaftIndex(s.now.Applied+1), 1, b)
	must.OK(t, err)
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

func deleteFrom(table, key string) *proto.Write {
	return &proto.Write{Table: table, Key: key, Op: proto.Op_OP_DELETE}
}

// TestTablesAreDropped: tables whose last key was deleted go when the floor passes that, and are made
// again. What is counted is what costs: there are as many tables as have something.
func TestTablesAreDropped(t *testing.T) {
	const tables = 20_000
	s := New()
	applied(t, s, proto.KindWrite, putInto("stays", "ns/p"))
	count := func(want int) {
		t.Helper()
		s.Publish()
		if n := s.tables.Load().Len(); n != want {
			t.Fatalf("at %d, with the floor at %d: %d tables, want %d", s.Applied(), s.Floor(), n, want)
		}
	}
	for i := range tables {
		name := fmt.Sprintf("kind%05d", i)
		applied(t, s, proto.KindWrite, putInto(name, "ns/p"))
		applied(t, s, proto.KindWrite, deleteFrom(name, "ns/p"))
		if i%1000 == 999 {
			count(1 + 1000)
			applied(t, s, proto.KindCompact, &proto.Compact{Floor: uint64(s.now.Applied - 1)})
			count(1 + 1) // the newest deletion is above the floor
			applied(t, s, proto.KindCompact, &proto.Compact{Floor: uint64(s.now.Applied)})
			count(1)
		}
	}
	// One is written to in the batch of its compaction, and two are compacted twice in one.
	for _, name := range []string{"a", "b", "c"} {
		applied(t, s, proto.KindWrite, putInto(name, "k"))
		applied(t, s, proto.KindWrite, deleteFrom(name, "k"))
	}
	applied(t, s, proto.KindCompact, &proto.Compact{Floor: uint64(s.now.Applied)})
	applied(t, s, proto.KindWrite, putInto("b", "k"))
	applied(t, s, proto.KindCompact, &proto.Compact{Floor: uint64(s.now.Applied)})
	count(2)
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}

// TestDroppedTable: who has kept a table from before it was dropped is sent to look for it again, and nothing is
// found in the old one that is only in the new one.
func TestDroppedTable(t *testing.T) {
	s := New()
	applied(t, s, proto.KindWrite, putInto("t", "k"))
	s.Publish()
	old, before := s.Table("t"), s.Applied()
	cursor, err := old.Watch(before)
	must.OK(t, err)
	applied(t, s, proto.KindWrite, deleteFrom("t", "k"))
	s.Publish()
	deleted := s.Applied()
	applied(t, s, proto.KindCompact, &proto.Compact{Floor: uint64(deleted)})
	if s.Table("t") != old || s.Latest("t") != deleted {
		t.Error("the table is dropped before that is published")
	}
	s.Publish()
	if s.Table("t") != nil || s.Latest("t") != deleted || s.Latest("never") != deleted {
		t.Errorf("table %p, latest %d", s.Table("t"), s.Latest("t"))
	}
	for range 2 {
		at := s.Applied()
		if _, err := old.Get("k", at); !errors.Is(err, ErrCompacted) {
			t.Errorf("Get: %v", err)
		}
		if _, err := old.Range(Query{At: at}); !errors.Is(err, ErrCompacted) {
			t.Errorf("Range: %v", err)
		}
		if _, err := old.Watch(at); !errors.Is(err, ErrCompacted) {
			t.Errorf("Watch: %v", err)
		}
		var buf [4]*Version
		if n, err := cursor.Next(buf[:], at); n != 0 || !errors.Is(err, ErrCompacted) {
			t.Errorf("Next: %d, %v", n, err)
		}
		if n, _, err := old.Changes("k", buf[:], deleted, at+1); n != 0 || !errors.Is(err, ErrCompacted) {
			t.Errorf("Changes: %d, %v", n, err)
		}
		if old.Latest() <= at {
			t.Errorf("latest %d at %d", old.Latest(), at)
		}
		applied(t, s, proto.KindWrite, putInto("t", "k"))
		s.Publish()
	}
	if now := s.Table("t"); now == nil || now == old || s.Latest("t") != s.Applied() {
		t.Error("the table is not made again")
	}
}
