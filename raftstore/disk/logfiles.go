package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/raftstore/wal"
)

// logFiles are the files of a log: the stable store in raft.db, the entries in raft-log.
type logFiles struct {
	*stableStore
	entries *wal.WAL
}

// openLogFiles opens the log of a directory, or creates it. progress is told of each change of the
// entries' files that has reached the disk.
func openLogFiles(dir string, o LogOptions, progress func()) (logFiles, error) {
	if err := prepareLog(dir, o); err != nil {
		return logFiles{}, err
	}
	stable, err := openStable(dir, o.Commit, o.Survivor)
	if err != nil {
		return logFiles{}, err
	}
	entries, err := openSegments(dir, stable, o, progress)
	if err != nil {
		return logFiles{}, errors.Join(err, stable.Close())
	}
	return logFiles{stable, entries}, nil
}

// openSegments opens a directory's segments. The stable store has the number of the newest
// one that was made.
func openSegments(dir string, stable *stableStore, o LogOptions, progress func()) (*wal.WAL, error) {
	made, err := stable.GetUint64(segmentKey)
	if err != nil && !errors.Is(err, errNotFound) {
		return nil, err
	}
	wo := segmentOptions(o)
	wo.Made = made
	commit := wo.Commit
	wo.Commit = func(name string, change func() error) error {
		err := commit(name, change)
		if err == nil {
			progress()
		}
		return err
	}
	var opened atomic.Bool // before that, Open returns the error
	wo.Prepared = func(number uint64) error {
		err := stable.SetUint64(segmentKey, number)
		if err != nil && opened.Load() && !wal.NoRoom(err) {
			// At once: raft.db has the vote as well.
			o.Fatal(fmt.Errorf("log: set %s: %w", segmentKey, err))
		}
		if err == nil {
			progress()
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
	commit := o.Commit
	if commit == nil {
		commit = commitAtOnce
	}
	return wal.Options{
		SegmentBytes: o.SegmentBytes, Spares: o.Spares, Step: func(name string) { failpoint(name) },
		Commit: func(name string, change func() error) error {
			return commit(filepath.Join(segmentDir, name), change)
		},
	}
}

// prepareLog makes the log of a directory that has none. It may be killed at any time and
// run again: the log is there when raft.db has its name.
func prepareLog(dir string, o LogOptions) error {
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return err
	}
	if err := remove(dir, stableFile+newSuffix); err != nil {
		return err
	}
	there, err := exists(dir, stableFile)
	if err != nil {
		return err
	}
	segments, err := exists(dir, segmentDir)
	switch {
	case err != nil:
		return err
	case !there:
		return createLog(dir, o, segments)
	case !segments:
		return fmt.Errorf("%s is there and %s is not: %w", stableFile, segmentDir, ErrLogLost)
	}
	return nil
}

// createLog makes an empty log. Segments come first: without raft.db they mean nothing as
// long as they are empty.
func createLog(dir string, o LogOptions, segments bool) error {
	if segments {
		switch last, err := lastSegmented(dir, o); {
		case err != nil:
			return err
		case last > 0:
			return fmt.Errorf("%s is there and %s is not: %w", segmentDir, stableFile, ErrLogLost)
		}
	}
	entries, err := wal.Open(filepath.Join(dir, segmentDir), segmentOptions(o))
	if err != nil {
		return err
	}
	if err := errors.Join(entries.Close(), syncDir(dir)); err != nil {
		return err
	}
	failpoint("log.segments")
	if err := newStable(dir); err != nil {
		return err
	}
	failpoint("log.created")
	return rename(dir, stableFile+newSuffix, stableFile)
}

// lastSegmented returns the index of the newest entry in a directory's segments, or 0.
func lastSegmented(dir string, o LogOptions) (uint64, error) {
	entries, err := wal.Open(filepath.Join(dir, segmentDir), wal.Options{SegmentBytes: o.SegmentBytes})
	if err != nil {
		return 0, err
	}
	return entries.LastIndex(), entries.Close()
}

// FirstIndex implements raft.LogStore.
func (f logFiles) FirstIndex() (uint64, error) { return f.entries.FirstFrom(0), nil }

// FirstFrom implements logBackend.
func (f logFiles) FirstFrom(min uint64) (uint64, error) { return f.entries.FirstFrom(min), nil }

// LastIndex implements raft.LogStore.
func (f logFiles) LastIndex() (uint64, error) { return f.entries.LastIndex(), nil }

// GetLog implements raft.LogStore. Errors: also ErrDamaged.
func (f logFiles) GetLog(index uint64, l *raft.Log) error { return f.entries.GetLog(index, l) }

// NewestConfiguration implements logBackend.
func (f logFiles) NewestConfiguration(max uint64) uint64 { return f.entries.Configuration(max) }

// StoreLog implements raft.LogStore.
func (f logFiles) StoreLog(l *raft.Log) error { return f.entries.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore.
func (f logFiles) StoreLogs(logs []*raft.Log) error { return f.entries.StoreLogs(logs) }

// DeleteRange implements raft.LogStore.
func (f logFiles) DeleteRange(min, max uint64) error { return f.entries.DeleteRange(min, max) }

// DeleteFront implements logBackend.
func (f logFiles) DeleteFront(max uint64) (more bool, err error) { return f.entries.DeleteFront(max) }

// PrepareNext implements logBackend.
func (f logFiles) PrepareNext() error { return f.entries.PrepareNext() }

// Reserve implements logBackend.
func (f logFiles) Reserve() error { return f.entries.Reserve() }

// Room implements logBackend.
func (f logFiles) Room() wal.Room { return f.entries.Room() }

func (f logFiles) Probe() error { return f.entries.Probe() }

// Size implements logBackend.
func (f logFiles) Size() int64 { return f.entries.Size() }

// NewestWithin implements logBackend.
func (f logFiles) NewestWithin(bytes int64) uint64 { return f.entries.NewestWithin(bytes) }

// Close closes both.
func (f logFiles) Close() error { return errors.Join(f.entries.Close(), f.stableStore.Close()) }
