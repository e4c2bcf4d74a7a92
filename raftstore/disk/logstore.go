package disk

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"

	"github.com/hashicorp/raft"
	"github.com/quorate/quorate/raftstore/wal"
)

// LogStore names what the Raft log's entries are put on. The stable store is in raft.db
// with either.
type LogStore string

const (
	// Segments are append-only files in raft-log: one sync a batch (package wal).
	Segments LogStore = "segments"
	// BoltDB is raft.db, in raft-boltdb's format: two syncs a batch and a page an entry.
	BoltDB LogStore = "boltdb"
)

// LogStores are all there are.
func LogStores() []LogStore { return []LogStore{Segments, BoltDB} }

// storeKey is the key of raft.db's stable store that says where the entries are: the name
// of a LogStore. Without it they are in raft.db, as in directories of releases that knew
// nothing else.
var storeKey = []byte("LogStore")

// segmentKey is the key of raft.db's stable store that has the number of the newest segment
// that was made: segments that end before it have lost entries.
var segmentKey = []byte("NewestSegment")

// openStore opens the log of a directory, moved to the store that is wanted, and returns
// the first index of its last run (see Log.Run).
func openStore(dir string, o LogOptions) (backend logBackend, run uint64, err error) {
	if o.Store != "" && !slices.Contains(LogStores(), o.Store) {
		return nil, 0, fmt.Errorf("log store %q: want one of %q", o.Store, LogStores())
	}
	if o.Store, err = prepareStore(dir, o); err != nil {
		return nil, 0, err
	}
	bolt, err := openBolt(filepath.Join(dir, logFile))
	if err != nil {
		return nil, 0, err
	}
	var stable logBackend = bolt
	if o.Commit != nil {
		stable = committer{bolt, o.Commit}
	}
	if o.Store == Segments {
		entries, err := openSegments(dir, summed{stable}, o)
		if err != nil {
			return nil, 0, errors.Join(err, bolt.Close())
		}
		return segmented{summed{stable}, entries}, entries.Run(), nil
	}
	if err := guard(func() (err error) { run, err = bolt.lastRun(); return err }); err != nil {
		return nil, 0, errors.Join(fmt.Errorf("%s: %w", logFile, err), bolt.Close())
	}
	return summed{stable}, run, nil
}

// openSegments opens a directory's segments, of which the newest that was made is known to
// a stable store.
func openSegments(dir string, stable logBackend, o LogOptions) (*wal.WAL, error) {
	made, err := stable.GetUint64(segmentKey)
	if err != nil && !errors.Is(err, errNotFound) {
		return nil, err
	}
	wo := segmentOptions(o)
	wo.Made = made
	var opened atomic.Bool // until then who opens is told
	wo.Prepared = func(number uint64) error {
		err := stable.SetUint64(segmentKey, number)
		if err != nil && opened.Load() {
			// At once: raft.db has the vote as well.
			o.Fatal(fmt.Errorf("log: set %s: %w", segmentKey, err))
		}
		return err
	}
	defer opened.Store(true)
	entries, err := wal.Open(filepath.Join(dir, segmentDir), wo)
	if errors.Is(err, wal.ErrEndLost) {
		err = fmt.Errorf("%w: %w", ErrLogLost, err)
	}
	return entries, err
}

func segmentOptions(o LogOptions) wal.Options {
	wo := wal.Options{SegmentBytes: o.SegmentBytes, Step: func(name string) { failpoint(name) }}
	if o.Commit != nil {
		wo.Commit = func(name string, change func() error) error {
			return o.Commit(filepath.Join(segmentDir, name), change)
		}
	}
	return wo
}

// prepareStore makes a directory's log, or moves it to the store that is wanted, and
// returns which one it is on. It may be killed at any time and run again: raft.db says
// where the entries are, and it changes with a rename.
func prepareStore(dir string, o LogOptions) (LogStore, error) {
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return "", err
	}
	if err := errors.Join(remove(dir, logFile+newSuffix), os.RemoveAll(filepath.Join(dir, segmentDir+newSuffix))); err != nil {
		return "", err
	}
	there, err := exists(dir, logFile)
	if err != nil {
		return "", err
	}
	segments, err := exists(dir, segmentDir)
	if err != nil {
		return "", err
	}
	if !there {
		o.Store = cmp.Or(o.Store, Segments)
		return o.Store, createStore(dir, o, segments)
	}
	has, err := storeOf(dir)
	if err != nil {
		return "", err
	}
	o.Store = cmp.Or(o.Store, has)
	switch {
	case has == Segments && !segments:
		return "", fmt.Errorf("raft.db is there and %s is not: %w", segmentDir, ErrLogLost)
	case has == BoltDB && segments:
		if err := dropUnused(dir, o); err != nil {
			return "", err
		}
	}
	if has == o.Store {
		return has, nil
	}
	move := moveToSegments
	if has == Segments {
		move = moveToBolt
	}
	if err := move(dir, o); err != nil {
		return "", err
	}
	if o.Moved != nil {
		o.Moved(has, o.Store)
	}
	return o.Store, nil
}

// dropUnused removes the segments that an interrupted move has left, to them or from them:
// raft.db has what they have, and maybe more.
func dropUnused(dir string, o LogOptions) error {
	path := filepath.Join(dir, segmentDir)
	last, err := lastSegmented(path, o)
	if err != nil {
		return err
	}
	b, err := openBolt(filepath.Join(dir, logFile))
	if err != nil {
		return err
	}
	var end uint64
	err = guard(func() (err error) { end, err = b.LastIndex(); return err })
	if err := errors.Join(err, b.Close()); err != nil {
		return err
	}
	if last > end {
		return fmt.Errorf("the log in raft.db ends at %d, the one in %s at %d: %w", end, segmentDir, last, ErrLogLost)
	}
	return removeSegments(dir)
}

// removeSegments takes all segments away, or none: half of them would be a damaged log.
// The name that they get is removed at each start.
func removeSegments(dir string) error {
	if err := rename(dir, segmentDir, segmentDir+newSuffix); err != nil {
		return err
	}
	path := filepath.Join(dir, segmentDir+newSuffix)
	files, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := os.Remove(filepath.Join(path, f.Name())); err != nil {
			return err
		}
		failpoint("log.removed")
	}
	return errors.Join(os.Remove(path), syncDir(dir))
}

// lastSegmented returns the index of the newest entry in segments, or 0.
func lastSegmented(path string, o LogOptions) (uint64, error) {
	entries, err := wal.Open(path, wal.Options{SegmentBytes: o.SegmentBytes})
	if err != nil {
		return 0, err
	}
	return entries.LastIndex(), entries.Close()
}

// createStore makes an empty log. Segments come first: without raft.db they mean nothing
// as long as they are empty.
func createStore(dir string, o LogOptions, segments bool) error {
	if segments {
		switch last, err := lastSegmented(filepath.Join(dir, segmentDir), o); {
		case err != nil:
			return err
		case last > 0:
			return fmt.Errorf("%s is there and raft.db is not: %w", segmentDir, ErrLogLost)
		}
	}
	if o.Store == Segments {
		entries, err := wal.Open(filepath.Join(dir, segmentDir), segmentOptions(o))
		if err != nil {
			return err
		}
		if err := errors.Join(entries.Close(), syncDir(dir)); err != nil {
			return err
		}
		failpoint("log.segments")
	}
	if err := newRaftDB(dir, o.Store, nil, func(logBackend) error { return nil }); err != nil {
		return err
	}
	failpoint("log.created")
	return rename(dir, logFile+newSuffix, logFile)
}

// newRaftDB makes an unnamed raft.db with the stable store of another one, if any, and
// what fill puts into it.
func newRaftDB(dir string, store LogStore, from *boltStore, fill func(logBackend) error) error {
	path := filepath.Join(dir, logFile+newSuffix)
	b, err := openBolt(path)
	if err != nil {
		return err
	}
	if from != nil {
		err = copyStable(b, from)
	}
	if err == nil && store != BoltDB {
		err = summed{b}.Set(storeKey, []byte(store))
	}
	if err == nil {
		err = fill(summed{b})
	}
	return errors.Join(err, b.Close(), syncFile(path))
}

// copyStable copies the stable store as it is, checksums included, except for what it says
// of the segments.
func copyStable(to, from *boltStore) error {
	pairs, err := from.stable()
	if err != nil {
		return err
	}
	kept := pairs[:0]
	for _, p := range pairs {
		if !bytes.Equal(p.key, storeKey) && !bytes.Equal(p.key, segmentKey) {
			kept = append(kept, p)
		}
	}
	return to.SetAll(kept...)
}

// storeOf says where the entries of a directory are.
func storeOf(dir string) (LogStore, error) {
	b, err := openBolt(filepath.Join(dir, logFile))
	if err != nil {
		return "", err
	}
	var value []byte
	err = guard(func() (err error) { value, err = summed{b}.Get(storeKey); return err })
	if errors.Is(err, errNotFound) {
		return BoltDB, b.Close()
	}
	if err == nil && LogStore(value) != Segments {
		err = fmt.Errorf("raft.db: the log is on %q, which this release does not know", value)
	}
	return LogStore(value), errors.Join(err, b.Close())
}

// moveToSegments moves the entries of raft.db to segments. The old raft.db stays, under
// another name, until there is a snapshot.
func moveToSegments(dir string, o LogOptions) (err error) {
	from, err := openBolt(filepath.Join(dir, logFile))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	unnamed := filepath.Join(dir, segmentDir+newSuffix)
	made := uint64(1)
	to, err := wal.Open(unnamed, wal.Options{SegmentBytes: o.SegmentBytes, Prepared: func(number uint64) error {
		made = number
		return nil
	}})
	if err != nil {
		return err
	}
	err = guard(func() error { return copyEntries(to.StoreLogs, summed{from}) })
	if err := errors.Join(err, to.Close()); err != nil {
		return fmt.Errorf("move the log to %s: %w", segmentDir, err)
	}
	failpoint("move.copied")
	if err := rename(dir, segmentDir+newSuffix, segmentDir); err != nil {
		return err
	}
	if err := newRaftDB(dir, Segments, from, func(to logBackend) error { return to.SetUint64(segmentKey, made) }); err != nil {
		return err
	}
	if err := remove(dir, movedFile); err != nil {
		return err
	}
	if err := os.Link(filepath.Join(dir, logFile), filepath.Join(dir, movedFile)); err != nil {
		return fmt.Errorf("keep the old raft.db: %w", err)
	}
	failpoint("move.kept")
	return rename(dir, logFile+newSuffix, logFile)
}

// moveToBolt moves the entries of segments to raft.db, where releases look for them that
// know no segments.
func moveToBolt(dir string, o LogOptions) (err error) {
	from, err := openBolt(filepath.Join(dir, logFile))
	if err != nil {
		return err
	}
	entries, err := openSegments(dir, summed{from}, o)
	if err != nil {
		return errors.Join(err, from.Close())
	}
	err = newRaftDB(dir, BoltDB, from, func(to logBackend) error { return copyEntries(to.StoreLogs, segmented{nil, entries}) })
	if err := errors.Join(err, from.Close(), entries.Close()); err != nil {
		return fmt.Errorf("move the log to raft.db: %w", err)
	}
	failpoint("move.filled")
	if err := rename(dir, logFile+newSuffix, logFile); err != nil {
		return err
	}
	return errors.Join(removeSegments(dir), remove(dir, movedFile), syncDir(dir))
}

// copyEntries copies a log in pieces.
func copyEntries(store func([]*raft.Log) error, from logBackend) error {
	var piece []*raft.Log
	size := int64(0)
	flush := func() error {
		if len(piece) == 0 {
			return nil
		}
		err := store(piece)
		piece, size = nil, 0
		return err
	}
	index, err := from.FirstFrom(0)
	for err == nil && index > 0 {
		l := new(raft.Log)
		if err := from.GetLog(index, l); err != nil {
			return fmt.Errorf("entry %d: %w", index, err)
		}
		piece = append(piece, l)
		if size += logSize(l); len(piece) == pieceEntries || size >= pieceBytes {
			if err := flush(); err != nil {
				return err
			}
		}
		index, err = from.FirstFrom(index + 1)
	}
	return errors.Join(err, flush())
}

// forgetMoved removes the raft.db that the log was moved from, if it is there: a snapshot
// has been written, so the log that took its place has proved to work.
func forgetMoved(dir string) error {
	there, err := exists(dir, movedFile)
	if err != nil || !there {
		return err
	}
	return errors.Join(remove(dir, movedFile), syncDir(dir))
}

// segmented has its entries in segments, and its stable store elsewhere.
type segmented struct {
	logBackend
	entries *wal.WAL
}

// FirstIndex implements raft.LogStore.
func (s segmented) FirstIndex() (uint64, error) { return s.entries.FirstFrom(0), nil }

// FirstFrom implements logBackend.
func (s segmented) FirstFrom(min uint64) (uint64, error) { return s.entries.FirstFrom(min), nil }

// LastIndex implements raft.LogStore.
func (s segmented) LastIndex() (uint64, error) { return s.entries.LastIndex(), nil }

// GetLog implements raft.LogStore. Errors: also ErrDamaged.
func (s segmented) GetLog(index uint64, l *raft.Log) error { return s.entries.GetLog(index, l) }

// newestConfiguration implements configurationFinder.
func (s segmented) newestConfiguration(max uint64) uint64 { return s.entries.Configuration(max) }

// StoreLog implements raft.LogStore.
func (s segmented) StoreLog(l *raft.Log) error { return s.entries.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore.
func (s segmented) StoreLogs(logs []*raft.Log) error { return s.entries.StoreLogs(logs) }

// DeleteRange implements raft.LogStore.
func (s segmented) DeleteRange(min, max uint64) error { return s.entries.DeleteRange(min, max) }

// DeleteFront implements logBackend. A piece is a file, however many entries it has.
func (s segmented) DeleteFront(max uint64, _, _ int) (more bool, err error) {
	return s.entries.DeleteFront(max)
}

// Close closes both.
func (s segmented) Close() error { return errors.Join(s.entries.Close(), s.logBackend.Close()) }
