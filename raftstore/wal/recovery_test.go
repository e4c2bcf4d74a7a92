package wal

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/must"
)

// mix returns what a disk may have when the power goes while a file changes: each sector as
// it was, or as it shall be.
func mix(rng *rand.Rand, before, after []byte) []byte {
	out := append(bytes.Clone(before), make([]byte, max(0, len(after)-len(before)))...)
	share := rng.IntN(6)
	for at := 0; at < len(after); at += sector {
		if rng.IntN(5) < share {
			copy(out[at:min(at+sector, len(after))], after[at:])
		}
	}
	return out
}

// TestUnsyncedBatch ends the process between the write of a batch and its sync, or lets
// that sync fail. The next process reads the batch from the page cache, and the disk has
// none of it, and maybe nothing left to write either: what is told to Raft must be written
// once more. When that is under way, the test takes away what the disk never had.
func TestUnsyncedBatch(t *testing.T) {
	for _, before := range []int{0, 2} {
		t.Run(fmt.Sprintf("behind %d batches", before), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 1))
			dir, o := t.TempDir(), Options{SegmentBytes: 8 << 10}
			m, next := &model{logs: map[uint64]*raft.Log{}}, uint64(1)
			store := func(w *WAL, n int) {
				batch := entries(rng, 1, next, n, 600)
				must.OK(t, w.StoreLogs(batch))
				m.store(batch)
				next += uint64(n)
			}
			var durable image
			w, err := Open(dir, o)
			must.OK(t, err)
			for range before {
				store(w, 2)
			}
			must.OK(t, w.Close())
			durable = imageOf(t, dir)
			w, err = Open(dir, o)
			must.OK(t, err)
			store(w, 3)
			must.OK(t, w.Close())
			o.Commit = func(name string, change func() error) error {
				must.OK(t, os.WriteFile(filepath.Join(dir, name), durable[name], fileMode))
				if err := change(); err != nil {
					return err
				}
				durable = imageOf(t, dir)
				return nil
			}
			w, err = Open(dir, o)
			must.OK(t, err)
			m.check(t, w)
			must.OK(t, w.Close())
			w, err = Open(durable.write(t), Options{SegmentBytes: o.SegmentBytes})
			must.OK(t, err)
			m.check(t, w)
			must.OK(t, w.Close())
		})
	}
}

// TestPowerLossBehindAKill: a batch whose sync never came is read by the next process,
// which appends another one and loses the power in the middle.
func TestPowerLossBehindAKill(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 1))
	dir, o := t.TempDir(), Options{SegmentBytes: 64 << 10}
	w, err := Open(dir, o)
	must.OK(t, err)
	known := entries(rng, 1, 1, 4, 700)
	must.OK(t, w.StoreLogs(known))
	must.OK(t, w.Close())
	durable := imageOf(t, dir)
	unsynced := entries(rng, 1, 5, 3, 700)
	w, err = Open(dir, o)
	must.OK(t, err)
	must.OK(t, w.StoreLogs(unsynced))
	must.OK(t, w.Close())
	known = append(known, unsynced...)
	var after image
	o.Commit = func(_ string, change func() error) error {
		if after != nil {
			durable = after
		}
		if err := change(); err != nil {
			return err
		}
		after = imageOf(t, dir)
		return nil
	}
	w, err = Open(dir, o)
	must.OK(t, err)
	more := entries(rng, 1, 8, 3, 700)
	must.OK(t, w.StoreLogs(more))
	must.OK(t, w.Close())
	known = append(known, more...)
	o.Commit = nil
	for range atMost(200) {
		torn := image{}
		for name, b := range after {
			torn[name] = mix(rng, durable[name], b)
		}
		surviveTear(t, torn.write(t), o, known, 4)
	}
}

// TestKillInRecovery loses the power in the middle of a batch, ends the process in the
// recovery from that, and loses the power in the middle of the next batch: what is left
// of the first one must not be taken for a part of the second, nor for damage.
func TestKillInRecovery(t *testing.T) {
	for _, first := range []int{0, 4} { // entries before the torn batch
		t.Run(fmt.Sprintf("behind %d entries", first), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(9, uint64(first)))
			o := Options{SegmentBytes: 64 << 10}
			dir := t.TempDir()
			w, err := Open(dir, o)
			must.OK(t, err)
			known := entries(rng, 1, 1, first, 700)
			must.OK(t, w.StoreLogs(known))
			before := imageOf(t, dir)
			must.OK(t, w.StoreLogs(entries(rng, 1, uint64(first)+1, 6, 700)))
			must.OK(t, w.Close())
			after := imageOf(t, dir)
			for range atMost(60) {
				torn := image{}
				for name, b := range after {
					torn[name] = mix(rng, before[name], b)
				}
				powerLossAgain(t, rng, torn, known, o)
			}
		})
	}
}

// powerLossAgain opens a torn log, forgets that it did, except for what it has committed,
// and tears the next batch.
func powerLossAgain(t *testing.T, rng *rand.Rand, torn image, known []*raft.Log, o Options) {
	t.Helper()
	dir, durable := torn.write(t), image{}
	for name, b := range torn {
		durable[name] = b
	}
	synced := func(name string) {
		b, err := os.ReadFile(filepath.Join(dir, name))
		must.OK(t, err)
		durable[name] = b
	}
	o.Prepared = func(number uint64) error {
		synced(nameOf(number))
		return nil
	}
	var before image // the last commit
	o.Commit = func(name string, change func() error) error {
		before = image{}
		for name, b := range durable {
			before[name] = b
		}
		defer synced(name)
		return change()
	}
	w, err := Open(dir, o)
	must.OK(t, err)
	must.OK(t, w.Close())
	// Killed: dir is the page cache, which has also what was not synced.
	w, err = Open(dir, o)
	must.OK(t, err)
	last := w.LastIndex()
	all := bytesOf(t, w, last)
	next := entries(rng, 2, last+1, 6, 650)
	must.OK(t, w.StoreLogs(next))
	must.OK(t, w.Close())
	again := image{}
	for name, b := range imageOf(t, dir) {
		again[name] = mix(rng, before[name], b)
	}
	o.Commit, o.Prepared = nil, nil
	if int(last) < len(known) {
		t.Fatalf("the log ends at %d, %d were acknowledged", last, len(known))
	}
	surviveTear(t, again.write(t), o, append(all, next...), int(last))
}

// bytesOf returns the entries from 1 to last.
func bytesOf(t *testing.T, w *WAL, last uint64) (all []*raft.Log) {
	t.Helper()
	for i := uint64(1); i <= last; i++ {
		l := new(raft.Log)
		must.OK(t, w.GetLog(i, l))
		all = append(all, l)
	}
	return all
}

// TestKillInACut ends the process between the removals of two segments. The entries that
// the second one follows are in the first one.
func TestKillInACut(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 1))
	dir, o := t.TempDir(), Options{SegmentBytes: 4 << 10}
	w, err := Open(dir, o)
	must.OK(t, err)
	m := &model{logs: map[uint64]*raft.Log{}}
	store := func(from uint64, n, size int) {
		batch := entries(rng, 1, from, n, size)
		must.OK(t, w.StoreLogs(batch))
		m.store(batch)
	}
	store(1, 3, 1000)
	store(4, 3, 1000) // in the second segment
	if s := w.tail(); s.number != 2 || s.base != 4 {
		t.Fatalf("segment %d begins with entry %d", s.number, s.base)
	}
	must.OK(t, w.DeleteRange(4, 6)) // nothing is left in it
	m.remove(4, 6)
	store(4, 9, 1000)
	killed := false
	for more := true; more && !killed; killed = true {
		more, err = w.DeleteFront(5)
		must.OK(t, err)
		m.remove(1, 5)
		if !more {
			t.Fatal("the cut removed a single segment")
		}
	}
	must.OK(t, w.Close())
	w, err = Open(dir, o)
	must.OK(t, err)
	m.check(t, w)
	must.OK(t, w.Close())
}

// TestPreparationThatEnds: who is told of a segment may end the process, which in tests is
// a goroutine. Nothing is stored in that segment, and the log can be closed.
func TestPreparationThatEnds(t *testing.T) {
	for _, store := range []bool{false, true} {
		w, err := Open(t.TempDir(), Options{SegmentBytes: 4 << 10, Prepared: func(number uint64) error {
			if number > 1 {
				runtime.Goexit()
			}
			return nil
		}})
		must.OK(t, err)
		rng := rand.New(rand.NewPCG(1, 1))
		must.OK(t, w.StoreLogs(entries(rng, 1, 1, 1, 3000)))
		if store {
			if err := w.StoreLogs(entries(rng, 1, 2, 1, 3000)); !errors.Is(err, errUnpublished) {
				t.Errorf("stored in a segment that nobody knows of: %v", err)
			}
		}
		must.OK(t, w.Close())
	}
}

// TestFailureToPublish: once a new segment has its name, an error is the last one. What
// a failed sync of the directory, or of the file that has the number, has left is not
// known, so the next attempt's success means nothing.
func TestFailureToPublish(t *testing.T) {
	broken, failures := errors.New("broken"), 0
	o := Options{SegmentBytes: 4 << 10, Prepared: func(number uint64) error {
		if number == 2 && failures == 0 {
			failures++
			return broken
		}
		return nil
	}}
	w := mustOpen(t, t.TempDir(), o)
	rng := rand.New(rand.NewPCG(1, 1))
	must.OK(t, w.StoreLogs(entries(rng, 1, 1, 1, 3000)))
	if err := w.StoreLogs(entries(rng, 1, 2, 1, 3000)); !errors.Is(err, broken) {
		t.Errorf("stored in a segment that nobody may know of: %v", err)
	}
}

// TestPreparedIsTold: the caller is told of a segment that was made, and who ended before
// that, at the next start. A log that ends before the newest one is refused, however often
// it is opened.
func TestPreparedIsTold(t *testing.T) {
	dir, made := t.TempDir(), uint64(0)
	o := Options{SegmentBytes: 4 << 10}
	open := func() error {
		o.Made, o.Prepared = made, func(number uint64) error {
			made = number
			return nil
		}
		w, err := Open(dir, o)
		if err != nil {
			return err
		}
		return errors.Join(w.StoreLogs(entries(rand.New(rand.NewPCG(1, 1)), 1, w.LastIndex()+1, 3, 3000)), w.Close())
	}
	must.OK(t, open())
	want := made
	if want < 3 {
		t.Fatalf("%d segments", want)
	}
	made-- // as if the process had ended before it could be told
	w, err := Open(dir, Options{Made: made, Prepared: func(number uint64) error {
		made = number
		return nil
	}})
	must.OK(t, err)
	must.OK(t, w.Close())
	if made != want {
		t.Errorf("told of segment %d, want %d", made, want)
	}
	must.OK(t, os.RemoveAll(dir))
	must.OK(t, os.Mkdir(dir, dirMode))
	for range 2 {
		if err := open(); !errors.Is(err, ErrEndLost) {
			t.Fatalf("a log without segments, of which there were %d: %v", want, err)
		}
	}
}
