package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/must"
)

// traced tells of each transaction, and does in it what the test wants.
type traced struct {
	logBackend
	during func(what string)
}

func (b traced) StoreLogs(l []*raft.Log) error {
	b.during(fmt.Sprintf("store %d", len(l)))
	return b.logBackend.StoreLogs(l)
}

func (b traced) SetUint64(k []byte, v uint64) error {
	b.during("set")
	return b.logBackend.SetUint64(k, v)
}

func (b traced) DeleteRange(min, max uint64) error {
	b.during(fmt.Sprintf("delete %d to %d", min, max))
	return b.logBackend.DeleteRange(min, max)
}

func (b traced) DeleteFront(max uint64) (bool, error) {
	b.during(piece)
	return b.logBackend.DeleteFront(max)
}

const (
	piece        = "a piece"
	pieceEntries = 511 // of pieceData bytes fill a segment of pieceSegment bytes
	pieceData    = 80
	pieceSegment = 64 << 10
)

// openPieces opens a log in small segments.
func openPieces(dir string) (logFiles, error) {
	return openLogFiles(dir, LogOptions{SegmentBytes: pieceSegment, Fatal: func(err error) { panic(err) }}, func() {})
}

// TestCutIsMadeInPieces: which ranges are cut in which writes.
func TestCutIsMadeInPieces(t *testing.T) {
	const n = 3*pieceEntries + 500
	for _, row := range []struct {
		name     string
		min, max uint64
		want     []string
		first    uint64
		last     uint64
	}{
		{"the beginning", 11, 10 + 2*pieceEntries + 1, []string{piece, piece}, 10 + 2*pieceEntries + 2, 10 + n},
		{"the beginning, from below it", 0, 20, []string{piece}, 21, 10 + n},
		{"a whole file", 11, 10 + pieceEntries, []string{piece}, 10 + pieceEntries + 1, 10 + n},
		{"a truncation", 500, 10 + n, []string{fmt.Sprintf("delete 500 to %d", 10+n)}, 11, 499},
		{"all of it", 11, 10 + n, []string{fmt.Sprintf("delete 11 to %d", 10+n)}, 0, 0},
		{"what is cut already", 1, 10, nil, 11, 10 + n},
		{"what is not there yet", 10 + n + 1, 10 + n + 5, nil, 11, 10 + n},
	} {
		t.Run(row.name, func(t *testing.T) {
			store, err := openPieces(t.TempDir())
			must.OK(t, err)
			var got []string
			l := newLog(traced{store, func(what string) { got = append(got, what) }}, LogOptions{})
			defer l.Close()
			must.OK(t, l.StoreLogs(logs(1, 11, 10+n, pieceData)))
			got = nil
			must.OK(t, l.DeleteRange(row.min, row.max))
			if !slices.Equal(got, row.want) {
				t.Errorf("%q, want %q", got, row.want)
			}
			first, err := l.FirstIndex()
			must.OK(t, err)
			last, err := l.LastIndex()
			must.OK(t, err)
			if first != row.first || last != row.last {
				t.Errorf("%d to %d are left, want %d to %d", first, last, row.first, row.last)
			}
		})
	}
}

// TestAppendsPassACut: anyone who comes during a piece of a cut is served before the next
// piece. And from the first piece on nobody is given an entry of the whole range.
func TestAppendsPassACut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pieces = 5
		const n = pieces*pieceEntries + 100
		store, err := openPieces(t.TempDir())
		must.OK(t, err)
		var l *Log
		var got []string
		next := uint64(n)
		l = newLog(traced{store, func(what string) {
			got = append(got, what)
			if what != piece {
				return
			}
			next++
			at := next
			go func() { must.OK(t, l.StoreLogs(logs(1, at, at, 10))) }()
			synctest.Wait() // it stands in the queue
			go func() { must.OK(t, l.SetUint64([]byte("CurrentTerm"), 1)) }()
			synctest.Wait()
			first, err := l.FirstIndex()
			must.OK(t, err)
			var entry raft.Log
			if err := l.GetLog(n-100, &entry); first != n-100+1 || !errors.Is(err, raft.ErrLogNotFound) {
				t.Errorf("while it is cut, the log begins at %d, and the range's last entry is given: %v", first, err)
			}
			must.OK(t, l.GetLog(n-100+1, &entry))
		}}, LogOptions{})
		must.OK(t, l.StoreLogs(logs(1, 1, n, pieceData)))
		got = nil
		must.OK(t, l.DeleteRange(1, n-100))
		synctest.Wait()
		var want []string
		for range pieces {
			want = append(want, piece, "store 1", "set")
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		last, err := l.LastIndex()
		must.OK(t, err)
		if last != n+pieces {
			t.Errorf("the log ends at %d, want %d", last, n+pieces)
		}
		must.OK(t, l.Close())
	})
}

const childPieces = 4

// childCut cuts the beginning of a log.
func childCut(dir string) error {
	l, err := OpenLog(dir, LogOptions{SegmentBytes: pieceSegment})
	if err != nil {
		return err
	}
	if err := l.StoreLogs(logs(1, 1, childPieces*pieceEntries+100, pieceData)); err != nil {
		return err
	}
	return errors.Join(l.DeleteRange(1, childPieces*pieceEntries), l.Close())
}

// TestKillDuringACut: whenever a process ends during a cut, what is left is the end of the
// log, without a hole, and the next cut removes the files that are left.
func TestKillDuringACut(t *testing.T) {
	root := t.TempDir()
	names := failpoints(t, "cut", filepath.Join(root, "all"))
	pieces := 0
	for i, name := range names {
		switch name {
		case "log.piece":
			pieces++
		case "wal.cut":
		default:
			continue
		}
		dir := filepath.Join(root, strconv.Itoa(i))
		if out, err := child(t, "cut", dir, childKill+"="+strconv.Itoa(i+1)).CombinedOutput(); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Fatalf("%s, %d pieces: %v\n%s", name, pieces, err, out)
		}
		l, err := OpenLog(dir, LogOptions{})
		must.OK(t, err)
		first, err := l.FirstIndex()
		must.OK(t, err)
		last, err := l.LastIndex()
		must.OK(t, err)
		if first != childPieces*pieceEntries+1 || last != childPieces*pieceEntries+100 {
			t.Errorf("killed at %s, %d pieces: the log is %d to %d", name, pieces, first, last)
		}
		var entry raft.Log
		for at := first; at <= last; at++ {
			must.OK(t, l.GetLog(at, &entry))
		}
		must.OK(t, l.DeleteRange(1, first)) // as the next snapshot does
		if first, err = l.FirstIndex(); err != nil || first != childPieces*pieceEntries+2 {
			t.Errorf("the next cut leaves a log that begins at %d, %v", first, err)
		}
		must.OK(t, l.Close())
		if files := fileNames(t, filepath.Join(dir, segmentDir)); len(files) != 1 {
			t.Errorf("killed at %s, %d pieces: the next cut leaves %v", name, pieces, files)
		}
	}
	if pieces != childPieces {
		t.Fatalf("%d pieces, want %d", pieces, childPieces)
	}
}

// BenchmarkAppendDuringCut is how long an append takes while 90,000 entries of 700 B
// are being cut, and how long as many take alone: in QUORATE_BENCH_DIR or a temporary
// directory. What the disk and others on the machine cost is in both.
func BenchmarkAppendDuringCut(b *testing.B) {
	const n, rest = 100_000, 10_000
	var beside, alone []time.Duration
	var cut time.Duration
	for b.Loop() {
		b.StopTimer()
		dir, err := os.MkdirTemp(os.Getenv("QUORATE_BENCH_DIR"), "cut")
		must.OK(b, err)
		l, err := OpenLog(dir, LogOptions{})
		must.OK(b, err)
		for i := uint64(1); i <= n; i += 1000 {
			must.OK(b, l.StoreLogs(logs(1, i, i+999, 700)))
		}
		at := uint64(n)
		appends := func() time.Duration {
			at++
			sent := time.Now()
			must.OK(b, l.StoreLogs(logs(1, at, at, 700)))
			return time.Since(sent)
		}
		for range 200 {
			alone = append(alone, appends())
		}
		b.StartTimer()
		done := make(chan error, 1)
		began := time.Now()
		go func() { done <- l.DeleteRange(1, n-rest) }()
		for ended := false; !ended; {
			beside = append(beside, appends())
			select {
			case err := <-done:
				must.OK(b, err)
				cut += time.Since(began)
				ended = true
			default:
			}
		}
		b.StopTimer()
		must.OK(b, errors.Join(l.Close(), os.RemoveAll(dir)))
		b.StartTimer()
	}
	for name, waits := range map[string][]time.Duration{"append": beside, "alone": alone} {
		slices.Sort(waits)
		for q, at := range map[string]int{"max": len(waits) - 1, "p99": len(waits) * 99 / 100, "p50": len(waits) / 2} {
			b.ReportMetric(float64(waits[at].Microseconds())/1000, "ms-"+q+"/"+name)
		}
	}
	b.ReportMetric(float64(cut.Milliseconds())/float64(b.N), "ms/cut")
	b.ReportMetric(float64(len(beside))/float64(b.N), "appends/cut")
}

// TestCutBehindAFailedOne: while a cut is under way Raft may read where the log begins, and cut from there on
// when the disk has refused the rest of it.
func TestCutBehindAFailedOne(t *testing.T) {
	store, err := openPieces(t.TempDir())
	must.OK(t, err)
	var full atomic.Bool
	full.Store(true)
	fatal := 0
	l := newLog(refusing{store, &full}, LogOptions{Full: func(error) {}, Fatal: func(error) { fatal++ }, Snapshot: func() uint64 { return 300 }})
	defer l.Close()
	must.OK(t, l.StoreLogs(logs(1, 1, 400, 10)))
	if err := l.CutFront(100); !errors.Is(err, ErrNoRoom) {
		t.Fatal(err)
	}
	full.Store(false)
	must.OK(t, l.DeleteRange(101, 200))
	first, err := l.FirstIndex()
	must.OK(t, err)
	last, err := l.LastIndex()
	must.OK(t, err)
	if first != 201 || last != 400 || fatal > 0 {
		t.Errorf("%d to %d are left, %d times fatal", first, last, fatal)
	}
}

// refusing is a backend that deletes nothing for want of room.
type refusing struct {
	logBackend
	full *atomic.Bool
}

func (r refusing) DeleteRange(min, max uint64) error {
	if r.full.Load() {
		return ErrNoRoom
	}
	return r.logBackend.DeleteRange(min, max)
}

func (r refusing) DeleteFront(max uint64) (bool, error) {
	if r.full.Load() {
		return false, ErrNoRoom
	}
	return r.logBackend.DeleteFront(max)
}

// TestDiscardAwaitsRoom: what an installed snapshot replaces goes when there is room for the note of it, or
// the node ends.
func TestDiscardAwaitsRoom(t *testing.T) {
	for _, ends := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store, err := openPieces(t.TempDir())
			must.OK(t, err)
			var full atomic.Bool
			full.Store(true)
			var refused atomic.Int64
			end := make(chan struct{})
			l := newLog(refusing{store, &full}, LogOptions{Full: func(error) { refused.Add(1) }, Fatal: func(err error) { t.Error(err) }, Ends: end})
			defer l.Close()
			must.OK(t, l.StoreLogs(logs(1, 1, 400, 10)))
			done := make(chan error, 1)
			go func() { done <- l.Discard(1, 400) }()
			time.Sleep(time.Minute)
			synctest.Wait()
			if len(done) > 0 || refused.Load() < 100 {
				t.Errorf("it has ended, and was refused %d times", refused.Load())
			}
			if ends {
				close(end)
			} else {
				full.Store(false)
			}
			last, err := uint64(0), <-done
			if errors.Is(err, ErrNoRoom) != ends {
				t.Error(err)
			}
			if last, err = l.LastIndex(); err != nil || (last == 0) == ends {
				t.Errorf("the log ends at %d, %v", last, err)
			}
		})
	}
}
