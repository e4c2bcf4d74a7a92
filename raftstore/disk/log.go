package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"github.com/quorate/quorate/internal/planted"
	"go.etcd.io/bbolt"
)

// LogOptions of a Log. Zero values take defaults.
type LogOptions struct {
	// Watchdog is how long one write may take before Fatal is called with
	// ErrHungDisk. Raft would keep a leader whose disk hangs. Default 10 s.
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
}

// logBackend is what a Log is put on.
type logBackend interface {
	raft.LogStore
	raft.StableStore
	Close() error
}

// Log is the Raft log and the stable store in dir/raft.db. Writes are durable
// when they return. All methods are safe for concurrent use.
type Log struct {
	backend logBackend
	o       LogOptions
	cache   *logCache
	late    lateStore    // only used where its bug is planted
	last    atomic.Int64 // when a write last returned, in ns since 1970
}

var (
	_ raft.LogStore    = (*Log)(nil)
	_ raft.StableStore = (*Log)(nil)
)

// OpenLog opens dir/raft.db, or creates it.
func OpenLog(dir string, o LogOptions) (*Log, error) {
	backend, err := openBackend(dir)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	if o.Commit != nil {
		return newLog(summed{committer{backend, o.Commit}}, o), nil
	}
	return newLog(summed{backend}, o), nil
}

func openBackend(dir string) (*raftboltdb.BoltStore, error) {
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return nil, err
	}
	if err := remove(dir, logFile+newSuffix); err != nil {
		return nil, err
	}
	there, err := exists(dir, logFile)
	if err != nil {
		return nil, err
	}
	if !there {
		if err := createLog(dir); err != nil {
			return nil, err
		}
	}
	return openBolt(filepath.Join(dir, logFile))
}

// createLog makes an empty log. It gets its name when it is complete.
func createLog(dir string) error {
	path := filepath.Join(dir, logFile+newSuffix)
	b, err := openBolt(path)
	if err != nil {
		return err
	}
	if err := errors.Join(b.Close(), syncFile(path)); err != nil {
		return err
	}
	failpoint("log.created")
	return rename(dir, logFile+newSuffix, logFile)
}

func openBolt(path string) (b *raftboltdb.BoltStore, err error) {
	if err := checkPages(path); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	err = guard(func() error {
		b, err = raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: boltOptions()})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return b, nil
}

func newLog(backend logBackend, o LogOptions) *Log {
	o.defaults()
	l := &Log{backend: backend, o: o, cache: newLogCache(o.CacheBytes)}
	l.late.backend = backend
	l.last.Store(time.Now().UnixNano())
	return l
}

// write runs a write under the watchdog. Any error is fatal: what a failed
// fsync leaves in the page cache cannot be trusted.
func (l *Log) write(what string, f func() error) error {
	dog := time.AfterFunc(l.o.Watchdog, func() {
		l.o.Fatal(fmt.Errorf("%s for %v: %w", what, l.o.Watchdog, ErrHungDisk))
	})
	err := f()
	dog.Stop()
	l.last.Store(time.Now().UnixNano())
	if err != nil {
		err = fmt.Errorf("log: %s: %w", what, err)
		l.o.Fatal(err)
	}
	return err
}

// LastWrite is when a write last returned, or when the log was opened.
func (l *Log) LastWrite() time.Time { return time.Unix(0, l.last.Load()) }

// StoreLog implements raft.LogStore.
func (l *Log) StoreLog(log *raft.Log) error { return l.StoreLogs([]*raft.Log{log}) }

// StoreLogs implements raft.LogStore.
func (l *Log) StoreLogs(logs []*raft.Log) error {
	if len(logs) == 0 {
		return nil
	}
	start := time.Now()
	store := l.backend.StoreLogs
	if planted.On(planted.AckBeforeSync) {
		store = l.late.store
	}
	if err := l.write("store entries", func() error { return store(logs) }); err != nil {
		return err
	}
	bytes := 0
	for _, log := range logs {
		bytes += len(log.Data)
	}
	l.cache.put(logs)
	l.o.Observe(time.Since(start), len(logs), bytes)
	return nil
}

// DeleteRange implements raft.LogStore.
func (l *Log) DeleteRange(min, max uint64) error {
	// Before the disk, so that nobody is given what is gone. Raft never stores
	// into a range that it is deleting.
	l.cache.remove(min, max)
	if planted.On(planted.AckBeforeSync) {
		l.late.flush()
	}
	return l.write("delete entries", func() error { return l.backend.DeleteRange(min, max) })
}

// GetLog implements raft.LogStore. The entry's data is shared. A damaged entry is
// fatal: raft would go on without it, or panic.
func (l *Log) GetLog(index uint64, log *raft.Log) error {
	if cached := l.cache.get(index); cached != nil {
		*log = *cached
		return nil
	}
	return l.checked(l.backend.GetLog(index, log))
}

// checked ends the process if what was read is damaged.
func (l *Log) checked(err error) error {
	if errors.Is(err, ErrDamaged) {
		l.o.Fatal(err)
	}
	return err
}

// FirstIndex implements raft.LogStore.
func (l *Log) FirstIndex() (uint64, error) { return l.backend.FirstIndex() }

// LastIndex implements raft.LogStore.
func (l *Log) LastIndex() (uint64, error) { return l.backend.LastIndex() }

// Set implements raft.StableStore.
func (l *Log) Set(key, value []byte) error {
	return l.write("set "+string(key), func() error { return l.backend.Set(key, value) })
}

// SetUint64 implements raft.StableStore.
func (l *Log) SetUint64(key []byte, value uint64) error {
	return l.write("set "+string(key), func() error { return l.backend.SetUint64(key, value) })
}

// Get implements raft.StableStore.
func (l *Log) Get(key []byte) ([]byte, error) {
	b, err := l.backend.Get(key)
	return b, l.checked(err)
}

// GetUint64 implements raft.StableStore.
func (l *Log) GetUint64(key []byte) (uint64, error) {
	v, err := l.backend.GetUint64(key)
	return v, l.checked(err)
}

// Close waits for a write that runs and closes the file.
func (l *Log) Close() error {
	if planted.On(planted.AckBeforeSync) {
		l.late.flush()
	}
	if err := l.backend.Close(); err != nil {
		return fmt.Errorf("close log: %w", err)
	}
	return nil
}

// WipeLog drops all entries of the log in dir and keeps the term, the vote and
// the snapshot: the remedy when a log holds entries that were never committed
// and no snapshot cures it. The log must not be open.
func WipeLog(dir string) error {
	there, err := exists(dir, logFile)
	if err == nil && there {
		err = wipeLog(filepath.Join(dir, logFile))
	}
	if err != nil {
		return fmt.Errorf("wipe log: %w", err)
	}
	return nil
}

// logsBucket is raft-boltdb's name for the entries.
var logsBucket = []byte("logs")

func wipeLog(path string) error {
	if err := checkPages(path); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	db, err := bbolt.Open(path, fileMode, boltOptions())
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		if tx.Bucket(logsBucket) != nil {
			if err := tx.DeleteBucket(logsBucket); err != nil {
				return err
			}
		}
		_, err := tx.CreateBucket(logsBucket)
		return err
	})
	return errors.Join(err, db.Close())
}
