package disk

import (
	"errors"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/raftstore/wal"
)

func logs(term, from, to uint64, size int) (out []*raft.Log) {
	for i := from; i <= to; i++ {
		out = append(out, &raft.Log{Index: i, Term: term, Data: make([]byte, size)})
	}
	return out
}

// TestLogAgainstStore runs random operations on a Log with a small cache and
// on a plain store: they must never differ.
func TestLogAgainstStore(t *testing.T) {
	l, err := OpenLog(t.TempDir(), LogOptions{CacheBytes: 4000, SegmentBytes: 16 << 10})
	must.OK(t, err)
	defer l.Close()
	plain := raft.NewInmemStore()
	rng := rand.New(rand.NewPCG(1, 2))
	next, term, hits := uint64(1), uint64(1), 0
	for range 300 {
		switch rng.IntN(10) {
		case 0: // conflict: cut the tail
			if next > 5 {
				from := next - 1 - rng.Uint64N(4)
				must.OK(t, l.DeleteRange(from, next-1))
				must.OK(t, plain.DeleteRange(from, next-1))
				next = from
				term++
			}
		case 1: // compaction: cut the front
			first, err := l.FirstIndex()
			must.OK(t, err)
			if next > first+10 {
				must.OK(t, l.DeleteRange(first, next-8))
				must.OK(t, plain.DeleteRange(first, next-8))
			}
		case 2: // a gap, as after a snapshot
			next += rng.Uint64N(3) * 10
		default:
			batch := logs(term, next, next+rng.Uint64N(6), rng.IntN(1500))
			must.OK(t, l.StoreLogs(batch))
			must.OK(t, plain.StoreLogs(batch))
			next += uint64(len(batch))
		}
		if l.cache.bytes > 4000 {
			t.Fatalf("cache holds %d bytes", l.cache.bytes)
		}
		for i := next - min(next, 30); i < next+2; i++ {
			var a, b raft.Log
			errA, errB := l.GetLog(i, &a), plain.GetLog(i, &b)
			if (errA == nil) != (errB == nil) || a.Index != b.Index || a.Term != b.Term || len(a.Data) != len(b.Data) {
				t.Fatalf("entry %d: %v %v, want %v %v", i, a, errA, b, errB)
			}
			if l.cache.get(i) != nil {
				hits++
			}
		}
	}
	if hits == 0 {
		t.Fatal("the cache was never used")
	}
}

func TestCacheOverwriteAndHoles(t *testing.T) {
	c := newLogCache(1 << 20)
	c.put(logs(1, 1, 200, 10))
	c.put(logs(2, 150, 160, 10)) // overwritten without a delete: what follows is not known to be there
	for i, want := range map[uint64]uint64{1: 1, 149: 1, 150: 2, 160: 2, 161: 0, 200: 0, 0: 0} {
		got := uint64(0)
		if l := c.get(i); l != nil {
			got = l.Term
		}
		if got != want {
			t.Errorf("entry %d has term %d, want %d", i, got, want)
		}
	}
	c.remove(50, 60)
	if c.get(49) == nil || c.get(50) != nil || c.get(100) != nil {
		t.Error("a hole in the middle")
	}
	c.remove(0, 10)
	if c.get(10) != nil || c.get(11) == nil {
		t.Error("front")
	}
	c.remove(0, 1000)
	if c.n != 0 || c.bytes != 0 {
		t.Errorf("%d entries, %d bytes are left", c.n, c.bytes)
	}
	c.put(logs(3, 500, 500, 2<<20)) // larger than the cache
	if c.get(500) != nil || c.bytes != 0 {
		t.Error("an entry above the bound is cached")
	}
	c.put(logs(3, 501, 502, 10))
	if c.get(501) == nil || c.get(502) == nil {
		t.Error("the cache did not go on")
	}
}

// faulty is a backend whose writes hang or fail.
type faulty struct {
	*raft.InmemStore
	hang time.Duration
	err  error
}

func (f *faulty) Close() error { return nil }

func (f *faulty) SetAll(pairs ...keyValue) error {
	for _, p := range pairs {
		if err := f.Set(p.key, p.value); err != nil {
			return err
		}
	}
	return nil
}

func (f *faulty) FirstFrom(min uint64) (uint64, error) {
	first, err := f.FirstIndex()
	return max(first, min), err
}

func (f *faulty) DeleteFront(max uint64) (bool, error) {
	first, err := f.FirstIndex()
	if err != nil {
		return false, err
	}
	return false, f.DeleteRange(first, max)
}

func (f *faulty) NewestConfiguration(uint64) uint64 { return 0 }

func (f *faulty) PrepareNext() error { return f.err }

func (f *faulty) Reserve() error { return f.err }

func (f *faulty) Room() wal.Room { return wal.Room{} }

func (f *faulty) Probe() error { return f.err }

func (f *faulty) Size() int64 { return 0 }

func (f *faulty) NewestWithin(int64) uint64 { return 0 }

func (f *faulty) StoreLogs(l []*raft.Log) error {
	time.Sleep(f.hang)
	return errors.Join(f.err, f.InmemStore.StoreLogs(l))
}

func (f *faulty) Set(k, v []byte) error { return errors.Join(f.err, f.InmemStore.Set(k, v)) }

func (f *faulty) SetUint64(k []byte, v uint64) error {
	return errors.Join(f.err, f.InmemStore.SetUint64(k, v))
}

func (f *faulty) DeleteRange(a, b uint64) error {
	return errors.Join(f.err, f.InmemStore.DeleteRange(a, b))
}

func TestWatchdog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var fatal []error
		var observed time.Duration
		f := &faulty{InmemStore: raft.NewInmemStore(), hang: 9 * time.Second}
		l := newLog(f, LogOptions{
			Fatal: func(err error) {
				mu.Lock()
				fatal = append(fatal, err)
				mu.Unlock()
			},
			Observe: func(d time.Duration, entries, bytes int) {
				if entries != 3 || bytes != 30 {
					t.Errorf("observed %d entries, %d bytes", entries, bytes)
				}
				observed = d
			},
		})
		must.OK(t, l.StoreLogs(logs(1, 1, 3, 10)))
		if len(fatal) != 0 || observed != 9*time.Second {
			t.Fatalf("a slow disk: %v, %v", fatal, observed)
		}
		f.hang = time.Minute
		go func() { _ = l.StoreLogs(logs(1, 4, 6, 10)) }()
		time.Sleep(10*time.Second + 1)
		synctest.Wait()
		mu.Lock()
		failed := errors.Join(fatal...)
		n := len(fatal)
		mu.Unlock()
		if n != 1 || !errors.Is(failed, ErrHungDisk) {
			t.Fatalf("a hung disk: %d errors: %v", n, failed)
		}
		time.Sleep(time.Minute)
	})
}

// TestWatchdogIsFed: a write of many changes may take long on a slow disk, as long as it goes on.
func TestWatchdogIsFed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slow atomic.Int64 // how long a change takes
		var hung atomic.Int64
		l, err := OpenLog(t.TempDir(), LogOptions{
			SegmentBytes: 4 << 10,
			Fatal: func(err error) {
				hung.Add(1)
				if !errors.Is(err, ErrHungDisk) {
					t.Error(err)
				}
			},
			Commit: func(file string, commit func() error) error {
				if filepath.Dir(file) == segmentDir {
					time.Sleep(time.Duration(slow.Load()))
				}
				return commit()
			},
		})
		must.OK(t, err)
		slow.Store(int64(9 * time.Second))
		began := time.Now()
		must.OK(t, l.StoreLogs(logs(1, 1, 10, 3000)))
		if took := time.Since(began); took < 80*time.Second || hung.Load() != 0 {
			t.Errorf("ten changes took %v, and %d times the disk was taken for hung", took, hung.Load())
		}
		time.Sleep(time.Minute)
		if hung.Load() != 0 {
			t.Error("the disk is taken for hung while nothing is written")
		}
		slow.Store(int64(time.Minute))
		must.OK(t, l.StoreLogs(logs(1, 11, 11, 10)))
		if n := hung.Load(); n != 1 {
			t.Errorf("a disk that hangs for a minute was noticed %d times", n)
		}
		slow.Store(0)
		must.OK(t, l.Close())
	})
}

func TestLogErrorsAreFatal(t *testing.T) {
	bad := errors.New("input/output error")
	var fatal error
	store := raft.NewInmemStore()
	must.OK(t, store.StoreLogs(logs(1, 1, 3, 1)))
	l := newLog(&faulty{InmemStore: store, err: bad}, LogOptions{Fatal: func(err error) { fatal = err }})
	for name, f := range map[string]func() error{
		"StoreLogs":   func() error { return l.StoreLogs(logs(1, 1, 3, 1)) },
		"StoreLog":    func() error { return l.StoreLog(logs(1, 1, 1, 1)[0]) },
		"DeleteRange": func() error { return l.DeleteRange(3, 3) },
		"DeleteFront": func() error { return l.DeleteRange(1, 1) },
		"the vote":    func() error { return l.Set(voteCandidate, []byte("a")) },
		"Set":         func() error { return l.Set([]byte("k"), nil) },
		"SetUint64":   func() error { return l.SetUint64([]byte("k"), 1) },
	} {
		fatal = nil
		if err := f(); !errors.Is(err, bad) || !errors.Is(fatal, bad) {
			t.Errorf("%s: %v, fatal %v", name, err, fatal)
		}
	}
	if l.cache.get(1) != nil {
		t.Error("what failed is cached")
	}
}

// What stands below a hole is told apart, and can be dropped; the stable store stays.
func TestLogWithAHole(t *testing.T) {
	for _, tt := range []struct {
		name   string
		ranges [][2]uint64 // of entries
		run    uint64
	}{
		{"empty", nil, 0},
		{"whole", [][2]uint64{{1, 40}}, 1},
		{"begins behind a snapshot", [][2]uint64{{900, 1000}}, 900},
		{"one entry is missing", [][2]uint64{{4, 10}, {12, 20}}, 12},
		{"two holes", [][2]uint64{{4, 10}, {100, 120}, {1000, 1300}}, 1000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			l, err := OpenLog(dir, LogOptions{})
			must.OK(t, err)
			for _, r := range tt.ranges {
				must.OK(t, l.StoreLogs(logs(4, r[0], r[1], 10)))
			}
			must.OK(t, l.SetUint64([]byte("CurrentTerm"), 4))
			must.OK(t, l.Close())
			l, err = OpenLog(dir, LogOptions{})
			must.OK(t, err)
			if got := l.Run(); got != tt.run {
				t.Fatalf("the newest entries begin at %d, want %d", got, tt.run)
			}
			first, err := l.FirstIndex()
			must.OK(t, err)
			if first != tt.run {
				must.OK(t, l.Drop(first, tt.run-1))
			}
			first, err = l.FirstIndex()
			must.OK(t, err)
			term, err := l.GetUint64([]byte("CurrentTerm"))
			must.OK(t, err)
			if first != tt.run || term != 4 {
				t.Errorf("the log begins at %d, term %d", first, term)
			}
			must.OK(t, l.Close())
			must.OK(t, checkPages(filepath.Join(dir, stableFile)))
		})
	}
}

// Raft's compaction counts from the last entry that it remembers. In the middle of a
// truncation that is more than there is, and what it cuts reaches the log's end. That is no
// truncation of applied entries.
func TestCompactionDuringTruncation(t *testing.T) {
	l, err := OpenLog(t.TempDir(), LogOptions{
		Applied: func() uint64 { return 100 }, Snapshot: func() uint64 { return 100 }, Fatal: func(err error) { t.Error(err) },
	})
	must.OK(t, err)
	must.OK(t, l.StoreLogs(logs(1, 1, 150, 10)))
	must.OK(t, l.DeleteRange(101, 150)) // the dead tail; what takes its place comes next
	must.OK(t, l.DeleteRange(1, 100))   // the snapshot goroutine
	last, err := l.LastIndex()
	must.OK(t, err)
	if last != 100 {
		t.Errorf("the log ends at %d", last)
	}
	must.OK(t, l.Close())
}

// Raft truncates a tail that its leader does not have. What was applied is not such a
// tail; the beginning of the log is.
func TestAppliedEntriesAreNotCut(t *testing.T) {
	for _, tt := range []struct {
		min, max uint64
		fatal    bool
	}{
		{1, 50, false}, {1, 20, false},
		{1, 60, true}, {1, 99, true}, {5, 60, true}, {21, 60, false}, {60, 60, false},
	} {
		var fatal error
		l, err := OpenLog(t.TempDir(), LogOptions{Fatal: func(err error) { fatal = err }, Applied: func() uint64 { return 20 }})
		must.OK(t, err)
		must.OK(t, l.StoreLogs(logs(1, 1, 60, 10)))
		err = l.DeleteRange(tt.min, tt.max)
		var entry raft.Log
		there := l.GetLog(tt.min, &entry) == nil
		if errors.Is(err, ErrAppliedCut) != tt.fatal || errors.Is(fatal, ErrAppliedCut) != tt.fatal || there != tt.fatal {
			t.Errorf("%d to %d: %v, fatal %v, still there: %v", tt.min, tt.max, err, fatal, there)
		}
		must.OK(t, l.Drop(1, 60))
		must.OK(t, l.DeleteRange(1, 60)) // nothing is there
		must.OK(t, l.Close())
	}
}

// TestCloseWaits: a log is not closed under a write.
func TestCloseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var waits atomic.Bool
		disk := make(chan struct{}) // closed when the disk goes on
		l, err := OpenLog(t.TempDir(), LogOptions{Commit: func(_ string, commit func() error) error {
			if waits.Load() {
				<-disk
			}
			return commit()
		}, Fatal: func(err error) { t.Error(err) }, Watchdog: time.Hour})
		must.OK(t, err)
		waits.Store(true)
		stored, closed := make(chan error, 1), make(chan error, 1)
		go func() { stored <- l.StoreLogs(logs(1, 1, 3, 10)) }()
		synctest.Wait()
		go func() { closed <- l.Close() }()
		synctest.Wait()
		if len(closed) > 0 {
			t.Error("closed under a write")
		}
		close(disk)
		must.OK(t, <-stored)
		synctest.Wait()
		must.OK(t, <-closed)
	})
}
