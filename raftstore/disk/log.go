package disk

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/raftstore/wal"
)

// DefaultSegmentBytes is the size of the log's files.
const DefaultSegmentBytes = wal.DefaultSegmentBytes

// LogOptions of a Log. Zero values take defaults.
type LogOptions struct {
	// Watchdog is how long a write may go on without a change that has reached the disk
	// before Fatal is called with ErrHungDisk: many bytes are many changes. Raft would keep a
	// leader whose disk hangs. Default 10 s.
	Watchdog time.Duration
	// CacheBytes bounds the cache of newest entries. Default 4 MiB: what is written in
	// half a second at full speed; who is further behind is read for from the file, which is in the page cache.
	CacheBytes int64
	// Fatal ends the process; raft would go on after a failed write. Default: panic.
	Fatal func(error)
	// Observe, if set, is told of each StoreLogs: its duration, the number of
	// entries, and their bytes. It is called on Raft's main loop and must not wait.
	Observe func(d time.Duration, entries, bytes int)
	// Commit, if set, makes each durable change; see CommitFunc.
	Commit CommitFunc
	// Survivor opens also a raft.db of which one meta page does not hold. It is for a recovery, in which no vote counts:
	// both pages lead to the same record.
	Survivor bool
	// SegmentBytes is the size of a segment. Default wal.DefaultSegmentBytes.
	SegmentBytes int
	// Snapshot, if set, returns the index of the newest snapshot that is on disk. It must not wait.
	Snapshot func() uint64
	// Applied, if set, returns the index up to which entries of this log have been
	// applied. To cut one of them off the end ends the process with ErrAppliedCut. It
	// is called on Raft's main loop and must not wait.
	Applied func() uint64
	// HoldFor and HoldBytes bound a Hold: in time behind its release, and in bytes that
	// the log grows by. Defaults one minute and 1 GiB.
	HoldFor   time.Duration
	HoldBytes int64
	// GaveUp, if set, is told of a Hold that has ended because of its bytes: the
	// snapshot's index, and the bytes. It must not wait.
	GaveUp func(index uint64, bytes int64)
	// Spares is how many segments Reserve keeps for when the disk is full.
	Spares int
	// Leads, if set, reports whether this node leads. It must not wait.
	Leads func() bool
	// Full, if set, is told of each write that found no room, and why. It must not wait.
	Full func(error)
	// Ends, if set, is closed when nobody waits for the stable store any more.
	Ends <-chan struct{}
}

func (o *LogOptions) defaults() {
	if o.Watchdog == 0 {
		o.Watchdog = 10 * time.Second
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = 4 << 20
	}
	if o.Fatal == nil {
		o.Fatal = func(err error) { panic(err) }
	}
	if o.Observe == nil {
		o.Observe = func(time.Duration, int, int) {}
	}
	if o.Applied == nil {
		o.Applied = func() uint64 { return 0 }
	}
	if o.Snapshot == nil {
		o.Snapshot = func() uint64 { return 0 }
	}
	if o.HoldFor == 0 {
		o.HoldFor = time.Minute
	}
	if o.HoldBytes == 0 {
		o.HoldBytes = 1 << 30
	}
	if o.GaveUp == nil {
		o.GaveUp = func(uint64, int64) {}
	}
	if o.Leads == nil {
		o.Leads = func() bool { return false }
	}
	if o.Full == nil {
		o.Full = func(error) {}
	}
}

// logBackend is what a Log is put on. Each change is one transaction.
type logBackend interface {
	raft.LogStore
	raft.StableStore
	// FirstFrom returns the first index from min on that there is an entry at, or 0.
	FirstFrom(min uint64) (uint64, error)
	// DeleteFront deletes the oldest entries, up to max, and takes at most one file from
	// the disk. It reports whether there are more.
	DeleteFront(max uint64) (more bool, err error)
	// NewestConfiguration returns the index of the newest configuration up to an index,
	// or 0. It reads no file.
	NewestConfiguration(max uint64) uint64
	// PrepareNext makes room for a segment, or returns ErrNoRoom.
	PrepareNext() error
	// Reserve makes the spare segments that are missing. It may be called beside changes.
	Reserve() error
	// Room is what can be written without any more room on the disk.
	Room() wal.Room
	// Probe writes where an append may write: see wal.WAL.
	Probe() error
	// Size is what the entries' files take, in bytes.
	Size() int64
	// NewestWithin is how many of the newest entries are in files of so many bytes.
	NewestWithin(bytes int64) uint64
	// SetAll sets keys of the stable store.
	SetAll(...keyValue) error
	Close() error
}

// Log is the Raft log, in dir/raft-log, and the stable store, in dir/raft.db. Writes are
// durable when they return. All methods are safe for concurrent use.
type Log struct {
	backend logBackend
	o       LogOptions
	cache   *logCache
	run     uint64 // see Run
	vote    heldTerm
	holds   holds
	dog     *watchdog
	// turn is held by the one write that is under way. It is a channel, whose waiters
	// are served in their order: a cut that takes it again for its next piece stands
	// behind the append that came meanwhile.
	turn chan struct{}
	cuts chan struct{} // held by the cut that is under way
	// gone is the index up to which entries are being cut; 0 if none are.
	gone atomic.Uint64
	// shortened says that entries were cut off the end, and none were stored since.
	shortened atomic.Bool
}

var (
	_ raft.LogStore    = (*Log)(nil)
	_ raft.StableStore = (*Log)(nil)
)

// OpenLog opens the log of a directory, or creates it. Errors: ErrDamaged, ErrLogLost,
// those of files.
func OpenLog(dir string, o LogOptions) (*Log, error) {
	o.defaults()
	dog := new(watchdog)
	files, err := openLogFiles(dir, o, dog.feed)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	l := newLog(files, o)
	l.dog = dog
	l.run = files.entries.Run()
	return l, nil
}

func newLog(backend logBackend, o LogOptions) *Log {
	o.defaults()
	return &Log{
		backend: backend, o: o, cache: newLogCache(o.CacheBytes),
		turn: make(chan struct{}, 1), cuts: make(chan struct{}, 1), dog: new(watchdog),
	}
}

// write runs a write when it is its turn, under the watchdog. Any error but ErrNoRoom is fatal:
// what a failed fsync leaves in the page cache cannot be trusted.
func (l *Log) write(what string, f func() error) error {
	err := l.inTurn(what, f)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("log: %s: %w", what, err)
	if errors.Is(err, ErrNoRoom) {
		l.o.Full(err)
	} else {
		l.o.Fatal(err)
	}
	return err
}

// set runs a write of the stable store. Its file has its room, but a file system may become read-only, and Raft
// panics where it cannot store a term. So it waits until it can: meanwhile this node takes no part, but what
// it has can be read.
func (l *Log) set(what string, f func() error) error {
	for {
		err := l.inTurn(what, f)
		if err == nil {
			return nil
		}
		err = fmt.Errorf("log: %s: %w", what, err)
		if !refusedWrite(err) {
			l.o.Fatal(err)
			return err
		}
		l.o.Full(err)
		if !l.waits() {
			l.o.Fatal(err)
			return err
		}
	}
}

// writeAgain is how long to wait before another attempt of a write that has to find room.
const writeAgain = 100 * time.Millisecond

// waits waits before another attempt. It reports false if this node ends.
func (l *Log) waits() bool {
	select {
	case <-l.o.Ends:
		return false
	case <-time.After(writeAgain):
		return true
	}
}

func (l *Log) inTurn(what string, f func() error) error {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	l.dog.watch(l.o.Watchdog, func() {
		l.o.Fatal(fmt.Errorf("%s for %v: %w", what, l.o.Watchdog, ErrHungDisk))
	})
	defer l.dog.end()
	return f()
}

// StoreLog implements raft.LogStore.
func (l *Log) StoreLog(log *raft.Log) error { return l.StoreLogs([]*raft.Log{log}) }

// StoreLogs implements raft.LogStore. With ErrNoRoom none of the entries is in the log: a leader steps down, a
// follower is sent them again.
func (l *Log) StoreLogs(logs []*raft.Log) error {
	if len(logs) == 0 {
		return nil
	}
	start := time.Now()
	if err := l.write("store entries", func() error { return l.backend.StoreLogs(logs) }); err != nil {
		if errors.Is(err, ErrNoRoom) && l.forgets(logs) {
			l.o.Fatal(fmt.Errorf("%w: %w", ErrEndRefused, err))
		}
		return err
	}
	l.shortened.Store(false)
	bytes, size := 0, int64(0)
	for _, log := range logs {
		bytes += len(log.Data)
		size += logSize(log)
	}
	l.holds.grown.Add(size)
	l.cache.put(logs)
	l.o.Observe(time.Since(start), len(logs), bytes)
	return nil
}

// forgets reports whether Raft would go on from a log that is not there when entries are refused. A follower
// that has cut the end of its log off goes on to count up to there, and a leader to follow the configuration
// that it could not store. Both begin anew with what is on disk when the process does.
func (l *Log) forgets(logs []*raft.Log) bool {
	return l.shortened.Load() ||
		l.o.Leads() && slices.ContainsFunc(logs, func(e *raft.Log) bool { return e.Type == raft.LogConfiguration })
}

// Reserve makes the spare segments that are missing: see package wal. Errors: ErrNoRoom, those of files; none is
// one of the log. It must not be called beside Close.
func (l *Log) Reserve() error { return l.backend.Reserve() }

// Size is what the log's files take, in bytes, without the reserve. It does not wait for the disk.
func (l *Log) Size() int64 { return l.backend.Size() }

// NewestWithin is how many of the newest entries are in files that take no more than some bytes together; those
// of the file that is appended to in any case.
func (l *Log) NewestWithin(bytes int64) uint64 { return l.backend.NewestWithin(bytes) }

// Room is what can be written without any more room on the disk. It does not wait for the disk.
func (l *Log) Room() wal.Room { return l.backend.Room() }

// Probe tries whether the log's files can be written over: see package wal. Errors: ErrNoRoom, those of files; none is fatal.
func (l *Log) Probe() error { return l.backend.Probe() }

// Run is the first index of the entries that stand, without a hole, up to the newest
// one, as they were when the log was opened. Zero if there was none. Only an installed
// snapshot leaves a hole, below its index.
func (l *Log) Run() uint64 { return l.run }

// DeleteRange implements raft.LogStore. Raft cuts the log's beginning behind a snapshot,
// and a tail that its leader does not have. A tail with entries that were applied is
// fatal, and stays as it is (ErrAppliedCut). Of the beginning it may delete less than it
// is told: see Hold.
func (l *Log) DeleteRange(min, max uint64) error {
	last, err := l.backend.LastIndex()
	if err != nil {
		return err
	}
	first, err := l.backend.FirstIndex()
	if err != nil {
		return err
	}
	if min <= first && max == last && max <= l.o.Snapshot() {
		// Raft's compaction counts from the last entry that it remembers, and in the middle
		// of a truncation that one is gone. The newest entry stays: it is no tail.
		max--
	}
	if applied := l.o.Applied(); last > 0 && max >= last && min <= applied {
		err := fmt.Errorf("entries %d to %d, and %d is applied: %w", min, last, applied, ErrAppliedCut)
		l.o.Fatal(err)
		return err
	}
	if max < last {
		// Raft may have read where the log begins while a cut was under way that then found no room: what that has left goes now.
		min, max = first, l.unheld(max)
	} else if last > 0 {
		// The entries that are to take their place must find room, or Raft goes on from those that are gone: see forgets.
		if err := l.write("prepare a segment", l.backend.PrepareNext); err != nil {
			return err
		}
	}
	return l.Drop(min, max)
}

// Drop deletes entries, applied or not: the caller knows that a snapshot covers them, or
// that they were never committed. Both bounds are inclusive.
func (l *Log) Drop(min, max uint64) error {
	return l.cut(min, max)
}

// Discard is Drop that waits until there is room for the note of it, as a write of the stable store does: it is for an
// installed snapshot, which nobody can take back.
func (l *Log) Discard(min, max uint64) error {
	for {
		if err := l.cut(min, max); !errors.Is(err, ErrNoRoom) || !l.waits() {
			return err
		}
	}
}

// GetLog implements raft.LogStore. The entry's data is shared. A damaged entry is
// fatal: raft would go on without it, or panic.
func (l *Log) GetLog(index uint64, log *raft.Log) error {
	if index <= l.gone.Load() {
		return raft.ErrLogNotFound
	}
	if cached := l.cache.get(index); cached != nil {
		*log = *cached
		return nil
	}
	return l.checked(l.backend.GetLog(index, log))
}

// NewestConfiguration returns the newest entry from min to max that is a configuration of
// the cluster, or nil. The log holds all of these entries.
func (l *Log) NewestConfiguration(min, max uint64) (*raft.Log, error) {
	index := l.backend.NewestConfiguration(max)
	if index == 0 || index < min {
		return nil, nil
	}
	entry := new(raft.Log)
	if err := l.GetLog(index, entry); err != nil {
		return nil, fmt.Errorf("entry %d: %w", index, err)
	}
	return entry, nil
}

// checked ends the process if what was read is damaged.
func (l *Log) checked(err error) error {
	if errors.Is(err, ErrDamaged) {
		l.o.Fatal(err)
	}
	return err
}

// FirstIndex implements raft.LogStore.
func (l *Log) FirstIndex() (uint64, error) { return l.backend.FirstFrom(l.gone.Load() + 1) }

// LastIndex implements raft.LogStore.
func (l *Log) LastIndex() (uint64, error) { return l.backend.LastIndex() }

// Close waits for a write that runs and closes the files.
func (l *Log) Close() error {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	if err := l.backend.Close(); err != nil {
		return fmt.Errorf("close log: %w", err)
	}
	return nil
}
