package wal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/must"
)

// formatOneLog is what testdata/format1 has, which was written by a release that knew no other format, in
// segments of 4 KiB:
//
//	entries 1 to 4 and 5 to 7 as a batch each, entry 7 deleted, 7 to 9 one by one, those up to 2 deleted
func formatOneLog() *model {
	m := &model{logs: map[uint64]*raft.Log{}}
	for i := uint64(3); i <= 9; i++ {
		term := uint64(1)
		if i >= 7 {
			term = 2
		}
		m.store([]*raft.Log{formatOneEntry(i, term)})
	}
	return m
}

func formatOneEntry(i, term uint64) *raft.Log {
	l := &raft.Log{Index: i, Term: term, Data: fmt.Appendf(nil, "%0*d", 500+i, i)}
	switch i {
	case 4:
		l.Type, l.Extensions = raft.LogConfiguration, []byte("extension")
	case 5:
		l.AppendedAt = time.Unix(1_700_000_000, 5).UTC()
	case 6:
		l.Data = make([]byte, 1200) // sectors of zeros
	}
	return l
}

func formatOneFiles(t *testing.T) image { return imageOf(t, filepath.Join("testdata", "format1")) }

// TestFormatOne: a log of format 1 is read, and goes on in segments of the newest one.
func TestFormatOne(t *testing.T) {
	o, m := Options{SegmentBytes: segmentBytes}, formatOneLog()
	old := formatOneFiles(t)
	dir := old.write(t)
	w := mustOpen(t, dir, o)
	m.check(t, w)
	last := w.tail().number
	more := thousands(10, 12)
	storeEach(t, w, more...)
	m.store(more)
	m.check(t, w)
	if first := w.segments[len(w.segments)-1]; first.number != last+1 || first.format != format {
		t.Errorf("it goes on in segment %d of format %d, behind segment %d", first.number, first.format, last)
	}
	must.OK(t, w.DeleteRange(12, 12))
	m.remove(12, 12)
	must.OK(t, w.Close())
	for number := uint64(1); number <= last; number++ {
		b, err := os.ReadFile(filepath.Join(dir, nameOf(number)))
		must.OK(t, err)
		if string(b) != string(old[nameOf(number)]) {
			t.Errorf("segment %d was changed", number)
		}
	}
	m.check(t, mustOpen(t, dir, o))
}

// TestFormatOneFirstNotes: a log of format 1 can be truncated and cut first of all.
func TestFormatOneFirstNotes(t *testing.T) {
	for _, remove := range [][2]uint64{{8, 9}, {3, 5}, {3, 9}} {
		dir, o, m := formatOneFiles(t).write(t), Options{SegmentBytes: segmentBytes}, formatOneLog()
		w := mustOpen(t, dir, o)
		must.OK(t, w.DeleteRange(remove[0], remove[1]))
		m.remove(remove[0], remove[1])
		m.check(t, w)
		must.OK(t, w.Close())
		m.check(t, mustOpen(t, dir, o))
	}
}

// TestFormatOneDamage: a tear is told from damage in the newest segment of a log of format 1, as far as
// that format lets it.
func TestFormatOneDamage(t *testing.T) {
	o := Options{SegmentBytes: segmentBytes}
	files := formatOneFiles(t)
	newest := uint64(0)
	w := mustOpen(t, files.write(t), o)
	newest = w.tail().number
	places := w.tail().places
	name, last := nameOf(newest), int(places[len(places)-1].at)
	must.OK(t, w.Close())
	for _, row := range []struct {
		name   string
		change func(b []byte)
		last   uint64 // 0: damage
	}{
		{"a flip in the newest entry", func(b []byte) { b[last+100] ^= 1 }, 0},
		{"a flip in the one before it", func(b []byte) { b[last-100] ^= 1 }, 0},
		{"a sector of the newest entry is missing", func(b []byte) { clear(b[(last/sector+1)*sector : (last/sector+2)*sector]) }, 8},
		{"the newest entry is missing", func(b []byte) { clear(b[last:]) }, 8},
		{"a flip in the header", func(b []byte) { b[9] ^= 1 }, 0},
		{"a later frame, and no header", func(b []byte) { clear(b[:headerSize]) }, 0},
	} {
		files := formatOneFiles(t)
		row.change(files[name])
		w, err := Open(files.write(t), o)
		if row.last == 0 {
			if !errors.Is(err, ErrDamaged) {
				t.Errorf("%s: %v", row.name, err)
			}
			continue
		}
		must.OK(t, err)
		if got := w.LastIndex(); got != row.last {
			t.Errorf("%s: the log ends at %d, want %d", row.name, got, row.last)
		}
		must.OK(t, w.Close())
	}
}
