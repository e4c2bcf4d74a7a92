package wal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// spareSuffix is that of the reserve's files.
const spareSuffix = ".spare"

// spares are files of SegmentBytes that the disk has room for already. They become segments where it has none
// for others. Their content counts for nothing until then: it is made zeros.
type spares struct {
	making sync.Mutex // held by Reserve
	// last is the number in the name of the newest one. No name is used twice: one that is being made a segment has
	// it until it is one, and another file in its place would be the segment then. For Reserve.
	last uint64

	mu    sync.Mutex
	names []string
	taken bool // one is being made the next segment: it counts as room
}

// settle is called when what was taken counts as a segment, or is back.
func (p *spares) settle() {
	p.mu.Lock()
	p.taken = false
	p.mu.Unlock()
}

// Room is what a log can still take without any more room on the disk.
type Room struct {
	// Bytes of frames, in the tail, in the segment that is prepared behind it, and in the reserve.
	Bytes int64
	// Spares that the reserve has, and that it should have.
	Spares, Wanted int
	// Prepared is whether the segment behind the tail is there. On a full disk it was a spare one.
	Prepared bool
}

// Whole reports whether the reserve's segments are there, but for one that is the next of the log already.
func (r Room) Whole() bool {
	if r.Prepared {
		return r.Spares+1 >= r.Wanted
	}
	return r.Spares >= r.Wanted
}

// Room says what there is. It does not wait for the disk.
func (w *WAL) Room() Room {
	w.spares.mu.Lock()
	r := Room{Spares: len(w.spares.names), Wanted: w.o.Spares}
	r.Bytes = int64(r.Spares * w.o.SegmentBytes)
	if w.spares.taken {
		r.Bytes, r.Prepared = r.Bytes+int64(w.o.SegmentBytes), true
	}
	w.spares.mu.Unlock()
	if ready := w.ready.Load(); ready > 0 {
		r.Bytes, r.Prepared = r.Bytes+ready, true
	}
	w.mu.RLock()
	defer w.mu.RUnlock()
	if s := w.tail(); !s.full {
		r.Bytes += max(0, s.size-s.end)
	}
	return r
}

// Probe writes to a spare segment, if there is one, as an append writes to the tail: over what the file has. Where the file system copies on a write, that
// takes room on the disk. Error: ErrNoRoom, those of files; none is one of the log.
func (w *WAL) Probe() error {
	w.spares.mu.Lock() // or it could be the tail meanwhile
	defer w.spares.mu.Unlock()
	if len(w.spares.names) == 0 {
		return nil
	}
	f, err := os.OpenFile(filepath.Join(w.dir, w.spares.names[0]), os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt(make([]byte, probeBytes), 0)
		err = errors.Join(err, f.Close())
	}
	return w.asNoRoom(err)
}

// probeBytes are written by Probe: some pages, of which each may need room of its own.
const probeBytes = 64 << 10

// Reserve makes the spare segments that are missing. Call it once the log is open, and again from time to time as long as Room
// has fewer than it should; not beside Close. Errors: ErrNoRoom, those of files. None is one of the log.
func (w *WAL) Reserve() error {
	w.spares.making.Lock()
	defer w.spares.making.Unlock()
	for {
		w.spares.mu.Lock()
		whole := len(w.spares.names) >= w.o.Spares
		w.spares.mu.Unlock()
		if whole {
			return nil
		}
		w.spares.last++
		name := strconv.FormatUint(w.spares.last, 10) + spareSuffix
		if err := w.makeSpare(name); err != nil {
			return w.asNoRoom(fmt.Errorf("make %s: %w", name, err))
		}
	}
}

func (w *WAL) makeSpare(name string) error {
	f, err := w.make(name, int64(w.o.SegmentBytes))
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), w.addSpare(name+newSuffix, name))
}

// addSpare gives a file the name of a spare segment. With ErrNoRoom it has the one that it had.
func (w *WAL) addSpare(from, name string) error {
	w.spares.mu.Lock()
	defer w.spares.mu.Unlock()
	if err := os.Rename(filepath.Join(w.dir, from), filepath.Join(w.dir, name)); err != nil {
		return w.asNoRoom(err)
	}
	w.spares.names = append(w.spares.names, name)
	return syncDir(w.dir)
}

// prepareSpare makes a spare segment the one with a number. It returns nil if there is none.
func (w *WAL) prepareSpare(number uint64) (*segment, error) {
	w.spares.mu.Lock()
	n := len(w.spares.names)
	if n == 0 {
		w.spares.mu.Unlock()
		return nil, nil
	}
	name := w.spares.names[n-1]
	w.spares.names, w.spares.taken = w.spares.names[:n-1], true
	w.spares.mu.Unlock()
	f, err := w.clean(name)
	if err != nil {
		err = fmt.Errorf("prepare %s: %w", name, err)
	} else if s, failed := w.publish(f, name, number); failed == nil {
		return s, nil
	} else {
		err = failed
	}
	if _, other := os.Lstat(filepath.Join(w.dir, name)); other == nil {
		w.spares.mu.Lock()
		w.spares.names = append(w.spares.names, name)
		w.spares.mu.Unlock()
	}
	return nil, err
}

// clean opens a spare segment and sees to it that it is zeros. It may have been a segment before.
func (w *WAL) clean(name string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(w.dir, name), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	s := &segment{name: name, file: f}
	b, err := s.content(nil)
	if err == nil && !zeros(b) {
		if err = fillWithZeros(f, 0, int64(len(b))); err == nil {
			err = f.Sync()
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// takeOut takes a segment's file out of the log. With ErrNoRoom it is there still. The file becomes a spare one if the reserve misses one: another program
// could take the room of a file that is removed.
func (w *WAL) takeOut(s *segment) error {
	w.spares.mu.Lock()
	missing := len(w.spares.names) < w.o.Spares
	w.spares.mu.Unlock()
	if missing && s.size >= int64(w.o.SegmentBytes) {
		return w.addSpare(s.name, "was-"+strings.TrimSuffix(s.name, suffix)+spareSuffix)
	}
	if err := os.Remove(filepath.Join(w.dir, s.name)); err != nil {
		return w.asNoRoom(err)
	}
	return syncDir(w.dir)
}
