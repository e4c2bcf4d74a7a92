package wal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Open opens the log in a directory, or makes one in it. Errors: ErrDamaged, with what
// does not hold, ErrEndLost, and those of files.
func Open(dir string, o Options) (*WAL, error) {
	if o.SegmentBytes == 0 {
		o.SegmentBytes = DefaultSegmentBytes
	}
	if o.Commit == nil {
		o.Commit = func(_ string, change func() error) error { return change() }
	}
	if o.Prepared == nil {
		o.Prepared = func(uint64) error { return nil }
	}
	if o.Step == nil {
		o.Step = func(string) {}
	}
	w := &WAL{dir: dir, o: o, fill: fillWithZeros}
	if err := w.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", dir, err), w.Close())
	}
	return w, nil
}

func (w *WAL) open() error {
	if err := os.MkdirAll(w.dir, dirMode); err != nil {
		return err
	}
	numbers, err := w.list()
	if err != nil {
		return err
	}
	newest := uint64(0)
	if len(numbers) > 0 {
		newest = numbers[len(numbers)-1]
	}
	if newest < w.o.Made {
		return fmt.Errorf("it ends with segment %d, and segment %d was made: %w", newest, w.o.Made, ErrEndLost)
	}
	if len(numbers) == 0 {
		s, err := w.prepare(1)
		if err != nil {
			return err
		}
		w.segments = []*segment{s}
		return nil
	}
	if newest > w.o.Made {
		// Who made it may have ended before its name was durable, or before he told of it.
		if err := errors.Join(syncDir(w.dir), w.o.Prepared(newest)); err != nil {
			return err
		}
	}
	headers, err := w.begun(numbers)
	if err != nil {
		return err
	}
	for i := range headers {
		next := header{}
		if i+1 < len(headers) {
			next = headers[i+1]
		}
		if err := w.load(w.segments[i], headers[i], next); err != nil {
			return fmt.Errorf("%s: %w", w.segments[i].name, err)
		}
	}
	w.buf = nil
	w.run = w.findRun()
	return w.spare(len(headers))
}

// list returns the numbers of the segments, and removes what is unfinished.
func (w *WAL) list() (numbers []uint64, err error) {
	files, err := os.ReadDir(w.dir)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		name := f.Name()
		number, ok := numberOf(name)
		switch {
		case ok:
			numbers = append(numbers, number)
		case strings.HasSuffix(name, spareSuffix):
			// Whatever else has such a name is no room for a segment.
			if info, err := f.Info(); err == nil && info.Mode().IsRegular() && info.Size() >= int64(w.o.SegmentBytes) {
				w.spares.names = append(w.spares.names, name)
				if n, err := strconv.ParseUint(strings.TrimSuffix(name, spareSuffix), 10, 64); err == nil {
					w.spares.last = max(w.spares.last, n)
				}
			} else if err := os.Remove(filepath.Join(w.dir, name)); err != nil {
				return nil, err
			}
		case strings.HasSuffix(name, suffix+newSuffix), strings.HasSuffix(name, spareSuffix+newSuffix):
			if err := os.Remove(filepath.Join(w.dir, name)); err != nil {
				return nil, err
			}
		}
	}
	slices.Sort(numbers)
	for i, number := range numbers {
		if number != numbers[0]+uint64(i) {
			return nil, fmt.Errorf("%s is missing: %w", nameOf(numbers[0]+uint64(i)), ErrDamaged)
		}
	}
	return numbers, nil
}

// begun opens the segments and returns the headers of those that were begun, which are
// the first ones.
func (w *WAL) begun(numbers []uint64) (headers []header, err error) {
	for i, number := range numbers {
		s := &segment{number: number, name: nameOf(number), format: format}
		if s.file, err = os.OpenFile(filepath.Join(w.dir, s.name), os.O_RDWR, 0); err != nil {
			return nil, err
		}
		w.segments = append(w.segments, s)
		b := make([]byte, headerSize)
		n, err := s.file.ReadAt(b, 0)
		if n < len(b) {
			return nil, fmt.Errorf("%s has no header (%w): %w", s.name, err, ErrDamaged)
		}
		h, begun, err := readHeader(b, number)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		if !begun {
			continue
		}
		s.format = h.format
		if len(headers) < i {
			return nil, fmt.Errorf("%s was begun and %s was not: %w", s.name, nameOf(number-1), ErrDamaged)
		}
		headers = append(headers, h)
	}
	return headers, nil
}

// load reads a segment. next is the header of the one behind it; its number is 0 if none
// was begun.
func (w *WAL) load(s *segment, h, next header) error {
	// What an empty log follows may have been in a segment that was cut.
	cut := w.lastLocked() == 0 && w.segments[0].number > 1
	if s != w.segments[0] && h.follows != w.lastLocked() && !cut {
		return fmt.Errorf("it follows entry %d, and the newest before it is %d: %w", h.follows, w.lastLocked(), ErrDamaged)
	}
	b, err := s.content(w.buf)
	if err != nil {
		return err
	}
	w.buf = b
	if len(b) < int(h.size) {
		return fmt.Errorf("it has %d bytes, and had %d: %w", len(b), h.size, ErrDamaged)
	}
	if next.number != 0 {
		if next.end < headerSize || next.end > uint64(len(b)) {
			return fmt.Errorf("it has %d bytes, and should have %d: %w", len(b), next.end, ErrDamaged)
		}
		b = b[:next.end]
	}
	batch := 0 // where the newest one begins
	end, err := scan(b, s.format, s.number, func(at uint32, length int, f frame) error {
		batch = int(f.batch)
		return w.take(s, h, at, length, f)
	})
	if err != nil {
		return err
	}
	s.end, s.size = int64(end), int64(h.size)
	if next.number != 0 {
		if uint64(end) != next.end {
			return fmt.Errorf("a frame at %d does not hold: %w", end, ErrDamaged)
		}
		return nil
	}
	if s.full, err = torn(b, s.format, s.number, end); err != nil {
		return err
	}
	s.full = s.full || s.format < format
	if batch <= headerSize {
		batch = 0
	}
	return w.writeAgain(s, b[min(batch, end):end], int64(min(batch, end)))
}

// writeAgain makes the newest batch durable. The process that wrote it may have ended
// before its sync, or because its sync failed: then the page cache has the batch, the disk
// does not, and a sync alone finds nothing to do.
func (w *WAL) writeAgain(s *segment, b []byte, at int64) error {
	return w.o.Commit(s.name, func() error {
		if _, err := s.file.WriteAt(b, at); err != nil {
			return err
		}
		return syncData(s.file)
	})
}

// take takes a frame in that was read.
func (w *WAL) take(s *segment, h header, at uint32, length int, f frame) error {
	switch f.kind {
	case kindTruncate:
		w.dropAbove(f.log.Index)
	case kindCut:
		w.first = max(w.first, f.log.Index)
	case kindEntry:
		last := w.lastLocked()
		follows := last == 0 || f.log.Index == last+1 || len(s.places) == 0 && f.log.Index > last
		if !follows || len(s.places) > 0 && f.log.Index != s.last()+1 {
			return fmt.Errorf("entry %d at %d follows entry %d: %w", f.log.Index, at, last, ErrDamaged)
		}
		if len(s.places) == 0 {
			s.base = f.log.Index
		}
		s.places = append(s.places, place{at, uint32(length)})
		w.noteType(&f.log)
	}
	return nil
}

// spare looks at the segments that were not begun. The one behind the last that was begun
// is the next one; a log that was never written to has it as its tail.
func (w *WAL) spare(begun int) error {
	spare := w.segments[begun:]
	if len(spare) == 0 {
		return nil
	}
	if len(spare) > 1 {
		return fmt.Errorf("%s and %s were both not begun: %w", spare[0].name, spare[1].name, ErrDamaged)
	}
	s, err := w.unused(spare[0])
	if err != nil {
		return fmt.Errorf("%s: %w", spare[0].name, err)
	}
	if begun == 0 {
		w.segments[0] = s
		return nil
	}
	w.segments = w.segments[:begun]
	p := &preparation{done: make(chan struct{}), segment: s}
	close(p.done)
	w.next = p
	w.ready.Store(s.size)
	return nil
}

// unused returns a segment without a header, or a new one in its place if a torn first
// batch has left something in it.
func (w *WAL) unused(s *segment) (*segment, error) {
	b, err := s.content(nil)
	if err != nil {
		return nil, err
	}
	s.size = int64(len(b))
	if zeros(b) {
		return s, nil
	}
	// The header's sector is missing, or this is no tear. What format the rest has is not known.
	err = errors.Join(laterBatch(b, 1, s.number, headerSize), laterBatch(b, format, s.number, headerSize))
	if err == nil && !zeros(b[:min(sector, len(b))]) {
		err = fmt.Errorf("frames stand behind no header: %w", ErrDamaged)
	}
	if err != nil {
		return nil, err
	}
	err = s.file.Close()
	s.file = nil
	if err != nil {
		return nil, err
	}
	return w.prepare(s.number)
}

// content reads the whole segment, into buf if it fits: most of the time to open a log was that of new memory.
func (s *segment) content(buf []byte) ([]byte, error) {
	info, err := s.file.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > maxBytes {
		return nil, fmt.Errorf("it has %d bytes: %w", info.Size(), ErrDamaged)
	}
	b := slices.Grow(buf[:0], int(info.Size()))[:info.Size()]
	_, err = s.file.ReadAt(b, 0)
	return b, err
}
