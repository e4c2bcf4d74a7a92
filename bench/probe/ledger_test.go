package probe

import (
	"sync"
	"testing"
	"time"
)

// at is a snapshot of everything that the ledger has, taken at a time.
func at(l *Ledger, t time.Duration) *Snapshot {
	var s Snapshot
	l.Now(&s, func() time.Duration { return t })
	return &s
}

func TestBehind(t *testing.T) {
	const sec = time.Second
	l := NewLedger(2)
	// Probe 0's third write was never acknowledged.
	for _, w := range []struct {
		number   int64
		revision uint64
		at       time.Duration
	}{{0, 10, 1 * sec}, {1, 11, 2 * sec}, {2, 14, 3 * sec}, {4, 17, 5 * sec}} {
		l.Acknowledged(0, w.number, w.revision, w.at)
	}
	l.Acknowledged(1, 0, 12, 1*sec)
	early := at(l, 6*sec)
	l.Acknowledged(0, 5, 19, 7*sec)
	l.Acknowledged(1, 1, 18, 7*sec)
	late := at(l, 8*sec)

	for _, c := range []struct {
		name   string
		snap   *Snapshot
		probe  int
		number int64
		want   Staleness
	}{
		{"the newest", early, 0, 4, Staleness{}},
		{"one under way, not acknowledged yet", early, 0, 5, Staleness{}},
		{"the one that was never acknowledged, which happened all the same", early, 0, 3, Staleness{1, 1 * sec}},
		{"lacks one; the unacknowledged is not counted", early, 0, 2, Staleness{1, 1 * sec}},
		{"lacks two: the age is of the first", early, 0, 1, Staleness{2, 3 * sec}},
		{"lacks all but the creation", early, 0, 0, Staleness{3, 4 * sec}},
		{"what was acknowledged after the snapshot does not count", early, 1, 0, Staleness{}},
		{"but after that it does", late, 1, 0, Staleness{1, 1 * sec}},
		{"and the other probe", late, 0, 4, Staleness{1, 1 * sec}},
	} {
		if got := l.Behind(c.snap, c.probe, c.number); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	if early.Revision != 17 || late.Revision != 19 {
		t.Errorf("revisions %d, %d: want the newest acknowledged, 17 and 19", early.Revision, late.Revision)
	}
	if got := (Staleness{2, 3 * sec}).Add(Staleness{1, 5 * sec}); got != (Staleness{3, 5 * sec}) {
		t.Errorf("together: %+v", got)
	}
}

// TestSnapshotCovers: while writers write, the revision of a snapshot covers all
// writes in it. Otherwise an honest answer to "not older than" would be called a
// broken promise.
func TestSnapshotCovers(t *testing.T) {
	const writes = 2000
	l := NewLedger(1)
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := range int64(writes) {
			l.Acknowledged(0, n, uint64(n)+100, time.Duration(n))
		}
	})
	var s Snapshot
	for len(s.lens) == 0 || s.lens[0] < writes {
		l.Now(&s, func() time.Duration { return 0 })
		if n := s.lens[0]; n > 0 && s.Revision < uint64(n-1)+100 {
			t.Fatalf("%d writes, revision %d", n, s.Revision)
		}
	}
	wg.Wait()
}
