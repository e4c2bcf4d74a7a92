package wal

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/must"
)

func mustOpen(t testing.TB, dir string, o Options) *WAL {
	t.Helper()
	w, err := Open(dir, o)
	must.OK(t, err)
	t.Cleanup(func() { must.OK(t, w.Close()) })
	return w
}

// entries makes entries with data that has no zeros.
func entries(rng *rand.Rand, term, from uint64, n, size int) (out []*raft.Log) {
	for i := range n {
		l := &raft.Log{Index: from + uint64(i), Term: term, Type: raft.LogType(rng.IntN(6)), Data: make([]byte, size)}
		for k := 0; k < len(l.Data); {
			for x, n := rng.Uint64(), min(len(l.Data), k+8); k < n; k++ {
				l.Data[k] = byte(x) | 1<<(k%8)
				x >>= 8
			}
		}
		if size == 0 {
			l.Data = nil
		}
		if rng.IntN(3) == 0 {
			l.Extensions = []byte("extension")
		}
		if rng.IntN(2) == 0 {
			l.AppendedAt = time.Unix(1_700_000_000, rng.Int64N(1e9)).UTC()
		}
		out = append(out, l)
	}
	return out
}

// model is what a log should hold.
type model struct {
	logs        map[uint64]*raft.Log
	first, last uint64
}

func (m *model) bounds() {
	m.first, m.last = 0, 0
	for i := range m.logs {
		if m.first == 0 || i < m.first {
			m.first = i
		}
		m.last = max(m.last, i)
	}
}

func (m *model) remove(min, max uint64) {
	for i := range m.logs {
		if i >= min && i <= max {
			delete(m.logs, i)
		}
	}
	m.bounds()
}

func (m *model) store(logs []*raft.Log) {
	for _, l := range logs {
		m.logs[l.Index] = l
	}
	m.bounds()
}

func (m *model) run() (first uint64) {
	for i := m.last; i > 0 && m.logs[i] != nil; i-- {
		first = i
	}
	return first
}

// check compares all that can be read.
func (m *model) check(t *testing.T, w *WAL) {
	t.Helper()
	if first, last := w.FirstFrom(0), w.LastIndex(); first != m.first || last != m.last {
		t.Fatalf("the log has %d to %d, want %d to %d", first, last, m.first, m.last)
	}
	for i := m.first - min(m.first, 2); i < m.last+3; i++ {
		var got raft.Log
		err := w.GetLog(i, &got)
		switch want := m.logs[i]; {
		case want == nil && !errors.Is(err, raft.ErrLogNotFound):
			t.Fatalf("entry %d, which is not there: %v", i, err)
		case want != nil && (err != nil || !reflect.DeepEqual(&got, want)):
			t.Fatalf("entry %d: %v\n%+v\n%+v", i, err, got, *want)
		}
		next := uint64(0)
		for k := i; k <= m.last && next == 0; k++ {
			if m.logs[k] != nil {
				next = k
			}
		}
		if from := w.FirstFrom(i); from != next {
			t.Fatalf("the first entry from %d on is %d, want %d", i, from, next)
		}
	}
	configuration := uint64(0)
	for i := m.first - min(m.first, 2); i < m.last+3; i++ {
		if l := m.logs[i]; l != nil && l.Type == raft.LogConfiguration {
			configuration = i
		}
		if got := w.Configuration(i); got != configuration {
			t.Fatalf("the newest configuration up to %d is at %d, want %d", i, got, configuration)
		}
	}
}

// TestAgainstModel runs what Raft does, in any order, with small segments, and opens the
// log again in between.
func TestAgainstModel(t *testing.T) {
	seeds := uint64(30)
	if testing.Short() {
		seeds = 10
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 1))
		dir, o := t.TempDir(), Options{SegmentBytes: 1 << (10 + rng.IntN(4))}
		w, err := Open(dir, o)
		must.OK(t, err)
		m, next, term, reopened := &model{logs: map[uint64]*raft.Log{}}, uint64(1), uint64(1), 0
		for range 150 {
			switch rng.IntN(12) {
			case 0: // conflict
				if m.last > 0 {
					from := m.last - min(m.last-m.first, rng.Uint64N(30))
					must.OK(t, w.DeleteRange(from, m.last))
					m.remove(from, m.last)
					next = from
					term++
				}
			case 1: // compaction
				if m.last > m.first+5 {
					to := m.first + rng.Uint64N(m.last-m.first)
					must.OK(t, w.DeleteRange(m.first, to))
					m.remove(m.first, to)
				}
			case 2: // a gap, as behind a snapshot
				next += rng.Uint64N(3) * 10
			case 3:
				if rng.IntN(4) == 0 { // a snapshot that has replaced the log
					must.OK(t, w.DeleteRange(m.first, m.last))
					m.remove(m.first, m.last)
				}
			case 4:
				must.OK(t, w.Close())
				w, err = Open(dir, o)
				must.OK(t, err)
				if w.Run() != m.run() {
					t.Fatalf("seed %d: run %d, want %d", seed, w.Run(), m.run())
				}
				reopened++
			default:
				size := rng.IntN(400)
				if rng.IntN(10) == 0 {
					size = rng.IntN(20_000) // alone in its segment
				}
				batch := entries(rng, term, next, 1+rng.IntN(6), size)
				must.OK(t, w.StoreLogs(batch))
				m.store(batch)
				next += uint64(len(batch))
			}
			m.check(t, w)
		}
		must.OK(t, w.Close())
		if reopened == 0 {
			t.Fatalf("seed %d never opened the log again", seed)
		}
	}
}

// TestFilesGo: what the log's beginning takes is given back by removing files, and neither
// the next start nor the one behind it sees what was cut.
func TestFilesGo(t *testing.T) {
	dir, o := t.TempDir(), Options{SegmentBytes: 4 << 10}
	w := mustOpen(t, dir, o)
	rng := rand.New(rand.NewPCG(1, 1))
	const n = 100
	must.OK(t, w.StoreLogs(entries(rng, 1, 1, n, 1000)))
	files := func() int {
		names, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
		must.OK(t, err)
		return len(names)
	}
	before := files()
	if before < n/4 {
		t.Fatalf("%d entries of 1,000 bytes are in %d segments of 4 KiB", n, before)
	}
	pieces := 1
	for more := true; more; pieces++ {
		var err error
		more, err = w.DeleteFront(n - 2)
		must.OK(t, err)
		if first := w.FirstFrom(0); first != n-1 {
			t.Fatalf("the log begins at %d in the middle of the cut", first)
		}
	}
	if after := files(); after > 3 || pieces < before-3 {
		t.Errorf("%d segments became %d in %d pieces", before, after, pieces)
	}
	must.OK(t, w.Close())
	again := mustOpen(t, dir, o)
	if first, last := again.FirstFrom(0), again.LastIndex(); first != n-1 || last != n {
		t.Errorf("opened again it has %d to %d", first, last)
	}
}

// TestRefusals: what Raft never does is refused before anything is written.
func TestRefusals(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, row := range []struct {
		name string
		do   func(w *WAL) error
		want error
	}{
		{"an entry twice", func(w *WAL) error { return w.StoreLogs(entries(rng, 1, 20, 1, 10)) }, errTwice},
		{"an entry below the cut", func(w *WAL) error {
			if err := w.DeleteRange(11, 20); err != nil {
				return err
			}
			return w.StoreLogs(entries(rng, 1, 9, 1, 10))
		}, errTwice},
		{"from the middle", func(w *WAL) error { return w.DeleteRange(12, 14) }, errMiddle},
	} {
		w := mustOpen(t, t.TempDir(), Options{})
		must.OK(t, w.StoreLogs(entries(rng, 1, 1, 20, 10)))
		must.OK(t, w.DeleteRange(1, 10))
		if err := row.do(w); !errors.Is(err, row.want) {
			t.Errorf("%s: %v, want %v", row.name, err, row.want)
		}
	}
}

// TestNothingAfterAnError: a change that failed is the last one.
func TestNothingAfterAnError(t *testing.T) {
	broken, fail := errors.New("broken"), false
	w := mustOpen(t, t.TempDir(), Options{Commit: func(_ string, change func() error) error {
		if fail {
			return broken
		}
		return change()
	}})
	rng := rand.New(rand.NewPCG(1, 1))
	must.OK(t, w.StoreLogs(entries(rng, 1, 1, 3, 10)))
	fail = true
	if err := w.StoreLogs(entries(rng, 1, 4, 1, 10)); !errors.Is(err, broken) {
		t.Fatal(err)
	}
	fail = false
	if err := w.StoreLogs(entries(rng, 1, 4, 1, 10)); !errors.Is(err, broken) {
		t.Fatalf("a change after one that failed: %v", err)
	}
	if last := w.LastIndex(); last != 3 {
		t.Fatalf("the log ends at %d", last)
	}
}

// TestOneSyncABatch counts what reaches the disk.
func TestOneSyncABatch(t *testing.T) {
	commits := 0
	w := mustOpen(t, t.TempDir(), Options{Commit: func(_ string, change func() error) error {
		commits++
		return change()
	}})
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range uint64(50) {
		must.OK(t, w.StoreLogs(entries(rng, 1, 1+i*7, 7, 300)))
	}
	if commits != 50 {
		t.Errorf("50 batches took %d commits", commits)
	}
}

// TestReadersBesideChanges reads while entries are appended, truncated and cut.
func TestReadersBesideChanges(t *testing.T) {
	w := mustOpen(t, t.TempDir(), Options{SegmentBytes: 8 << 10})
	rng := rand.New(rand.NewPCG(1, 1))
	done := make(chan struct{})
	var readers sync.WaitGroup
	for r := range uint64(3) {
		readers.Go(func() {
			rng := rand.New(rand.NewPCG(r, 2))
			for {
				select {
				case <-done:
					return
				default:
				}
				first, last := w.FirstFrom(0), w.LastIndex()
				if last == 0 {
					continue
				}
				i := first + rng.Uint64N(last-min(first, last)+1)
				var l raft.Log
				if err := w.GetLog(i, &l); err == nil && l.Index != i || err != nil && !errors.Is(err, raft.ErrLogNotFound) {
					t.Errorf("entry %d: %d, %v", i, l.Index, err)
					return
				}
			}
		})
	}
	next := uint64(1)
	for i := range 300 {
		n := 1 + rng.IntN(8)
		must.OK(t, w.StoreLogs(entries(rng, uint64(i), next, n, rng.IntN(900))))
		next += uint64(n)
		switch {
		case i%5 == 4:
			next -= 2
			must.OK(t, w.DeleteRange(next, next+1))
		case i%40 == 39:
			must.OK(t, w.DeleteRange(0, next-20))
		}
	}
	close(done)
	readers.Wait()
}

// TestPreparedInTime: the next segment is there when the tail is full, and a log that is
// closed while it is made leaves nothing unfinished.
func TestUnfinishedIsRemoved(t *testing.T) {
	dir := t.TempDir()
	w := mustOpen(t, dir, Options{SegmentBytes: 4 << 10})
	rng := rand.New(rand.NewPCG(1, 1))
	must.OK(t, w.StoreLogs(entries(rng, 1, 1, 1, 3000))) // more than half: the next one is begun
	must.OK(t, w.Close())
	prepared := filepath.Join(dir, nameOf(2))
	if _, err := os.Stat(prepared); err != nil {
		t.Fatalf("the next segment was not prepared: %v", err)
	}
	must.OK(t, os.WriteFile(filepath.Join(dir, nameOf(3)+newSuffix), []byte("half"), fileMode))
	w = mustOpen(t, dir, Options{SegmentBytes: 4 << 10})
	must.OK(t, w.StoreLogs(entries(rng, 1, 2, 3, 3000)))
	must.OK(t, w.Close())
	names, err := filepath.Glob(filepath.Join(dir, "*"+newSuffix))
	must.OK(t, err)
	if len(names) > 0 {
		t.Errorf("left: %q", names)
	}
}

// TestNames: nothing else in the directory is taken for a segment.
func TestNames(t *testing.T) {
	for name, want := range map[string]bool{
		nameOf(1): true, nameOf(1 << 63): true, nameOf(0): false, "1.log": false, "000000000000000g.log": false,
		"0000000000000001.log.new": false, "0000000000000001.LOG": false, "": false, "lost+found": false, "000000000000000A.log": false,
	} {
		if _, ok := numberOf(name); ok != want {
			t.Errorf("%q: %v", name, ok)
		}
	}
}

func BenchmarkStoreLogs(b *testing.B) {
	for _, n := range []int{1, 6, 32} {
		b.Run(fmt.Sprintf("%d", n), func(b *testing.B) {
			w := mustOpen(b, b.TempDir(), Options{})
			data, next := bytes.Repeat([]byte("x"), 1400), uint64(1)
			b.ReportAllocs()
			for b.Loop() {
				batch := make([]*raft.Log, n)
				for i := range batch {
					batch[i] = &raft.Log{Index: next, Term: 1, Data: data}
					next++
				}
				must.OK(b, w.StoreLogs(batch))
				if next%20_000 < uint64(n) {
					must.OK(b, w.DeleteRange(0, next-10_000))
				}
			}
		})
	}
}

func BenchmarkAppendFrame(b *testing.B) {
	l := &raft.Log{Index: 7, Term: 2, Data: bytes.Repeat([]byte("x"), 1400)}
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = appendFrame(buf[:0], 3, 4000, 4000, kindEntry, l)
	}
}

func BenchmarkReadFrame(b *testing.B) {
	l := &raft.Log{Index: 7, Term: 2, Data: bytes.Repeat([]byte("x"), 1400)}
	f := appendFrame(nil, 3, 4000, 4000, kindEntry, l)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, ok := readFrame(f, 3, 4000); !ok {
			b.Fatal("it does not hold")
		}
	}
}
