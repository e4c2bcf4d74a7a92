package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/must"
)

// segmentBytes of the logs of these tests: behind the header there is room for 4056 bytes of frames.
const segmentBytes = 4 << 10

// framed makes an entry whose frame has so many bytes, none of which is zero in its data.
func framed(index uint64, length int) *raft.Log {
	return &raft.Log{Index: index, Term: 1, Data: bytes.Repeat([]byte("x"), length-frameHead-frameTail)}
}

// storeEach stores entries as one batch each.
func storeEach(t *testing.T, w *WAL, logs ...*raft.Log) {
	t.Helper()
	for _, l := range logs {
		must.OK(t, w.StoreLogs([]*raft.Log{l}))
	}
}

// thousands makes entries of which three go into a segment.
func thousands(from, to uint64) (logs []*raft.Log) {
	for i := from; i <= to; i++ {
		logs = append(logs, framed(i, 1048))
	}
	return logs
}

// TestExactFit: a segment is filled to where a note still fits behind, by a batch with one write.
func TestExactFit(t *testing.T) {
	for _, row := range []struct {
		name             string
		batches          [][]*raft.Log
		commits, segment int // segment: where the last entry is
	}{
		{"a batch", [][]*raft.Log{{framed(1, 2024), framed(2, 1976)}}, 1, 1},
		{"a batch that is too long", [][]*raft.Log{{framed(1, 2024), framed(2, 1984)}}, 2, 2},
		{"a batch of which the middle is too long", [][]*raft.Log{{framed(1, 2024), framed(2, 3936), framed(3, 64)}}, 2, 2},
		{"two batches", [][]*raft.Log{{framed(1, 2024)}, {framed(2, 1976)}}, 2, 1},
		{"two batches that are too long", [][]*raft.Log{{framed(1, 2024)}, {framed(2, 1984)}}, 2, 2},
	} {
		commits, m := 0, &model{logs: map[uint64]*raft.Log{}}
		w := mustOpen(t, t.TempDir(), Options{SegmentBytes: segmentBytes, Commit: func(_ string, change func() error) error {
			commits++
			return change()
		}})
		for _, b := range row.batches {
			must.OK(t, w.StoreLogs(b))
			m.store(b)
		}
		m.check(t, w)
		if s := w.tail(); commits != row.commits || int(s.number) != row.segment {
			t.Errorf("%s: %d commits up to segment %d, want %d up to %d", row.name, commits, s.number, row.commits, row.segment)
		}
	}
}

// TestHeaderAlone: behind a header alone there is room for any entry, as in a segment without one.
func TestHeaderAlone(t *testing.T) {
	b := make([]byte, segmentBytes)
	copy(b, header{number: 1, size: segmentBytes}.append(nil))
	dir := image{nameOf(1): b}.write(t)
	w := mustOpen(t, dir, Options{SegmentBytes: segmentBytes})
	l := framed(1, 2*segmentBytes)
	storeEach(t, w, l)
	if s := w.tail(); s.number != 1 {
		t.Errorf("the entry is in segment %d", s.number)
	}
	must.OK(t, w.Close())
	m := &model{logs: map[uint64]*raft.Log{}}
	m.store([]*raft.Log{l})
	m.check(t, mustOpen(t, dir, Options{SegmentBytes: segmentBytes}))
}

// TestSegmentSizes: the first segments are small, up to the size that was asked for.
func TestSegmentSizes(t *testing.T) {
	for _, row := range []struct {
		segmentBytes int
		number       uint64
		want         int
	}{
		{DefaultSegmentBytes, 1, 1 << 20},
		{DefaultSegmentBytes, 2, 2 << 20},
		{DefaultSegmentBytes, 4, 8 << 20},
		{DefaultSegmentBytes, 5, DefaultSegmentBytes},
		{DefaultSegmentBytes, 6, DefaultSegmentBytes},
		{DefaultSegmentBytes, 17, DefaultSegmentBytes},
		{DefaultSegmentBytes, 1 << 63, DefaultSegmentBytes},
		{segmentBytes, 1, segmentBytes},
	} {
		w := &WAL{o: Options{SegmentBytes: row.segmentBytes}}
		if got := w.sizeOf(row.number); got != row.want {
			t.Errorf("segment %d of up to %d bytes has %d, want %d", row.number, row.segmentBytes, got, row.want)
		}
	}
}

// TestEmptyRanges: a range without entries is deleted without a write.
func TestEmptyRanges(t *testing.T) {
	for _, row := range []struct {
		name     string
		cut, log uint64 // entries up to cut were deleted of those up to log
		min, max uint64
	}{
		{"of a log that was never written to", 0, 0, 0, 0},
		{"up to an index of a log that was never written to", 0, 0, 0, 3},
		{"of an empty log", 3, 3, 1, 5},
		{"the wrong way around", 10, 20, 15, 12},
		{"below the log", 10, 20, 1, 10},
		{"above the log", 10, 20, 21, 30},
	} {
		commits := 0
		w := mustOpen(t, t.TempDir(), Options{Commit: func(_ string, change func() error) error {
			commits++
			return change()
		}})
		if row.log > 0 {
			must.OK(t, w.StoreLogs(thousands(1, row.log)))
			must.OK(t, w.DeleteRange(1, row.cut))
		}
		first, last := w.FirstFrom(0), w.LastIndex()
		commits = 0
		if err := w.DeleteRange(row.min, row.max); err != nil {
			t.Errorf("%s: %v", row.name, err)
		}
		if f, l := w.FirstFrom(0), w.LastIndex(); f != first || l != last || commits != 0 {
			t.Errorf("%s: %d commits, and the log has %d to %d, had %d to %d", row.name, commits, f, l, first, last)
		}
	}
}

// TestRangeOfManyFiles: the removal of the log's beginning removes all files that it was in, or fails.
func TestRangeOfManyFiles(t *testing.T) {
	broken, removals := errors.New("broken"), 0
	for _, good := range []int{1 << 30, 1} { // removals
		w := mustOpen(t, t.TempDir(), Options{SegmentBytes: segmentBytes})
		storeEach(t, w, thousands(1, 30)...)
		oldest := w.segments[0].name
		removals = 0
		w.o.Commit = func(name string, change func() error) error {
			if name == oldest {
				if removals++; removals > good {
					return broken
				}
				oldest = w.segments[1].name
			}
			return change()
		}
		err := w.DeleteRange(1, 28)
		if good == 1 {
			if !errors.Is(err, broken) || removals != 2 {
				t.Errorf("after %d removals, the second of which failed: %v", removals, err)
			}
			continue
		}
		must.OK(t, err)
		files, err := filepath.Glob(filepath.Join(w.dir, "*"+suffix))
		must.OK(t, err)
		if removals != 9 || len(files) > 2 {
			t.Errorf("%d removals, left are %q", removals, files)
		}
	}
}

// TestLostSector: of the newest batch any sector may be missing, of those before it none.
func TestLostSector(t *testing.T) {
	for _, row := range []struct {
		name    string
		batches []*raft.Log // of an entry each, in one segment
		lost    int         // the batch that loses its second sector
		left    uint64      // entries; 0: damage
	}{
		{"of the first batch", []*raft.Log{framed(1, 1504), framed(2, 1504), framed(3, 992)}, 0, 0},
		{"of the second batch", []*raft.Log{framed(1, 992), framed(2, 1504), framed(3, 1504)}, 1, 0},
		{"of the newest batch", []*raft.Log{framed(1, 1000), framed(2, 1000), framed(3, 1504)}, 2, 2},
		{"of the newest batch, which ends with the segment", []*raft.Log{framed(1, 1000), framed(2, 1000), framed(3, 2000)}, 2, 2},
	} {
		dir, o := t.TempDir(), Options{SegmentBytes: segmentBytes}
		w := mustOpen(t, dir, o)
		storeEach(t, w, row.batches...)
		places := w.tail().places
		if len(places) != len(row.batches) {
			t.Fatalf("%s: %d entries are in the newest segment", row.name, len(places))
		}
		must.OK(t, w.Close())
		files := imageOf(t, dir)
		at := (places[row.lost].at/sector + 1) * sector
		clear(files[nameOf(1)][at : at+sector])
		w, err := Open(files.write(t), o)
		if row.left == 0 {
			if !errors.Is(err, ErrDamaged) {
				t.Errorf("%s: %v", row.name, err)
			}
			continue
		}
		must.OK(t, err)
		if last := w.LastIndex(); last != row.left {
			t.Errorf("%s: the log ends at %d, want %d", row.name, last, row.left)
		}
		must.OK(t, w.Close())
	}
}

// TestLostLength: a file that an entry has made longer has its new length before the entry is written, so a shorter
// one is damaged. Earlier releases left the length to the write, and named the shorter one in the header: of theirs
// the entry alone is lost.
func TestLostLength(t *testing.T) {
	for _, before := range []uint64{0, 3} { // entries in segments before
		dir, o := t.TempDir(), Options{SegmentBytes: segmentBytes}
		w := mustOpen(t, dir, o)
		storeEach(t, w, thousands(1, before)...)
		storeEach(t, w, framed(before+1, 4*segmentBytes))
		s, h := w.tail(), header{number: w.tail().number, follows: before, size: segmentBytes}
		if before > 0 {
			h.end = uint64(w.segments[len(w.segments)-2].end)
		}
		must.OK(t, w.Close())
		must.OK(t, os.Truncate(filepath.Join(dir, s.name), segmentBytes))
		if _, err := Open(dir, o); !errors.Is(err, ErrDamaged) {
			t.Errorf("opened with the old length: %v", err)
		}
		f, err := os.OpenFile(filepath.Join(dir, s.name), os.O_RDWR, 0)
		must.OK(t, err)
		_, err = f.WriteAt(h.append(nil), 0)
		must.OK(t, errors.Join(err, f.Close()))
		w = mustOpen(t, dir, o)
		if last := w.LastIndex(); last != before {
			t.Errorf("the log ends at %d, want %d", last, before)
		}
		storeEach(t, w, framed(before+1, 100))
		must.OK(t, w.Close())
		if last := mustOpen(t, dir, o).LastIndex(); last != before+1 {
			t.Errorf("opened again it ends at %d, want %d", last, before+1)
		}
	}
}

// TestHeadsOfNoFrame: each field of a frame's head that can have a wrong value is looked at.
func TestHeadsOfNoFrame(t *testing.T) {
	for _, row := range []struct {
		name string
		at   int
		to   byte
		want int
	}{
		{"as it was", 4, kindEntry, frameHead + 8 + frameTail},
		{"the last kind", 4, kindCut, frameHead + 8 + frameTail},
		{"no kind", 4, 0, 0},
		{"a later kind", 4, kindCut + 1, 0},
		{"the mark's first byte", 6, 0, 0},
		{"the mark's second byte", 7, 0, 0},
		{"all extensions", 8, 5, frameHead + 8 + frameTail},
		{"more extensions than bytes", 8, 6, 0},
		{"more bytes than a file has", 3, 0x80, 0},
	} {
		head := make([]byte, frameHead)
		binary.LittleEndian.PutUint32(head, 5)
		head[4] = kindEntry
		binary.LittleEndian.PutUint16(head[6:], headMark)
		head[row.at] = row.to
		if got := frameLength(head); got != row.want {
			t.Errorf("%s: %d, want %d", row.name, got, row.want)
		}
	}
	if got := frameLength(make([]byte, frameHead-1)); got != 0 {
		t.Errorf("half a head is that of a frame of %d bytes", got)
	}
}

// TestAnotherFrameInItsPlace: a frame that holds is not taken for the entry that was written.
func TestAnotherFrameInItsPlace(t *testing.T) {
	dir := t.TempDir()
	w := mustOpen(t, dir, Options{SegmentBytes: segmentBytes})
	storeEach(t, w, framed(1, 104), framed(2, 104), framed(3, 104))
	at := w.tail().places[1].at
	f, err := os.OpenFile(filepath.Join(dir, nameOf(1)), os.O_RDWR, 0)
	must.OK(t, err)
	defer f.Close()
	for _, row := range []struct {
		name string
		kind byte
		log  *raft.Log
		good bool
	}{
		{"the same", kindEntry, framed(2, 104), true},
		{"a shorter one", kindEntry, framed(2, 96), false},
		{"another kind", kindCut, framed(2, 104), false},
		{"another index", kindEntry, framed(4, 104), false},
	} {
		_, err = f.WriteAt(appendFrame(nil, 1, at, at, row.kind, row.log), int64(at))
		must.OK(t, err)
		var l raft.Log
		if err := w.GetLog(2, &l); row.good && err != nil || !row.good && !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", row.name, err)
		}
	}
}

// readOnly takes from a segment the right to write to its file.
func readOnly(t *testing.T, w *WAL, s *segment) {
	f, err := os.Open(filepath.Join(w.dir, s.name))
	must.OK(t, err)
	must.OK(t, s.file.Close())
	s.file = f
}

// TestWritesThatFail: nothing is stored by a write that failed, also if the sync behind it would not.
func TestWritesThatFail(t *testing.T) {
	dir := t.TempDir()
	w := mustOpen(t, dir, Options{SegmentBytes: segmentBytes})
	storeEach(t, w, framed(1, 104))
	readOnly(t, w, w.tail())
	if err := w.StoreLogs([]*raft.Log{framed(2, 104)}); err == nil || w.LastIndex() != 1 {
		t.Errorf("an entry that was not written: %v; the log ends at %d", err, w.LastIndex())
	}
	must.OK(t, w.Close())
	// The batch that Open writes once more.
	again := &WAL{dir: dir, fill: fillWithZeros}
	again.o = Options{SegmentBytes: segmentBytes, Step: func(string) {}, Prepared: func(uint64) error { return nil }, Commit: func(_ string, change func() error) error {
		readOnly(t, again, again.segments[0])
		return change()
	}}
	if err := again.open(); err == nil {
		t.Error("a batch that was not written once more is told of")
	}
	must.OK(t, again.Close())
}

// TestSpareIsKept: the segment that was prepared is the next one after a start, without being made again.
func TestSpareIsKept(t *testing.T) {
	for _, n := range []uint64{0, 3} { // entries: with them the spare is the second segment
		dir, made := t.TempDir(), 0
		w := mustOpen(t, dir, Options{SegmentBytes: segmentBytes})
		storeEach(t, w, thousands(1, n)...)
		must.OK(t, w.Close())
		w = mustOpen(t, dir, Options{SegmentBytes: segmentBytes, Step: func(name string) {
			if name == "wal.prepared" {
				made++
			}
		}})
		if made != 0 {
			t.Errorf("behind %d entries %d segments were made at the start", n, made)
		}
		storeEach(t, w, framed(n+1, 1048))
		if s := w.tail(); s.number != 1+n/3 || made != 0 {
			t.Errorf("entry %d is in segment %d; %d were made", n+1, s.number, made)
		}
	}
}

// TestWhatASegmentFollows: a segment that follows another entry than the one before it is damage, also
// where the log does not begin with the first segment, or nothing is left before it.
func TestWhatASegmentFollows(t *testing.T) {
	for _, row := range []struct {
		name  string
		write func(w *WAL)
		// The segment, what it follows, and what it is said to follow.
		number              uint64
		follows, other      uint64
		segments, firstFile int
	}{
		{"behind the first segment", func(w *WAL) {
			storeEach(t, w, thousands(1, 6)...)
		}, 2, 3, 2, 2, 1},
		{"behind a cut", func(w *WAL) {
			storeEach(t, w, thousands(1, 9)...)
			must.OK(t, w.DeleteRange(1, 3))
		}, 3, 6, 5, 2, 2},
		{"behind nothing", func(w *WAL) {
			storeEach(t, w, thousands(1, 3)...)
			must.OK(t, w.DeleteRange(1, 3))
			storeEach(t, w, thousands(1, 3)...)
		}, 2, 0, 3, 2, 1},
	} {
		dir, o := t.TempDir(), Options{SegmentBytes: segmentBytes}
		w := mustOpen(t, dir, o)
		row.write(w)
		if len(w.segments) != row.segments || int(w.segments[0].number) != row.firstFile {
			t.Fatalf("%s: %d segments from %d on", row.name, len(w.segments), w.segments[0].number)
		}
		must.OK(t, w.Close())
		files := imageOf(t, dir)
		b := files[nameOf(row.number)]
		h, begun, err := readHeader(b, row.number)
		must.OK(t, err)
		if !begun || h.follows != row.follows {
			t.Fatalf("%s: segment %d follows %d", row.name, row.number, h.follows)
		}
		h.follows = row.other
		copy(b, h.append(nil))
		if _, err := Open(files.write(t), o); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", row.name, err)
		}
	}
}

// TestDamageIsNamed: the error says which file is not what it should be.
func TestDamageIsNamed(t *testing.T) {
	dir, o := t.TempDir(), Options{SegmentBytes: segmentBytes}
	w := mustOpen(t, dir, o)
	storeEach(t, w, thousands(1, 9)...)
	must.OK(t, w.Close())
	for _, row := range []struct {
		name   string
		damage func(files image)
		want   string
	}{
		{"a segment is gone", func(files image) { delete(files, nameOf(2)) }, nameOf(2) + " is missing"},
		{"a segment is zeros", func(files image) { clear(files[nameOf(2)]) }, nameOf(3) + " was begun and " + nameOf(2) + " was not"},
		{"two segments are zeros", func(files image) {
			clear(files[nameOf(2)])
			clear(files[nameOf(3)])
		}, nameOf(2) + " and " + nameOf(3) + " were both not begun"},
	} {
		files := imageOf(t, dir)
		row.damage(files)
		if _, err := Open(files.write(t), o); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", row.name, err, row.want)
		}
	}
}

// TestDamagedLengthOfTheNewest: a frame that says to end behind its file was not torn, unless it is
// alone in it: its length is wrong, and it may have been acknowledged.
func TestDamagedLengthOfTheNewest(t *testing.T) {
	dir, o := t.TempDir(), Options{SegmentBytes: segmentBytes}
	w := mustOpen(t, dir, o)
	storeEach(t, w, framed(1, 104), framed(2, 104))
	at := w.tail().places[1].at
	must.OK(t, w.Close())
	files := imageOf(t, dir)
	files[nameOf(1)][at+2] = 1 // 64 KiB more
	if _, err := Open(files.write(t), o); !errors.Is(err, ErrDamaged) {
		t.Error(err)
	}
}

// TestFirstEntryOfASegment: it is above those before it, also with a hole between them.
func TestFirstEntryOfASegment(t *testing.T) {
	dir, o := t.TempDir(), Options{SegmentBytes: segmentBytes}
	w := mustOpen(t, dir, o)
	storeEach(t, w, thousands(1, 3)...)
	end := w.tail().end
	must.OK(t, w.Close())
	for index, good := range map[uint64]bool{1: false, 3: false, 4: true, 9: true} {
		files := imageOf(t, dir)
		b := header{number: 2, follows: 3, end: uint64(end), size: segmentBytes}.append(nil)
		copy(files[nameOf(2)], appendFrame(b, 2, headerSize, headerSize, kindEntry, framed(index, 104)))
		w, err := Open(files.write(t), o)
		switch {
		case !good && !errors.Is(err, ErrDamaged):
			t.Errorf("entry %d behind entry 3: %v", index, err)
		case good:
			must.OK(t, err)
			if last := w.LastIndex(); last != index {
				t.Errorf("the log ends at %d, want %d", last, index)
			}
			must.OK(t, w.Close())
		}
	}
}

// TestSyncOfNoDirectory: what is not there is named, not the file that it was not opened as.
func TestSyncOfNoDirectory(t *testing.T) {
	if err := syncDir(filepath.Join(t.TempDir(), "gone")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// TestTheTailStays: a log of which all is cut from the front goes on in the segment that it had.
func TestTheTailStays(t *testing.T) {
	w := mustOpen(t, t.TempDir(), Options{SegmentBytes: segmentBytes})
	storeEach(t, w, thousands(1, 2)...)
	if more, err := w.DeleteFront(2); more || err != nil || len(w.segments) != 1 {
		t.Fatalf("%d segments, more %t, %v", len(w.segments), more, err)
	}
	storeEach(t, w, thousands(3, 3)...)
	if first, last := w.FirstFrom(0), w.LastIndex(); first != 3 || last != 3 {
		t.Errorf("the log has %d to %d", first, last)
	}
}
