package wal

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/must"
)

// TestCutWithoutRoom: the log's beginning is cut while the tail is full and the disk has no room for more than
// some segments. Files that have nothing else go first; nothing that stays is lost, and no error ends the process.
func TestCutWithoutRoom(t *testing.T) {
	for _, row := range []struct {
		name       string
		room       int // segments
		upTo       uint64
		first      uint64 // afterwards
		firstOnNew uint64 // as the next start finds it
	}{
		{"room for another segment", 4, 7, 8, 8},
		{"a file makes room", 3, 7, 8, 8},
		{"a file makes room, and is all that is cut", 3, 3, 4, 4},
		{"two files make no room", 1, 7, 7, 7},
		{"no file can be removed", 3, 2, 1, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir, o := t.TempDir(), Options{SegmentBytes: segmentBytes}
			m := &model{logs: map[uint64]*raft.Log{}}
			var left []image // by a kill behind each removal
			o.Step = func(name string) {
				if name == "wal.room" {
					left = append(left, imageOf(t, dir))
				}
			}
			w := mustOpen(t, dir, o)
			w.fill = func(f *os.File, from, to int64) error {
				files, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
				must.OK(t, err)
				if len(files) >= row.room {
					return syscall.ENOSPC
				}
				return fillWithZeros(f, from, to)
			}
			room := row.room
			row.room = 3 // until the log is there
			for i := uint64(1); i <= 9; i++ {
				l := framed(i, 1328)
				if i%3 == 2 {
					l.Type = raft.LogConfiguration
				}
				storeEach(t, w, l)
				m.store([]*raft.Log{l})
			}
			must.OK(t, w.note(kindCut, 1)) // in the place that entries leave to a note
			if s := w.tail(); s.number != 3 || s.end+noteSize <= s.size {
				t.Fatalf("segment %d is not full", s.number)
			}
			if w.next != nil {
				_, _ = w.next.wait()
			}
			row.room = room
			must.OK(t, w.DeleteRange(1, row.upTo))
			m.remove(1, row.first-1)
			m.check(t, w)
			row.room = 100
			more := framed(10, 104)
			storeEach(t, w, more)
			m.store([]*raft.Log{more})
			m.check(t, w)
			must.OK(t, w.Close())
			w = mustOpen(t, dir, Options{SegmentBytes: segmentBytes})
			if first := w.FirstFrom(0); first != row.firstOnNew || w.LastIndex() != 10 {
				t.Errorf("the next start finds %d to %d", first, w.LastIndex())
			}
			for i, files := range left {
				w := mustOpen(t, files.write(t), Options{SegmentBytes: segmentBytes})
				if first := w.FirstFrom(0); first != uint64(3*(i+1)+1) || w.LastIndex() != 9 {
					t.Errorf("after removal %d a start finds %d to %d", i+1, first, w.LastIndex())
				}
			}
		})
	}
}

// smallDisk is a disk that has room for some bytes, for the files of one directory.
type smallDisk struct {
	t        *testing.T
	dir      string
	capacity atomic.Int64
}

// fill is fillWithZeros on it. What it writes before there is no room is left, as on any disk.
func (d *smallDisk) fill(f *os.File, from, to int64) error {
	files, err := os.ReadDir(d.dir)
	must.OK(d.t, err)
	used := int64(0)
	for _, file := range files {
		if info, err := file.Info(); err == nil { // it may have got another name
			used += info.Size()
		}
	}
	if room := d.capacity.Load() - used; to-from > room {
		must.OK(d.t, fillWithZeros(f, from, from+max(room, 0)))
		return syscall.ENOSPC
	}
	return fillWithZeros(f, from, to)
}

// TestSparesOfAnotherSize: what has the name of a spare segment, and not its size, is replaced.
func TestSparesOfAnotherSize(t *testing.T) {
	dir := t.TempDir()
	must.OK(t, os.WriteFile(filepath.Join(dir, "1"+spareSuffix), nil, 0o600))
	must.OK(t, os.WriteFile(filepath.Join(dir, "2"+spareSuffix), make([]byte, segmentBytes-1), 0o600))
	must.OK(t, os.Mkdir(filepath.Join(dir, "3"+spareSuffix), 0o700))
	w := mustOpen(t, dir, Options{SegmentBytes: segmentBytes, Spares: 2})
	if r := w.Room(); r.Spares != 0 {
		t.Errorf("%d spares of another size are counted", r.Spares)
	}
	must.OK(t, w.Reserve())
	files, err := filepath.Glob(filepath.Join(dir, "*"+spareSuffix))
	must.OK(t, err)
	for _, name := range files {
		if info, err := os.Stat(name); err != nil || info.Size() != segmentBytes {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if r := w.Room(); r.Spares != 2 || len(files) != 2 {
		t.Errorf("%d spares, %d files", r.Spares, len(files))
	}
}

// TestProbe: a probe of the reserve leaves the log, and what it does with the segment, as it was.
func TestProbe(t *testing.T) {
	dir := t.TempDir()
	w := mustOpen(t, dir, Options{SegmentBytes: segmentBytes, Spares: 1})
	must.OK(t, w.Probe()) // there is no spare yet
	must.OK(t, w.Reserve())
	m := &model{logs: map[uint64]*raft.Log{}}
	for i := uint64(1); i <= 12; i++ {
		must.OK(t, w.Probe())
		l := framed(i, 1328)
		storeEach(t, w, l)
		m.store([]*raft.Log{l})
		if i == 6 {
			must.OK(t, w.DeleteRange(1, 4)) // a segment with frames becomes the spare
			m.remove(1, 4)
		}
	}
	must.OK(t, w.Close())
	w = mustOpen(t, dir, Options{SegmentBytes: segmentBytes, Spares: 1})
	m.check(t, w)
	names, err := filepath.Glob(filepath.Join(dir, "*"+spareSuffix))
	must.OK(t, err)
	for _, name := range names {
		must.OK(t, os.Remove(name))
	}
	if err := w.Probe(); len(names) == 0 || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the probe of %d spares that are gone: %v", len(names), err)
	}
}

// TestFullDiskRandomly stores, truncates and cuts on a disk that fills and empties. A change that finds no room
// changes nothing, whatever it had begun; the log is otherwise what a model says, also for the next start.
func TestFullDiskRandomly(t *testing.T) {
	all := 0
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 0))
		d := &smallDisk{t: t, dir: t.TempDir()}
		d.capacity.Store(1 << 30)
		o := Options{SegmentBytes: segmentBytes, Spares: rng.IntN(3)}
		open := func() *WAL {
			w, err := Open(d.dir, o)
			must.OK(t, err)
			w.fill = d.fill
			return w
		}
		w, m := open(), &model{logs: map[uint64]*raft.Log{}}
		refused, term := 0, uint64(1)
		for range 150 {
			var err error
			switch rng.IntN(12) {
			case 0:
				d.capacity.Store(int64(rng.IntN(12 * segmentBytes)))
			case 1:
				d.capacity.Store(1 << 30)
			case 2:
				if err := w.Reserve(); err != nil && !errors.Is(err, ErrNoRoom) {
					t.Fatal(err)
				}
			case 3:
				must.OK(t, w.Close())
				w = open()
			case 4:
				if m.last > m.first {
					upTo := m.first + rng.Uint64N(m.last-m.first)
					must.OK(t, w.DeleteRange(m.first, upTo))
					first := w.FirstFrom(0) // without room for the note it cuts whole files
					if first < m.first || first > upTo+1 {
						t.Fatalf("seed %d: cut up to %d, and the log begins at %d", seed, upTo, first)
					}
					m.remove(0, first-1)
				}
			case 5:
				if m.last > 0 {
					from := m.last - min(m.last-m.first, rng.Uint64N(4))
					if err = w.DeleteRange(from, m.last); err == nil {
						m.remove(from, m.last)
						term++
					}
				}
			default:
				size := []int{10, 300, segmentBytes / 2, 3 * segmentBytes}[rng.IntN(4)]
				from := max(m.last, w.first-min(w.first, 1)) + 1
				logs := entries(rng, term, from, 1+rng.IntN(12), 1+rng.IntN(size))
				if err = w.StoreLogs(logs); err == nil {
					m.store(logs)
				}
			}
			if errors.Is(err, ErrNoRoom) {
				refused++
			} else {
				must.OK(t, err)
			}
			m.check(t, w)
		}
		d.capacity.Store(1 << 30)
		must.OK(t, w.Reserve())
		logs := entries(rng, term, max(m.last, w.first-min(w.first, 1))+1, 50, 300)
		must.OK(t, w.StoreLogs(logs))
		m.store(logs)
		must.OK(t, w.Close())
		w = open()
		m.check(t, w)
		if r := w.Room(); r.Spares < r.Wanted {
			t.Errorf("seed %d: the reserve has %d segments of %d", seed, r.Spares, r.Wanted)
		}
		must.OK(t, w.Close())
		all += refused
	}
	if all < 50 {
		t.Errorf("%d changes found no room", all)
	}
}

// TestReserveLasts: on a full disk the log goes on for as long as it is cut, because its own files come back to it.
// When it is not cut it ends when the reserve has.
func TestReserveLasts(t *testing.T) {
	d := &smallDisk{t: t, dir: t.TempDir()}
	d.capacity.Store(1 << 30)
	o := Options{SegmentBytes: segmentBytes, Spares: 2}
	w := mustOpen(t, d.dir, o)
	w.fill = d.fill
	must.OK(t, w.Reserve())
	m := &model{logs: map[uint64]*raft.Log{}}
	rng := rand.New(rand.NewPCG(1, 0))
	store := func() error {
		logs := entries(rng, 1, m.last+1, 1, 1000)
		err := w.StoreLogs(logs)
		if err == nil {
			m.store(logs)
		}
		return err
	}
	d.capacity.Store(0)
	for range 300 {
		must.OK(t, store())
		if m.last > 4 {
			must.OK(t, w.DeleteRange(m.first, m.last-4))
			m.remove(m.first, m.last-4)
		}
	}
	m.check(t, w)
	files, err := os.ReadDir(d.dir)
	if must.OK(t, err); len(files) > 6 {
		t.Errorf("there are %d files", len(files))
	}
	before, stored := w.Room().Bytes, int64(0)
	for {
		err := store()
		if errors.Is(err, ErrNoRoom) {
			break
		}
		must.OK(t, err)
		stored += 1056
	}
	if stored < before/2 || stored > before {
		t.Errorf("%d bytes were stored, there was room for %d", stored, before)
	}
	if r := w.Room(); r.Bytes >= segmentBytes {
		t.Errorf("nothing can be stored, and there is room for %d bytes", r.Bytes)
	}
	m.check(t, w)
	must.OK(t, w.DeleteRange(m.first, m.last-1)) // makes room
	m.remove(m.first, m.last-1)
	must.OK(t, store())
	m.check(t, w)
	d.capacity.Store(1 << 30)
	must.OK(t, w.Reserve())
	if r := w.Room(); r.Spares != 2 {
		t.Errorf("the reserve has %d segments", r.Spares)
	}
}

// TestSpareIsCleaned: what a file had when it was a segment is not found in it when it is one again.
func TestSpareIsCleaned(t *testing.T) {
	o := Options{SegmentBytes: segmentBytes, Spares: 1}
	dir := t.TempDir()
	must.OK(t, os.WriteFile(filepath.Join(dir, "7"+spareSuffix), bytes.Repeat([]byte("x"), segmentBytes), fileMode))
	must.OK(t, os.WriteFile(filepath.Join(dir, "8"+spareSuffix+newSuffix), nil, fileMode))
	w := mustOpen(t, dir, o)
	w.fill = func(*os.File, int64, int64) error { return syscall.ENOSPC }
	storeEach(t, w, thousands(1, 4)...)
	if files := imageOf(t, dir); len(files) != 2 {
		t.Errorf("there are %d files", len(files))
	}
	must.OK(t, w.Close())
	if last := mustOpen(t, dir, o).LastIndex(); last != 4 {
		t.Errorf("the next start finds %d entries", last)
	}
}

// TestSpareNames: no spare segment is made under the name of one that is being made a segment, also after another start.
func TestSpareNames(t *testing.T) {
	dir := t.TempDir()
	o := Options{SegmentBytes: 4096, Spares: 3}
	w, err := Open(dir, o)
	must.OK(t, err)
	must.OK(t, w.Reserve())
	taken := w.spares.names[2]
	w.spares.names = w.spares.names[:2] // as prepareSpare has it meanwhile
	must.OK(t, w.Reserve())
	if len(w.spares.names) != 3 || slices.Contains(w.spares.names, taken) {
		t.Errorf("%s is being prepared, and there are %q", taken, w.spares.names)
	}
	must.OK(t, w.Close())
	w, err = Open(dir, o)
	must.OK(t, err)
	had := slices.Clone(w.spares.names)
	w.spares.names = nil
	must.OK(t, w.Reserve())
	for _, name := range w.spares.names {
		if slices.Contains(had, name) {
			t.Errorf("%s was there", name)
		}
	}
	must.OK(t, w.Close())
}
