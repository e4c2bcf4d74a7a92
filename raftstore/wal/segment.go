package wal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

const (
	suffix    = ".log"
	newSuffix = ".new"
	fileMode  = 0o600
	dirMode   = 0o700
)

func nameOf(number uint64) string { return fmt.Sprintf("%016x%s", number, suffix) }

// numberOf returns false for a name that no segment has.
func numberOf(name string) (number uint64, ok bool) {
	if _, err := fmt.Sscanf(name, "%016x", &number); err != nil || name != nameOf(number) || number == 0 {
		return 0, false
	}
	return number, true
}

// preparation is a segment that is being made.
type preparation struct {
	done    chan struct{}
	segment *segment
	err     error
}

// errUnpublished is for a segment that has its name, or nearly: what a failed sync of the
// directory has left, or of the file that has its number, nobody knows. There is no second
// attempt.
var errUnpublished = errors.New("not known to be on disk")

// ErrNoRoom is returned for a change for which neither the disk nor the reserve has room. Nothing of it is left.
var ErrNoRoom = errors.New("the disk is full")

// NoRoom reports whether a file system, a quota or a file's limit was full, or the file system is read-only:
// whether the same write may succeed later.
func NoRoom(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EROFS) || errors.Is(err, syscall.EFBIG)
}

// asNoRoom makes an error ErrNoRoom if it says that there is no room, and that nothing is left.
func (w *WAL) asNoRoom(err error) error {
	if NoRoom(err) && !errors.Is(err, errUnpublished) {
		return fmt.Errorf("%w: %w", ErrNoRoom, err)
	}
	return err
}

func (p *preparation) wait() (*segment, error) {
	<-p.done
	return p.segment, p.err
}

// prepareNext begins to prepare the segment behind the tail, unless that has begun. The
// goroutine ends when it is done; Close waits for it.
func (w *WAL) prepareNext() {
	if w.next != nil {
		return
	}
	// It ends with this error if a callback ends the goroutine.
	p, number := &preparation{done: make(chan struct{}), err: errUnpublished}, w.tail().number+1
	w.next = p
	go func() {
		defer close(p.done)
		if p.segment, p.err = w.prepare(number); p.err == nil {
			w.ready.Store(p.segment.size)
		}
		w.spares.settle()
	}()
}

// PrepareNext sees to it that there is a segment behind the tail: at least its bytes can be stored whatever the disk
// has. It is a change. Errors: ErrNoRoom.
func (w *WAL) PrepareNext() error {
	return w.change(func() error {
		w.prepareNext()
		_, err := w.next.wait()
		if err != nil && !errors.Is(err, errUnpublished) {
			w.next = nil // the next attempt may find room
		}
		return w.asNoRoom(err)
	})
}

// rotate makes the next segment the tail. Errors: also ErrNoRoom.
func (w *WAL) rotate() (*segment, error) {
	var s *segment
	err := errors.New("not begun")
	if w.next != nil {
		s, err = w.next.wait()
		w.next = nil
		w.ready.Store(0)
	}
	if errors.Is(err, errUnpublished) {
		return nil, err
	}
	if err != nil {
		// Also after an error: there may be room on the disk by now.
		if s, err = w.prepare(w.tail().number + 1); err != nil {
			w.spares.settle()
			return nil, w.asNoRoom(err)
		}
	}
	w.mu.Lock()
	w.segments = append(w.segments, s)
	w.mu.Unlock()
	w.spares.settle()
	return s, nil
}

// firstBytes bounds the first segment.
const firstBytes = 1 << 20

func (w *WAL) sizeOf(number uint64) int {
	if number > 16 {
		return w.o.SegmentBytes
	}
	return min(w.o.SegmentBytes, firstBytes<<(number-1))
}

// prepare makes a segment of zeros, out of the reserve if the disk has no room for another one.
func (w *WAL) prepare(number uint64) (s *segment, err error) {
	s, err = w.prepareNew(number)
	if NoRoom(err) && !errors.Is(err, errUnpublished) {
		if spare, other := w.prepareSpare(number); spare != nil || other != nil {
			return spare, other
		}
	}
	return s, err
}

func (w *WAL) prepareNew(number uint64) (*segment, error) {
	name := nameOf(number)
	f, err := w.make(name, int64(w.sizeOf(number)))
	if err != nil {
		return nil, fmt.Errorf("prepare %s: %w", name, err)
	}
	return w.publish(f, name+newSuffix, number)
}

// make makes an unfinished file of zeros for a name. Nothing is left of it after an error.
func (w *WAL) make(name string, size int64) (f *os.File, err error) {
	unfinished := filepath.Join(w.dir, name+newSuffix)
	if f, err = os.OpenFile(unfinished, os.O_CREATE|os.O_TRUNC|os.O_RDWR, fileMode); err != nil {
		return nil, err
	}
	if err = w.fill(f, 0, size); err == nil {
		err = f.Sync()
	}
	if err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(unfinished))
	}
	w.o.Step("wal.prepared")
	return f, nil
}

func fillWithZeros(f *os.File, from, to int64) error {
	piece := make([]byte, min(to-from, 256<<10))
	for at := from; at < to; at += int64(len(piece)) {
		if _, err := f.WriteAt(piece[:min(int64(len(piece)), to-at)], at); err != nil {
			return err
		}
	}
	return nil
}

// publish gives a file of zeros the name of a segment, and tells of it. It takes the file over.
func (w *WAL) publish(f *os.File, unfinished string, number uint64) (s *segment, err error) {
	s = &segment{number: number, name: nameOf(number), file: f, format: format}
	defer func() {
		if err != nil {
			s, err = nil, errors.Join(fmt.Errorf("prepare %s: %w", nameOf(number), err), f.Close())
		}
	}()
	info, err := f.Stat()
	if err != nil {
		return s, err
	}
	s.size = info.Size()
	if err := os.Rename(filepath.Join(w.dir, unfinished), filepath.Join(w.dir, s.name)); NoRoom(err) {
		return s, err // it has the name that it had
	} else if err != nil {
		return s, fmt.Errorf("%w: %w", errUnpublished, err)
	}
	if err := syncDir(w.dir); err != nil {
		return s, fmt.Errorf("%w: %w", errUnpublished, err)
	}
	switch err := w.o.Prepared(number); {
	case NoRoom(err):
		return s, err // the next attempt takes its place, and a start finds it as it finds any that was not begun
	case err != nil:
		return s, fmt.Errorf("%w: %w", errUnpublished, err)
	}
	return s, nil
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
