package disk

import (
	"bytes"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/must"
)

// TestHold: what DeleteRange leaves of the log's beginning while snapshots are being
// sent, and for how long.
func TestHold(t *testing.T) {
	type step func(t *testing.T, l *Log)
	var release [3]func()
	hold := func(n int, index uint64) step { return func(_ *testing.T, l *Log) { release[n] = l.Hold(index) } }
	sent := func(n int) step { return func(*testing.T, *Log) { release[n]() } }
	from := func(index uint64) step { return func(_ *testing.T, l *Log) { l.KeepFrom(index) } }
	pass := func(d time.Duration) step { return func(*testing.T, *Log) { time.Sleep(d) } }
	grow := func(from, to uint64) step {
		return func(t *testing.T, l *Log) { must.OK(t, l.StoreLogs(logs(1, from, to, 1000-logOverhead))) }
	}
	const limit = 100_000
	for _, row := range []struct {
		name   string
		steps  []step
		min    uint64
		max    uint64
		first  uint64 // that is left
		gaveUp string
	}{
		{"nothing is sent", nil, 1, 90, 91, ""},
		{"a snapshot below the range's end", []step{hold(0, 50)}, 1, 90, 50, ""},
		{"a snapshot above it", []step{hold(0, 95)}, 1, 90, 91, ""},
		{"a snapshot at the log's beginning", []step{hold(0, 1)}, 1, 90, 1, ""},
		{"the oldest of several", []step{hold(0, 60), hold(1, 40), hold(2, 80)}, 1, 90, 40, ""},
		{"for long", []step{hold(0, 50), pass(time.Hour)}, 1, 90, 50, ""},
		{"just sent", []step{hold(0, 50), sent(0), pass(time.Minute)}, 1, 90, 50, ""},
		{"sent a while ago", []step{hold(0, 50), sent(0), pass(time.Minute + 1)}, 1, 90, 91, ""},
		{"sent slowly", []step{hold(0, 50), pass(time.Hour), sent(0), pass(time.Hour)}, 1, 90, 50, ""},
		{"sent slowly, and long ago", []step{hold(0, 50), pass(time.Hour), sent(0), pass(time.Hour + 1)}, 1, 90, 91, ""},
		{"closed twice", []step{hold(0, 50), sent(0), pass(50 * time.Second), sent(0), pass(11 * time.Second)}, 1, 90, 91, ""},
		{"one of several is sent", []step{hold(0, 60), hold(1, 40), sent(1), pass(2 * time.Minute)}, 1, 90, 60, ""},
		{"as many bytes as are allowed", []step{hold(0, 50), grow(101, 200)}, 1, 90, 50, ""},
		{"too many bytes", []step{hold(0, 50), grow(101, 201)}, 1, 90, 91, "50 after 101000"},
		{"bytes from before do not count", []step{grow(101, 201), hold(0, 50), grow(202, 301)}, 1, 90, 50, ""},
		{"kept for a node that is behind", []step{from(50)}, 1, 90, 50, ""},
		{"kept behind what is cut", []step{from(95)}, 1, 90, 91, ""},
		{"kept below a snapshot that is sent", []step{hold(0, 60), from(50)}, 1, 90, 50, ""},
		{"kept above it", []step{hold(0, 40), from(50)}, 1, 90, 40, ""},
		{"no longer kept", []step{from(50), from(0)}, 1, 90, 91, ""},
		{"a truncation is made", []step{hold(0, 50)}, 40, 100, 1, ""},
		{"all of it is dropped", []step{hold(0, 50)}, 1, 100, 0, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var gaveUp string
				l, err := OpenLog(t.TempDir(), LogOptions{HoldBytes: limit, GaveUp: func(index uint64, bytes int64) {
					gaveUp += fmt.Sprintf("%d after %d", index, bytes)
				}})
				must.OK(t, err)
				must.OK(t, l.StoreLogs(logs(1, 1, 100, 10)))
				for _, s := range row.steps {
					s(t, l)
				}
				must.OK(t, l.DeleteRange(row.min, row.max))
				first, err := l.FirstIndex()
				must.OK(t, err)
				if first != row.first || gaveUp != row.gaveUp {
					t.Errorf("the log begins at %d, gave up %q; want %d, %q", first, gaveUp, row.first, row.gaveUp)
				}
				must.OK(t, l.Close())
			})
		})
	}
}

// TestHoldsAreForgotten: attempts to send a snapshot that fail one after the other do
// not pile up, although nothing is cut meanwhile.
func TestHoldsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := OpenLog(t.TempDir(), LogOptions{HoldFor: time.Minute})
		must.OK(t, err)
		defer l.Close()
		sending := l.Hold(5)
		for range 1000 {
			l.Hold(7)()
			time.Sleep(10 * time.Second)
		}
		// The one that is being sent, and those of the last minute.
		if n := len(l.holds.list); n > 8 {
			t.Errorf("%d holds are kept", n)
		}
		if at := l.unheld(100); at != 4 {
			t.Errorf("the log may be cut up to %d, want 4", at)
		}
		sending()
	})
}

// TestOpenSnapshotHoldsTheLog: the state that is streamed to another node holds the
// log, a received one that is restored here does not.
func TestOpenSnapshotHoldsTheLog(t *testing.T) {
	dir := t.TempDir()
	n, err := openNode(dir)
	must.OK(t, err)
	defer n.db.Close()
	l, err := OpenLog(dir, LogOptions{HoldFor: time.Nanosecond})
	must.OK(t, err)
	defer l.Close()
	n.snaps.HoldLog(l)
	must.OK(t, l.StoreLogs(logs(1, 1, 1000, 10)))
	cutTo := func(to, want uint64) {
		t.Helper()
		must.OK(t, l.DeleteRange(1, to))
		if first, err := l.FirstIndex(); err != nil || first != want {
			t.Errorf("cut up to %d, the log begins at %d, %v, want %d", to, first, err, want)
		}
	}
	n.db.Record(n.m.apply(70))
	must.OK(t, n.local())
	list, err := n.snaps.List()
	must.OK(t, err)
	_, rc, err := n.snaps.Open(list[0].ID)
	must.OK(t, err)
	n.db.Record(n.m.apply(70))
	must.OK(t, n.local()) // the next snapshot, while that one is being sent
	cutTo(100, 70)
	_, err = io.Copy(io.Discard, rc)
	must.OK(t, err)
	cutTo(100, 70)
	must.OK(t, rc.Close())
	for end := time.Now().Add(10 * time.Second); ; { // as long again as it was held
		must.OK(t, l.DeleteRange(1, 100))
		if first, err := l.FirstIndex(); err == nil && first == 101 {
			break
		} else if time.Now().After(end) {
			t.Fatalf("the log is still held, from %d on: %v", first, err)
		}
	}

	sink, err := n.create(streamStep)
	must.OK(t, err)
	_, err = io.Copy(sink, bytes.NewReader(backup(t, streamStep)))
	must.OK(t, err)
	must.OK(t, sink.Close())
	must.OK(t, n.restore(sink.ID()))
	cutTo(streamStep+100, streamStep+101)
	var entry raft.Log
	must.OK(t, l.GetLog(1000, &entry))
}
