package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/must"
)

// TestFullLog fills the disk with the log. A write without room changes nothing and ends nothing: what was
// acknowledged is there, also at every start on the full disk, and with room, or once the log is cut, it goes on.
func TestFullLog(t *testing.T) {
	for name, size := range map[string]int{"small entries": 3000, "entries longer than a segment": 150_000} {
		t.Run(name, func(t *testing.T) {
			dir := smallDisk(t, 2048)
			full := 0
			o := LogOptions{SegmentBytes: 64 << 10, Spares: 2, Fatal: func(err error) { t.Error(err) }, Full: func(error) { full++ }}
			n := filepath.Join(dir, "n")
			filler := filepath.Join(dir, "filler")
			must.OK(t, os.WriteFile(filler, make([]byte, 200<<10), fileMode))
			l, err := OpenLog(n, o)
			must.OK(t, err)
			must.OK(t, l.Reserve())
			check := func(acked uint64) {
				t.Helper()
				if last, err := l.LastIndex(); err != nil || last != acked {
					t.Fatalf("the log ends at %d (%v), %d were acknowledged", last, err, acked)
				}
				for i := uint64(1); i <= acked; i++ {
					if err := l.GetLog(i, new(raft.Log)); err != nil && !errors.Is(err, raft.ErrLogNotFound) {
						t.Fatal(err)
					}
				}
			}
			store := func(acked *uint64) error {
				err := l.StoreLogs(logs(1, *acked+1, *acked+2, size))
				if err == nil {
					*acked += 2
				}
				return err
			}
			acked := uint64(0)
			for err == nil && acked < 10_000 {
				err = store(&acked)
			}
			if !errors.Is(err, ErrNoRoom) || !enospc(err) || full != 1 || acked < 4 {
				t.Fatalf("%d entries, then %v, %d times full", acked, err, full)
			}
			for range 2 {
				check(acked)
				must.OK(t, l.Set([]byte("a"), []byte("vote")))
				must.OK(t, l.Close())
				l, err = OpenLog(n, o)
				must.OK(t, err)
			}
			check(acked)
			if size < o.SegmentBytes { // a spare segment is too short for the others, and their files vanish
				for range 200 {
					must.OK(t, l.DeleteRange(1, acked-1))
					must.OK(t, store(&acked))
				}
				check(acked)
			}
			must.OK(t, os.Remove(filler))
			must.OK(t, l.DeleteRange(1, acked-1))
			must.OK(t, store(&acked))
			must.OK(t, l.Reserve())
			check(acked)
			if r := l.Room(); r.Spares != 2 {
				t.Errorf("the reserve has %d segments", r.Spares)
			}
			must.OK(t, l.Close())
		})
	}
}

// TestWithoutInodes: the log goes on, and is cut, where no file can be made.
func TestWithoutInodes(t *testing.T) {
	dir := smallDisk(t, 16<<10, "nr_inodes=40")
	l, err := OpenLog(filepath.Join(dir, "n"), LogOptions{SegmentBytes: 64 << 10, Spares: 2, Fatal: func(err error) { t.Error(err) }})
	must.OK(t, err)
	must.OK(t, l.Reserve())
	for i := 0; err == nil; i++ {
		err = os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, fileMode)
	}
	if !enospc(err) {
		t.Fatal(err)
	}
	for i := uint64(1); i < 2000; i++ {
		must.OK(t, l.StoreLogs(logs(1, i, i, 3000)))
		if i%4 == 0 {
			must.OK(t, l.DeleteRange(1, i-2))
		}
	}
	must.OK(t, l.Close())
}

// TestRefusedEntries: entries that found no room are refused, unless Raft would go on from a log that is not there.
func TestRefusedEntries(t *testing.T) {
	configuration := []*raft.Log{{Index: 5, Term: 2, Type: raft.LogCommand}, {Index: 6, Term: 2, Type: raft.LogConfiguration}}
	for _, row := range []struct {
		name      string
		entries   []*raft.Log
		leads     bool
		shortened bool // entries were cut off the end before
		more      bool // and others were stored behind that
		fatal     bool
	}{
		{name: "a follower", entries: logs(2, 5, 6, 10)},
		{name: "a leader", entries: logs(2, 5, 6, 10), leads: true},
		{name: "a configuration of a follower", entries: configuration},
		{name: "a configuration of a leader", entries: configuration, leads: true, fatal: true},
		{name: "instead of others", entries: logs(2, 3, 4, 10), shortened: true, fatal: true},
		{name: "behind those that came instead of others", entries: logs(2, 5, 6, 10), shortened: true, more: true},
	} {
		t.Run(row.name, func(t *testing.T) {
			f := &faulty{InmemStore: raft.NewInmemStore()}
			fatal, full := 0, 0
			l := newLog(f, LogOptions{Fatal: func(error) { fatal++ }, Full: func(error) { full++ }, Leads: func() bool { return row.leads }})
			must.OK(t, l.StoreLogs(logs(1, 1, 4, 10)))
			if row.shortened {
				must.OK(t, l.DeleteRange(3, 4))
			}
			if row.more {
				must.OK(t, l.StoreLogs(logs(2, 3, 4, 10)))
			}
			f.err = fmt.Errorf("store: %w", ErrNoRoom)
			if err := l.StoreLogs(row.entries); !errors.Is(err, ErrNoRoom) || (fatal > 0) != row.fatal || full != 1 {
				t.Errorf("%v, %d times fatal, %d times full", err, fatal, full)
			}
			if row.fatal || row.shortened {
				return
			}
			want, err := l.LastIndex()
			must.OK(t, err)
			if err := l.DeleteRange(3, 4); !errors.Is(err, ErrNoRoom) || fatal > 0 {
				t.Errorf("cut off the end: %v, %d times fatal", err, fatal)
			}
			if last, err := l.LastIndex(); err != nil || last != want {
				t.Errorf("the log ends at %d, want %d: %v", last, want, err)
			}
		})
	}
}

// TestStableStoreWaits: a term or a vote waits for a file system that is read-only, or for the end.
func TestStableStoreWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var readOnly atomic.Bool
		ends, fatal := make(chan struct{}), make(chan error, 1)
		l, err := OpenLog(t.TempDir(), LogOptions{
			Ends: ends, Fatal: func(err error) { fatal <- err },
			Commit: func(file string, commit func() error) error {
				if file == stableFile && readOnly.Load() {
					return &os.PathError{Op: "write", Path: file, Err: syscall.EROFS}
				}
				return commit()
			},
		})
		must.OK(t, err)
		readOnly.Store(true)
		done := make(chan error)
		go func() { done <- l.SetUint64([]byte("CurrentTerm"), 7) }()
		time.Sleep(time.Hour)
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("the term was stored: %v", err)
		default:
		}
		readOnly.Store(false)
		must.OK(t, <-done)
		if term, err := l.GetUint64([]byte("CurrentTerm")); err != nil || term != 7 {
			t.Errorf("term %d: %v", term, err)
		}
		readOnly.Store(true)
		go func() { done <- l.SetUint64([]byte("CurrentTerm"), 8) }()
		time.Sleep(time.Hour)
		close(ends)
		if err := <-done; !errors.Is(err, syscall.EROFS) || len(fatal) != 1 {
			t.Errorf("at the end: %v, %d times fatal", err, len(fatal))
		}
		must.OK(t, l.Close())
	})
}
