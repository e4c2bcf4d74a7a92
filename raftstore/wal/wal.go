package wal

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// DefaultSegmentBytes of Options.
const DefaultSegmentBytes = 16 << 20

// Options of a WAL. Zero values take defaults.
type Options struct {
	// SegmentBytes is how many bytes a segment has. Default DefaultSegmentBytes: some
	// ten thousand small objects, and less than a tenth of a second of a disk's time
	// to prepare. The first segment has 1 MiB at most, and each one behind it twice as
	// much, up to this: a log in which little is written takes little of the disk.
	SegmentBytes int
	// Spares is how many segments Reserve keeps ready for when the disk is full. Each has SegmentBytes.
	Spares int
	// Commit, if set, makes each durable change of entries: it calls change, once, and
	// returns its error or another one. name is the segment's file.
	Commit func(name string, change func() error) error
	// Made is the number of the newest segment that Prepared was told of: a log that ends
	// with an earlier one has lost its end.
	Made uint64
	// Prepared, if set, is told the number of each segment that was made, before anything
	// is written to it. Also by the goroutine that prepares segments, and by Open, of a
	// segment that it was not told of. Its error is that of the change that needs the
	// segment.
	Prepared func(number uint64) error
	// Step, if set, is called between any two steps whose order matters: tests end the
	// process there. Also by the goroutine that prepares segments.
	Step func(name string)
}

// WAL is a log of Raft entries. Changes (StoreLogs, DeleteRange, DeleteFront, Close) are
// made one at a time: the caller sees to that. Everything else may be called at any time,
// by anybody. After ErrNoRoom the log is as it was before the change. After any other error of a change
// only Close may be called: what a failed sync has left on disk is not known.
type WAL struct {
	dir  string
	o    Options
	fill func(f *os.File, from, to int64) error // fills a part of a segment with zeros
	run  uint64                                 // see Run

	// mu guards what follows. It is not held while a file is read or written.
	mu       sync.RWMutex
	segments []*segment // by number; the last one is the tail
	first    uint64     // entries below are cut, though files may have them
	// configurations are the indexes of the entries of that type, in ascending order; those
	// below first may be among them.
	configurations []uint64

	// The rest belongs to the changes.
	buf    []byte
	failed error
	// owed is the first entry that is to be taken back, owedTo the last one; or 0.
	owed, owedTo uint64
	next         *preparation // of the segment behind the tail; nil if not begun

	ready  atomic.Int64 // the size of the segment that is prepared behind the tail, or 0
	spares spares
}

// segment is a file. The entries in it that are part of the log have consecutive indexes.
type segment struct {
	number uint64
	name   string
	end    int64 // where the next frame goes; 0 if there is no header yet
	size   int64 // of the file when it was prepared
	full   bool  // nothing is appended: a torn batch stands behind end, or the format is an older one
	format byte

	base   uint64  // index of places[0]
	places []place // of the entries

	// reading is held for reading while the file is read, and for writing to close it.
	reading sync.RWMutex
	file    *os.File // nil once it is closed
}

// place is where an entry's frame is.
type place struct{ at, length uint32 }

// last is the index of the segment's newest entry. The caller holds mu.
func (s *segment) last() uint64 { return s.base + uint64(len(s.places)) - 1 }

// FirstFrom returns the first index from min on that there is an entry at, or 0.
func (w *WAL) FirstFrom(min uint64) uint64 {
	w.mu.RLock()
	defer w.mu.RUnlock()
	from := max(min, w.first)
	for _, s := range w.segments {
		if len(s.places) > 0 && s.last() >= from {
			return max(s.base, from)
		}
	}
	return 0
}

// LastIndex returns the index of the newest entry, or 0.
func (w *WAL) LastIndex() uint64 {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.lastLocked()
}

func (w *WAL) lastLocked() uint64 {
	for i := len(w.segments) - 1; i >= 0; i-- {
		if s := w.segments[i]; len(s.places) > 0 {
			if s.last() < w.first {
				return 0
			}
			return s.last()
		}
	}
	return 0
}

// Size is what the segments take, in bytes; the reserve is not counted.
func (w *WAL) Size() (bytes int64) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	for _, s := range w.segments {
		bytes += s.size
	}
	return bytes
}

// NewestWithin is how many of the newest entries are in segments that take no more than some bytes together. Those
// of the tail count in any case.
func (w *WAL) NewestWithin(bytes int64) (entries uint64) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	for i := len(w.segments) - 1; i >= 0; i-- {
		s := w.segments[i]
		if bytes -= s.size; bytes < 0 && i < len(w.segments)-1 {
			break
		}
		entries += uint64(len(s.places))
	}
	return entries
}

// Run is the first index of the entries that stand, without a hole, up to the newest one,
// as they were when the log was opened. Zero if there was none.
func (w *WAL) Run() uint64 { return w.run }

func (w *WAL) findRun() (first uint64) {
	for i := len(w.segments) - 1; i >= 0; i-- {
		s := w.segments[i]
		if len(s.places) == 0 {
			continue
		}
		if s.last() < w.first || first != 0 && s.last() != first-1 {
			break
		}
		first = max(s.base, w.first)
	}
	return first
}

// Configuration returns the index of the newest entry up to max that is a configuration of
// the cluster, or 0. It reads nothing: the entries' types are known since they were written,
// or were read by Open.
func (w *WAL) Configuration(max uint64) uint64 {
	w.mu.RLock()
	defer w.mu.RUnlock()
	for i := len(w.configurations) - 1; i >= 0; i-- {
		if index := w.configurations[i]; index <= max {
			if index < w.first {
				return 0
			}
			return index
		}
	}
	return 0
}

// noteType is told of each entry that becomes part of the log. The caller holds mu, or is
// the only one.
func (w *WAL) noteType(l *raft.Log) {
	if l.Type == raft.LogConfiguration {
		w.configurations = append(w.configurations, l.Index)
	}
}

// GetLog reads an entry. Errors: raft.ErrLogNotFound, ErrDamaged, those of reading.
func (w *WAL) GetLog(index uint64, log *raft.Log) error {
	s, p := w.find(index)
	if s == nil {
		return raft.ErrLogNotFound
	}
	b := make([]byte, p.length)
	if err := s.read(b, int64(p.at)); err != nil {
		return err
	}
	f, length, ok := reader(s.format)(b, s.number, p.at)
	if !ok || length != len(b) || f.kind != kindEntry || f.log.Index != index {
		return fmt.Errorf("%s: entry %d at %d does not hold: %w", s.name, index, p.at, ErrDamaged)
	}
	*log = f.log
	return nil
}

func (w *WAL) find(index uint64) (*segment, place) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if index < w.first {
		return nil, place{}
	}
	for i := len(w.segments) - 1; i >= 0; i-- {
		if s := w.segments[i]; len(s.places) > 0 && index >= s.base && index <= s.last() {
			return s, s.places[index-s.base]
		}
	}
	return nil, place{}
}

func (s *segment) read(b []byte, at int64) error {
	s.reading.RLock()
	defer s.reading.RUnlock()
	if s.file == nil {
		return raft.ErrLogNotFound // it was cut meanwhile
	}
	if _, err := s.file.ReadAt(b, at); err != nil {
		return fmt.Errorf("read %s: %w", s.name, err)
	}
	return nil
}

// errTwice is returned for an entry whose index another one has, or had that was cut.
var errTwice = errors.New("there is an entry at this index already, or was")

// StoreLogs appends entries; their indexes grow. They are durable when it returns. With ErrNoRoom none of
// them is in the log.
func (w *WAL) StoreLogs(logs []*raft.Log) error {
	return w.change(func() error {
		if err := w.takeBack(); err != nil {
			return err
		}
		stored := 0
		for stored < len(logs) {
			n, err := w.store(logs[stored:])
			if errors.Is(err, ErrNoRoom) && stored > 0 {
				w.owed, w.owedTo = logs[0].Index, w.LastIndex()
				w.mu.Lock()
				w.dropAbove(w.owed - 1)
				w.mu.Unlock()
				return errors.Join(err, w.takeBack())
			}
			if err != nil {
				return err
			}
			stored += n
		}
		return nil
	})
}

// takeBack makes durable that a part of a batch is no more. Where that finds no room, on a file system that is
// read-only now, nothing is stored before it has. A start in between finds that part, as behind a kill.
func (w *WAL) takeBack() error {
	if w.owed == 0 {
		return nil
	}
	return w.truncate(w.owed)
}

// change runs a change, unless one has failed.
func (w *WAL) change(f func() error) error {
	if w.failed != nil {
		return fmt.Errorf("an earlier change failed: %w", w.failed)
	}
	err := f()
	if !errors.Is(err, ErrNoRoom) {
		w.failed = err
	}
	return err
}

// store appends as many entries as the tail takes, with one write and one sync, and
// returns how many these were, at least one.
func (w *WAL) store(logs []*raft.Log) (n int, err error) {
	if at := logs[0].Index; at <= w.LastIndex() || at < w.first {
		return 0, fmt.Errorf("store entry %d: %w", at, errTwice)
	}
	s := w.tail()
	if len(s.places) > 0 && logs[0].Index != s.last()+1 || !w.fits(s, logs[0]) {
		if s, err = w.rotate(); err != nil {
			return 0, err
		}
	}
	if err := w.makeRoom(s, logs[0]); err != nil {
		return 0, err
	}
	at := w.begin(s)
	batch := at
	var places []place
	for _, l := range logs {
		length := frameSize(len(l.Extensions) + len(l.Data))
		if int64(length)+at > maxBytes {
			return 0, fmt.Errorf("entry %d has %d bytes: %w", l.Index, length, errors.ErrUnsupported)
		}
		if n > 0 && (l.Index != logs[n-1].Index+1 || at+int64(length) > s.size-noteSize) {
			break
		}
		w.buf = appendFrame(w.buf, s.number, uint32(at), uint32(batch), kindEntry, l)
		places = append(places, place{uint32(at), uint32(length)})
		at += int64(length)
		n++
	}
	if err := w.commit(s); err != nil {
		return 0, err
	}
	w.mu.Lock()
	if len(s.places) == 0 {
		s.base = logs[0].Index
	}
	s.places = append(s.places, places...)
	for _, l := range logs[:n] {
		w.noteType(l)
	}
	w.mu.Unlock()
	if s.end > s.size/2 {
		w.prepareNext()
	}
	return n, nil
}

// noteSize is what a frame takes that is no entry. Entries leave room for one in each segment: what was stored
// of a batch can be taken back by it when there is no room for another segment.
const noteSize = frameHead + frameTail

// fits reports whether an entry's frame may go into a segment: if there is room, or
// nothing else in it.
func (*WAL) fits(s *segment, l *raft.Log) bool {
	return !s.full && (s.end <= headerSize || s.end+int64(frameSize(len(l.Extensions)+len(l.Data))) <= s.size-noteSize)
}

// makeRoom makes a segment that has nothing else as long as an entry needs. The entry's write may then not fail
// for want of room, which would leave a part of it.
func (w *WAL) makeRoom(s *segment, l *raft.Log) error {
	need := max(s.end, headerSize) + int64(frameSize(len(l.Extensions)+len(l.Data))) + noteSize
	if need <= s.size || need > maxBytes {
		return nil
	}
	if err := w.fill(s.file, s.size, need); err != nil {
		return w.asNoRoom(fmt.Errorf("make %s longer: %w", s.name, err))
	}
	if err := s.file.Sync(); err != nil {
		return fmt.Errorf("make %s longer: %w", s.name, err)
	}
	w.mu.Lock()
	s.size = need
	w.mu.Unlock()
	return nil
}

func (w *WAL) tail() *segment { return w.segments[len(w.segments)-1] }

// keptBuffer bounds the buffer that is kept from one write to the next.
const keptBuffer = 1 << 20

// begin begins a write to a segment, and returns where its first frame goes.
func (w *WAL) begin(s *segment) int64 {
	if cap(w.buf) > keptBuffer {
		w.buf = nil
	}
	w.buf = w.buf[:0]
	if s.end > 0 {
		return s.end
	}
	h := header{number: s.number, follows: max(w.LastIndex(), w.owedTo), size: uint32(s.size)}
	if len(w.segments) > 1 {
		h.end = uint64(w.segments[len(w.segments)-2].end)
	}
	w.buf = h.append(w.buf)
	return headerSize
}

// commit writes the buffer to a segment and syncs it.
func (w *WAL) commit(s *segment) error {
	at := s.end
	err := w.o.Commit(s.name, func() error {
		n, err := s.file.WriteAt(w.buf, at)
		if n == 0 && NoRoom(err) {
			return w.asNoRoom(err) // a file system that is read-only now
		}
		if err != nil {
			return err
		}
		return syncData(s.file)
	})
	if err != nil {
		return fmt.Errorf("append to %s: %w", s.name, err)
	}
	w.mu.Lock()
	s.end = at + int64(len(w.buf))
	w.mu.Unlock()
	return nil
}

// note appends a frame that is no entry.
func (w *WAL) note(kind byte, index uint64) error {
	s := w.tail()
	if s.full || s.end > headerSize && s.end+noteSize > s.size {
		var err error
		if s, err = w.rotate(); err != nil {
			return err
		}
	}
	at := w.begin(s)
	w.buf = appendFrame(w.buf, s.number, uint32(at), uint32(at), kind, &raft.Log{Index: index})
	return w.commit(s)
}

// errMiddle is returned for a range that is neither the log's beginning nor its end.
var errMiddle = errors.New("entries cannot be deleted from the middle of the log")

// DeleteRange deletes the entries from min to max, both included: the newest ones, or the
// oldest.
func (w *WAL) DeleteRange(min, max uint64) error {
	first, last := w.FirstFrom(0), w.LastIndex()
	switch {
	case first == 0 || min > max || max < first || min > last:
		return nil
	case max >= last:
		return w.change(func() error { return w.truncate(min) })
	case min <= first:
		for more := true; more; {
			var err error
			if more, err = w.DeleteFront(max); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("delete entries %d to %d of %d to %d: %w", min, max, first, last, errMiddle)
}

// truncate deletes the entries from an index on.
func (w *WAL) truncate(from uint64) error {
	from = max(from, 1)
	if w.owed != 0 {
		from = min(from, w.owed)
	}
	if err := w.note(kindTruncate, from-1); err != nil {
		return err
	}
	w.owed, w.owedTo = 0, 0
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dropAbove(from - 1)
	return nil
}

// dropAbove forgets the entries above an index. The caller holds mu, or is the only one.
func (w *WAL) dropAbove(index uint64) {
	w.configurations = slices.DeleteFunc(w.configurations, func(i uint64) bool { return i > index })
	for i := len(w.segments) - 1; i >= 0; i-- {
		s := w.segments[i]
		switch {
		case len(s.places) == 0:
		case s.base > index:
			s.places = nil
		default:
			s.places = s.places[:min(uint64(len(s.places)), index-s.base+1)]
			return
		}
	}
}

// DeleteFront deletes the oldest entries, up to max. Nobody sees them any more when it
// returns; of the files that have nothing else it removes one. It reports whether there
// are more.
//
// Where the tail is full and the disk too, there is no room for the note of the cut in another
// segment. Then it makes room: it removes the oldest files that have nothing above max first, and
// if there are none it does nothing.
func (w *WAL) DeleteFront(max uint64) (more bool, err error) {
	err = w.change(func() error {
		max = min(max, w.LastIndex())
		if first := w.FirstFrom(0); first != 0 && first <= max {
			if noted, err := w.noteCut(max); err != nil || !noted {
				return err
			}
			w.mu.Lock()
			w.first = max + 1
			w.forgetConfigurations()
			w.mu.Unlock()
			w.o.Step("wal.cut")
		}
		more, err = w.removeOldest()
		return err
	})
	return more, err
}

// noteCut makes durable that entries up to an index are no more. It reports false if there is no room to.
//
// A file that is removed without a note is a cut of its own: what is left is the end of the log without
// a hole, as after a note. Only what of the range is in other files comes back with the next start.
func (w *WAL) noteCut(upTo uint64) (noted bool, err error) {
	for {
		err := w.note(kindCut, upTo+1)
		if !errors.Is(err, ErrNoRoom) {
			return err == nil, err
		}
		w.mu.Lock()
		s := w.segments[0]
		covered := len(w.segments) > 1 && (len(s.places) == 0 || s.last() <= upTo)
		if covered && len(s.places) > 0 {
			w.first = max(w.first, s.last()+1)
			w.forgetConfigurations()
		}
		w.mu.Unlock()
		if !covered {
			return false, nil
		}
		if _, err := w.removeOldest(); err != nil {
			return false, err
		}
		w.o.Step("wal.room")
	}
}

// forgetConfigurations forgets those below the first entry. The caller holds mu.
func (w *WAL) forgetConfigurations() {
	w.configurations = slices.DeleteFunc(w.configurations, func(i uint64) bool { return i < w.first })
}

// removeOldest removes the oldest segment, if no entry in it is part of the log, and
// reports whether another one is like that. The tail stays.
func (w *WAL) removeOldest() (more bool, err error) {
	w.mu.Lock()
	if !w.oldestIsGone() {
		w.mu.Unlock()
		return false, nil
	}
	s := w.segments[0]
	w.mu.Unlock()
	// Nobody reads a file that may become another segment.
	s.reading.Lock()
	f := s.file
	s.file = nil
	err = w.o.Commit(s.name, func() error { return w.takeOut(s) })
	if errors.Is(err, ErrNoRoom) {
		s.file = f
	}
	s.reading.Unlock()
	if s.file == nil {
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return false, fmt.Errorf("remove %s: %w", s.name, err)
	}
	w.mu.Lock()
	w.segments = w.segments[1:]
	more = w.oldestIsGone()
	w.mu.Unlock()
	return more, nil
}

func (w *WAL) oldestIsGone() bool {
	s := w.segments[0]
	return len(w.segments) > 1 && (len(s.places) == 0 || s.last() < w.first)
}

// Close waits for what is being prepared and closes the files.
func (w *WAL) Close() error {
	var errs []error
	if w.next != nil {
		// Its error is no loss: nothing is in it.
		if s, err := w.next.wait(); err == nil {
			errs = append(errs, s.file.Close())
		}
		w.next = nil
	}
	w.mu.RLock()
	defer w.mu.RUnlock()
	for _, s := range w.segments {
		s.reading.Lock()
		if s.file != nil {
			errs = append(errs, s.file.Close())
			s.file = nil
		}
		s.reading.Unlock()
	}
	return errors.Join(errs...)
}
