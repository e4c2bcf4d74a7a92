package disk

import (
	"bytes"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

// TestBoltFormat: raft.db is what raft-boltdb reads and writes.
func TestBoltFormat(t *testing.T) {
	type store interface {
		raft.LogStore
		raft.StableStore
		Close() error
	}
	open := map[string]func(path string) (store, error){
		"ours":        func(path string) (store, error) { return newBoltStore(path) },
		"raft-boltdb": func(path string) (store, error) { return raftboltdb.NewBoltStore(path) },
	}
	want := []*raft.Log{
		{Index: 3, Term: 1, Type: raft.LogNoop},
		{Index: 4, Term: 2, Type: raft.LogCommand, Data: []byte("data"), Extensions: []byte{0, 1, 255}},
		{Index: 5, Term: 1 << 60, Type: raft.LogConfiguration, Data: bytes.Repeat([]byte{7}, 70_000), AppendedAt: time.Unix(1_700_000_000, 123_456_789).UTC()},
	}
	for writer, create := range open {
		for reader := range open {
			path := filepath.Join(t.TempDir(), "raft.db")
			s, err := create(path)
			must(t, err)
			must(t, s.StoreLogs(want))
			must(t, s.SetUint64([]byte("CurrentTerm"), 1<<40))
			must(t, s.Set([]byte("LastVoteCand"), []byte("n@h:1")))
			must(t, s.Close())
			s, err = open[reader](path)
			must(t, err)
			first, err := s.FirstIndex()
			must(t, err)
			last, err := s.LastIndex()
			must(t, err)
			if first != 3 || last != 5 {
				t.Errorf("%s reads %d to %d of what %s wrote", reader, first, last, writer)
			}
			for _, l := range want {
				var got raft.Log
				must(t, s.GetLog(l.Index, &got))
				got.AppendedAt = got.AppendedAt.UTC()
				if !reflect.DeepEqual(&got, l) {
					t.Errorf("%s reads %+v of what %s wrote: %+v", reader, got, writer, *l)
				}
			}
			term, err := s.GetUint64([]byte("CurrentTerm"))
			must(t, err)
			vote, err := s.Get([]byte("LastVoteCand"))
			must(t, err)
			if term != 1<<40 || string(vote) != "n@h:1" {
				t.Errorf("%s reads term %d and vote %q of what %s wrote", reader, term, vote, writer)
			}
			var none raft.Log
			if err := s.GetLog(6, &none); err != raft.ErrLogNotFound {
				t.Errorf("%s: no entry: %v", reader, err)
			}
			// Raft compares the text.
			if _, err := s.Get([]byte("absent")); err == nil || err.Error() != "not found" {
				t.Errorf("%s: no key: %v", reader, err)
			}
			must(t, s.Close())
		}
	}
}

// TestDeleteFront: a piece is bounded in entries and in bytes, and ends where it is told.
func TestDeleteFront(t *testing.T) {
	for _, row := range []struct {
		name          string
		max           uint64
		n, size       int
		first         uint64 // that is left
		more          bool
		entry, stored int
	}{
		{"by entries", 900, 100, 1 << 30, 101, true, 10, 1000},
		{"by bytes", 900, 1000, 50_000, 48, true, 1000, 1000},
		{"one entry above the bytes", 900, 1000, 1, 2, true, 10, 1000},
		{"to the end of the range", 900, 1000, 1 << 30, 901, false, 10, 1000},
		{"exactly as many", 900, 900, 1 << 30, 901, false, 10, 1000},
		{"everything", 5000, 5000, 1 << 30, 0, false, 10, 1000},
		{"nothing is there", 900, 100, 1 << 30, 0, false, 10, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			b, err := newBoltStore(filepath.Join(t.TempDir(), "raft.db"))
			must(t, err)
			defer b.Close()
			must(t, b.StoreLogs(logs(1, 1, uint64(row.stored), row.entry)))
			more, err := b.DeleteFront(row.max, row.n, row.size)
			must(t, err)
			first, err := b.FirstIndex()
			must(t, err)
			if first != row.first || more != row.more {
				t.Errorf("the log begins at %d, more %v; want %d, %v", first, more, row.first, row.more)
			}
			last, err := b.LastIndex()
			must(t, err)
			var l raft.Log
			for i := first; i <= last && i > 0; i++ {
				must(t, b.GetLog(i, &l))
			}
		})
	}
}
