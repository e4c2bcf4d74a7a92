package wal

import (
	"math/rand/v2"
	"testing"

	"github.com/hashicorp/raft"
)

// TestKillInACut ends the process between the removals of two segments. The entries that
// the second one follows are in the first one.
func TestKillInACut(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 1))
	dir, o := t.TempDir(), Options{SegmentBytes: 4 << 10}
	w, err := Open(dir, o)
	must(t, err)
	m := &model{logs: map[uint64]*raft.Log{}}
	store := func(from uint64, n, size int) {
		batch := entries(rng, 1, from, n, size)
		must(t, w.StoreLogs(batch))
		m.store(batch)
	}
	store(1, 3, 1000)
	store(4, 3, 1000) // in the second segment
	if s := w.tail(); s.number != 2 || s.base != 4 {
		t.Fatalf("segment %d begins with entry %d", s.number, s.base)
	}
	must(t, w.DeleteRange(4, 6)) // nothing is left in it
	m.remove(4, 6)
	store(4, 9, 1000)
	killed := false
	for more := true; more && !killed; killed = true {
		more, err = w.DeleteFront(5)
		must(t, err)
		m.remove(1, 5)
		if !more {
			t.Fatal("the cut removed a single segment")
		}
	}
	must(t, w.Close())
	w, err = Open(dir, o)
	must(t, err)
	m.check(t, w)
	must(t, w.Close())
}
