package disk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/proto"
	"go.etcd.io/bbolt"
)

var (
	versionsBucket = []byte("versions")
	metaBucket     = []byte("meta")
	stateKey       = []byte("state")
	totalsKey      = []byte("totals")
	formatKey      = []byte("format")
	formatOne      = []byte{1}
	formatTwo      = []byte{2} // with records in fragments
)

// Options of a DB. Zero values take defaults.
type Options struct {
	// FlushEvery is how long a change may wait for the disk. Default 1 s.
	FlushEvery time.Duration
	// FlushBytes starts a flush early. Default 8 MiB.
	FlushBytes int64
	// MaxPendingBytes is where Record begins to wait for the disk. Default 64 MiB.
	MaxPendingBytes int64
	// Reserve is how many bytes are allocated behind the pages of the file, so that
	// deletes find room on a full disk. Default 32 MiB.
	Reserve int64
	// ShrinkBytes is how much has to be free in the file, and more than a third of it, before a
	// compact copy takes its place. Default 64 MiB.
	ShrinkBytes int64
	// Fatal ends the process: the file can no longer be trusted. It is called at
	// most once. If it returns, the DB refuses everything. Default: panic.
	Fatal func(error)
	// Observe, if set, is told how long each flush took.
	Observe func(time.Duration)
	// Commit, if set, makes each durable change; see CommitFunc.
	Commit CommitFunc
}

// CommitFunc is where tests put faults between the store and its disk: it is
// called for each change that is durable when it returns nil, with the file that
// changes, and runs commit, which makes the change as a whole. Another error than
// commit's counts as a failed write of that file. No lock is held, so it may wait.
// It is called concurrently. The default only runs commit.
type CommitFunc func(file string, commit func() error) error

func commitAtOnce(_ string, commit func() error) error { return commit() }

func (o *Options) defaults() {
	if o.FlushEvery == 0 {
		o.FlushEvery = time.Second
	}
	if o.FlushBytes == 0 {
		o.FlushBytes = 8 << 20
	}
	if o.MaxPendingBytes == 0 {
		o.MaxPendingBytes = 64 << 20
	}
	if o.Reserve == 0 {
		o.Reserve = 32 << 20
	}
	if o.ShrinkBytes == 0 {
		o.ShrinkBytes = 64 << 20
	}
	if o.Fatal == nil {
		o.Fatal = func(err error) { panic(err) }
	}
	if o.Observe == nil {
		o.Observe = func(time.Duration) {}
	}
	if o.Commit == nil {
		o.Commit = commitAtOnce
	}
}

// DB is the state database: the file that the state machine is loaded from, and
// the data of every local snapshot. One goroutine calls Load, Record, Replace
// and Restore; everything else is safe from any goroutine.
type DB struct {
	dir  string
	o    Options
	kick chan struct{} // asks the flusher for an early flush
	quit chan struct{}
	done chan struct{} // the flusher has ended

	// writing is held by what changes the file: a flush or a Replace. It is
	// taken before mu.
	writing sync.Mutex
	totals  totals // of the file; guarded by writing
	wait    wait   // guarded by writing
	shrink  shrinker

	mu       sync.Mutex
	file     *file
	pending  []part
	bytes    int64 // pending and being flushed
	recorded proto.Revision
	failed   error
	closed   bool

	durable atomic.Uint64
	size    atomic.Int64
	room    atomic.Int64 // see Room, without what is pending
	waiting atomic.Bool  // a flush waits for room
	cramped atomic.Bool  // see Cramped

	cancelCopy atomic.Pointer[context.CancelFunc] // nil while there is no compact copy to abandon
}

// file is an open bbolt file. It is closed when its last user lets go, so that
// a stream from it outlives its replacement.
type file struct {
	bolt *bbolt.DB
	refs atomic.Int64
	os   *os.File // bolt's

	// Where its pages end, and up to where it is allocated. Guarded by DB.writing.
	end, size int64
}

func (f *file) release() error {
	if f.refs.Add(-1) > 0 {
		return nil
	}
	return f.bolt.Close()
}

func boltOptions() *bbolt.Options {
	return &bbolt.Options{
		// Another process that holds the file makes the start fail, not wait.
		Timeout:        time.Second,
		NoFreelistSync: true,
		FreelistType:   bbolt.FreelistMapType,
		// Address space only: growing the map would wait for all readers.
		InitialMmapSize: initialMmapSize,
	}
}

// stateOptions are those of state.db. Its size is set here (room.go), and not by bbolt.
func stateOptions() *bbolt.Options {
	o := boltOptions()
	o.NoGrowSync = true
	return o
}

// Open opens dir/state.db, or creates it. It removes what an interrupted
// snapshot has left behind; a complete state.db.incoming stays, for
// NewSnapshotStore to decide on. Errors: ErrDamaged, ErrUnfinished, ErrRecovering.
func Open(dir string, o Options) (*DB, error) {
	o.defaults()
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return nil, fmt.Errorf("open state: %w", err)
	}
	if err := Unfinished(dir); err != nil {
		return nil, fmt.Errorf("open state: %w", err)
	}
	if err := errors.Join(remove(dir, receivingFile), remove(dir, stateFile+newSuffix)); err != nil {
		return nil, fmt.Errorf("open state: %w", err)
	}
	// The process before may have ended between a rename and its sync. A power loss must not take
	// the name of raft.db, with a vote that this process gives, or that of a snapshot.meta behind which it cuts the log.
	if err := syncDir(dir); err != nil {
		return nil, fmt.Errorf("open state: %w", err)
	}
	switch there, err := exists(dir, stateFile); {
	case err != nil:
		return nil, fmt.Errorf("open state: %w", err)
	case !there:
		if err := createState(dir); err != nil {
			return nil, fmt.Errorf("create state: %w", err)
		}
	}
	db := &DB{
		dir: dir, o: o,
		kick: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{}),
	}
	f, rec, tot, err := openFile(filepath.Join(dir, stateFile))
	if err != nil {
		return nil, fmt.Errorf("open state: %w", err)
	}
	if err := o.Commit(stateFile, f.syncRead); err != nil {
		return nil, errors.Join(fmt.Errorf("open state: %w", err), f.release())
	}
	if err := db.keepReserve(f, 0); err != nil {
		return nil, errors.Join(fmt.Errorf("open state: %w", err), f.release())
	}
	db.use(f, rec, tot)
	go db.flusher()
	return db, nil
}

// syncRead makes durable what was read from a file. The process before may have ended between bbolt's
// write of the newest transaction and its sync: then the page cache has that, and the disk may not. What
// counts on Durable, such as the meta of a snapshot that is received, would name a state that a power
// loss takes back. An empty transaction syncs all of the file, and then another meta page.
func (f *file) syncRead() error {
	return guard(func() error { return f.bolt.Update(func(*bbolt.Tx) error { return nil }) })
}

// createState makes an empty state.db. It gets its name when it is complete.
func createState(dir string) error {
	path := filepath.Join(dir, stateFile+newSuffix)
	bolt, err := bbolt.Open(path, fileMode, stateOptions())
	if err != nil {
		return err
	}
	err = bolt.Update(func(tx *bbolt.Tx) error { return writeHeader(tx) })
	if err := errors.Join(err, bolt.Close()); err != nil {
		return err
	}
	failpoint("create")
	if err := syncFile(path); err != nil {
		return err
	}
	return rename(dir, stateFile+newSuffix, stateFile)
}

func writeHeader(tx *bbolt.Tx) error {
	if _, err := tx.CreateBucketIfNotExists(versionsBucket); err != nil {
		return err
	}
	meta, err := tx.CreateBucketIfNotExists(metaBucket)
	if err != nil {
		return err
	}
	return errors.Join(
		putFormat(meta),
		meta.Put(totalsKey, totals{}.encode()),
		putState(meta, &proto.StateRecord{}),
	)
}

func putFormat(meta *bbolt.Bucket) error { return meta.Put(formatKey, seal(bytes.Clone(formatTwo))) }

func putState(meta *bbolt.Bucket, rec *proto.StateRecord) error {
	b, err := proto.Encode(proto.KindStateRecord, rec)
	if err != nil {
		return err
	}
	return meta.Put(stateKey, seal(b))
}

// openFile opens a state file for writing and reads what describes it.
func openFile(path string) (f *file, rec *proto.StateRecord, tot totals, err error) {
	if err := checkPages(path); err != nil {
		return nil, nil, totals{}, fmt.Errorf("%s: %w", path, err)
	}
	return openTrusted(path)
}

// openTrusted is openFile for a file whose pages were checked, or were written by this process.
func openTrusted(path string) (f *file, rec *proto.StateRecord, tot totals, err error) {
	err = guard(func() error {
		var opened *os.File
		o := stateOptions()
		o.OpenFile = func(name string, flag int, mode os.FileMode) (*os.File, error) {
			var err error
			opened, err = os.OpenFile(name, flag, mode)
			return opened, err
		}
		bolt, err := bbolt.Open(path, fileMode, o)
		if err != nil {
			return err
		}
		f = &file{bolt: bolt, os: opened}
		f.refs.Store(1)
		if err := bolt.View(func(tx *bbolt.Tx) error {
			rec, tot, err = describe(tx)
			return err
		}); err != nil {
			return err
		}
		return f.adopt()
	})
	if err != nil {
		if f != nil {
			err = errors.Join(err, f.release())
		}
		return nil, nil, totals{}, fmt.Errorf("%s: %w", path, err)
	}
	return f, rec, tot, nil
}

// describe reads and checks a file's meta bucket.
func describe(tx *bbolt.Tx) (*proto.StateRecord, totals, error) {
	meta := tx.Bucket(metaBucket)
	if meta == nil || tx.Bucket(versionsBucket) == nil {
		return nil, totals{}, fmt.Errorf("buckets are missing: %w", ErrDamaged)
	}
	format, _, err := open(meta.Get(formatKey))
	if err != nil {
		return nil, totals{}, fmt.Errorf("format: %w", err)
	}
	if !bytes.Equal(format, formatOne) && !bytes.Equal(format, formatTwo) {
		return nil, totals{}, fmt.Errorf("format %x, want %x: %w", format, formatTwo, proto.ErrFormat)
	}
	payload, _, err := open(meta.Get(stateKey))
	if err != nil {
		return nil, totals{}, fmt.Errorf("state record: %w", err)
	}
	rec := &proto.StateRecord{}
	if err := decodeKind(payload, proto.KindStateRecord, rec); err != nil {
		return nil, totals{}, fmt.Errorf("state record: %w", err)
	}
	tot, err := decodeTotals(meta.Get(totalsKey))
	if err != nil {
		return nil, totals{}, err
	}
	if tot.versions != rec.Versions {
		return nil, totals{}, fmt.Errorf("state record counts %d versions, totals %d: %w", rec.Versions, tot.versions, ErrDamaged)
	}
	return rec, tot, nil
}

// use makes f the file, with what describe said of it, and returns the one
// before.
func (db *DB) use(f *file, rec *proto.StateRecord, tot totals) *file {
	db.totals = tot
	db.mu.Lock()
	old := db.file
	db.file = f
	db.pending, db.bytes = nil, 0
	db.recorded = proto.Revision(rec.Applied)
	db.mu.Unlock()
	db.durable.Store(rec.Applied)
	db.wait = wait{}
	db.waiting.Store(false)
	db.noteSize(f)
	return old
}

func (db *DB) noteSize(f *file) {
	db.size.Store(f.size)
	db.room.Store(f.size - f.end + f.freePages()*int64(f.bolt.Info().PageSize))
}

// acquire returns the file for reading; the caller releases it.
func (db *DB) acquire() (*file, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.closed {
		return nil, ErrClosed
	}
	if db.failed != nil {
		return nil, db.failed
	}
	db.file.refs.Add(1)
	return db.file, nil
}

// Durable is the applied index on disk.
func (db *DB) Durable() proto.Revision { return proto.Revision(db.durable.Load()) }

// Size of state.db in bytes, the reserve behind its pages included.
func (db *DB) Size() int64 { return db.size.Load() }

// fail ends the DB. The first error is the one that counts.
func (db *DB) fail(err error) error {
	db.mu.Lock()
	first := db.failed == nil
	if first {
		db.failed = err
	}
	err = db.failed
	db.mu.Unlock()
	if first {
		db.o.Fatal(err)
	}
	return err
}

// Close flushes everything recorded and closes the file, unless a stream still
// reads it: then the stream's end does. Changes for which the disk has no room are in the log
// only. A second call returns nil.
func (db *DB) Close() error {
	db.mu.Lock()
	if db.closed {
		db.mu.Unlock()
		return nil
	}
	db.mu.Unlock()
	db.abandonCopy()
	err := db.flush()
	if errors.Is(err, ErrNoRoom) {
		err = nil
	}
	db.mu.Lock()
	if db.closed {
		db.mu.Unlock()
		return nil
	}
	db.closed = true
	f := db.file
	db.mu.Unlock()
	close(db.quit)
	<-db.done
	if db.shrink.done != nil { // the flusher has ended
		db.abandonCopy() // the flusher may have begun one meanwhile
		<-db.shrink.done
	}
	if err := errors.Join(err, f.release()); err != nil {
		return fmt.Errorf("close state: %w", err)
	}
	return nil
}
