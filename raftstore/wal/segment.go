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

// errNoRoom is for a segment that the disk has no room for. Nothing of it is left.
var errNoRoom = errors.New("no room for another segment")

// isFull reports whether a file system or a quota was full.
func isFull(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

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
		p.segment, p.err = w.prepare(number)
	}()
}

// rotate makes the next segment the tail.
func (w *WAL) rotate() (*segment, error) {
	var s *segment
	err := errors.New("not begun")
	if w.next != nil {
		s, err = w.next.wait()
		w.next = nil
	}
	if errors.Is(err, errUnpublished) {
		return nil, err
	}
	if err != nil {
		// Also after an error: there may be room on the disk by now.
		if s, err = w.prepare(w.tail().number + 1); err != nil {
			if !errors.Is(err, errUnpublished) && isFull(err) {
				err = fmt.Errorf("%w: %w", errNoRoom, err)
			}
			return nil, err
		}
	}
	w.mu.Lock()
	w.segments = append(w.segments, s)
	w.mu.Unlock()
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

// prepare makes a segment of zeros.
func (w *WAL) prepare(number uint64) (s *segment, err error) {
	name, size := nameOf(number), w.sizeOf(number)
	unfinished := filepath.Join(w.dir, name+newSuffix)
	f, err := os.OpenFile(unfinished, os.O_CREATE|os.O_TRUNC|os.O_RDWR, fileMode)
	if err != nil {
		return nil, fmt.Errorf("prepare a segment: %w", err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(unfinished) // if it has that name still; the next start removes it
			err = errors.Join(fmt.Errorf("prepare %s: %w", name, err), f.Close())
		}
	}()
	if err := w.fill(f, size); err != nil {
		return nil, err
	}
	if err := f.Sync(); err != nil {
		return nil, err
	}
	w.o.Step("wal.prepared")
	if err := w.publish(unfinished, number); err != nil {
		return nil, fmt.Errorf("%w: %w", errUnpublished, err)
	}
	return &segment{number: number, name: name, file: f, size: int64(size), format: format}, nil
}

func fillWithZeros(f *os.File, size int) error {
	piece := make([]byte, min(size, 256<<10))
	for at := 0; at < size; at += len(piece) {
		if _, err := f.WriteAt(piece[:min(len(piece), size-at)], int64(at)); err != nil {
			return err
		}
	}
	return nil
}

// publish gives a segment its name, and tells of it.
func (w *WAL) publish(unfinished string, number uint64) error {
	if err := os.Rename(unfinished, filepath.Join(w.dir, nameOf(number))); err != nil {
		return err
	}
	if err := syncDir(w.dir); err != nil {
		return err
	}
	return w.o.Prepared(number)
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func removeFile(dir, name string) error {
	return errors.Join(os.Remove(filepath.Join(dir, name)), syncDir(dir))
}
