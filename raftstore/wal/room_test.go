package wal

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"
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
			w.fill = func(f *os.File, size int) error {
				files, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
				must(t, err)
				if len(files) >= row.room {
					return syscall.ENOSPC
				}
				return fillWithZeros(f, size)
			}
			room := row.room
			row.room = 3 // until the log is there
			for i := uint64(1); i <= 9; i++ {
				l := framed(i, (segmentBytes-headerSize)/3)
				if i%3 == 2 {
					l.Type = raft.LogConfiguration
				}
				storeEach(t, w, l)
				m.store([]*raft.Log{l})
			}
			if s := w.tail(); s.number != 3 || w.fits(s, &raft.Log{}) {
				t.Fatalf("segment %d is not full", s.number)
			}
			if w.next != nil {
				_, _ = w.next.wait()
			}
			row.room = room
			must(t, w.DeleteRange(1, row.upTo))
			m.remove(1, row.first-1)
			m.check(t, w)
			row.room = 100
			more := framed(10, 104)
			storeEach(t, w, more)
			m.store([]*raft.Log{more})
			m.check(t, w)
			must(t, w.Close())
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
