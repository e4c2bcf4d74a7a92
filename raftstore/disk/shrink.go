package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/quorate/quorate/proto"
	"go.etcd.io/bbolt"
)

// bbolt uses the pages of deleted records again, but never makes a file shorter. When most of state.db is free, a compact copy
// is written beside it, from one read transaction, and takes its name. Flushes wait meanwhile, so that the copy is all of the state; readers go
// on with the old file until they let go. A flush that cannot wait abandons the copy.

// shrinker says when the next copy may be made, and whether one is being made. Guarded by DB.writing, but for done.
type shrinker struct {
	pause time.Duration
	again time.Time
	done  chan struct{} // of the flusher: closed when the copy has ended; nil without a copy
}

const (
	copyPause   = time.Minute
	longestCopy = time.Hour
	// copyChunk is copied before the next look at whether to go on, and then as long a pause. copySync is synced at once: a
	// long sync at the end would stall those of the log.
	copyChunk = 1 << 20
	copySync  = 16 << 20
)

// errAbandoned ends a copy that is in the way.
var errAbandoned = errors.New("a compact copy was abandoned")

// wasteful reports whether a copy is worth its writes: it takes less than two thirds of the file without its reserve, and frees many
// bytes. It needs room for itself and for two reserves, so that it never fills a disk, or for half of one if it gives back much more
// than that: the file itself may have filled the disk.
func (db *DB) wasteful(f *file) bool {
	s := f.bolt.Stats()
	used := f.end - int64(s.FreePageN+s.PendingPageN)*int64(f.bolt.Info().PageSize)
	// A large transaction may have had more allocated behind the pages than it took.
	unused := max(f.end, f.size-db.o.Reserve-db.largestStep()) - used
	if 2*unused <= used || unused < db.o.ShrinkBytes || db.waiting.Load() {
		return false
	}
	least := used + 2*db.o.Reserve
	if unused > 2*(used+db.o.Reserve) {
		least = used + db.o.Reserve/2
	}
	room, ok := freeBytes(f.os)
	return !ok || room > least
}

// InUse is the bytes of state.db without its free pages and without what is allocated behind them.
func (db *DB) InUse() int64 { return max(0, db.size.Load()-db.room.Load()) }

// beginCopy starts a copy if it is time for one. Of the flusher.
func (db *DB) beginCopy() {
	db.writing.Lock()
	defer db.writing.Unlock()
	f, err := db.acquire()
	if err != nil {
		return
	}
	if time.Now().Before(db.shrink.again) || !db.wasteful(f) {
		_ = f.release() // the DB has a reference
		return
	}
	done := make(chan struct{})
	db.shrink.done = done
	work := db.copier(f)
	go func() {
		defer close(done)
		db.endCopy(work())
	}()
}

// copier returns a function that copies f and releases it. The copy can be abandoned from now on. Called with DB.writing.
func (db *DB) copier(f *file) func() error {
	ctx, cancel := context.WithCancel(context.Background())
	db.cancelCopy.Store(&cancel)
	return func() error {
		defer cancel()
		return errors.Join(db.copyFile(ctx, f), f.release())
	}
}

// Shrink puts a compact copy in the place of state.db, even if little of it is free. It is for tests.
func (db *DB) Shrink() error {
	db.writing.Lock()
	f, err := db.acquire()
	if err != nil {
		db.writing.Unlock()
		return err
	}
	work := db.copier(f)
	db.writing.Unlock()
	err = work()
	db.endCopy(err)
	return err
}

// endCopy has the next copy wait longer after one in vain. Only damage of state.db itself is fatal.
func (db *DB) endCopy(err error) {
	db.writing.Lock()
	db.cancelCopy.Store(nil)
	if err == nil {
		db.shrink.pause = 0
	} else {
		db.shrink.pause = min(max(2*db.shrink.pause, copyPause), longestCopy)
	}
	db.shrink.again = time.Now().Add(max(db.shrink.pause, copyPause))
	db.writing.Unlock()
	if errors.Is(err, ErrDamaged) {
		_ = db.fail(fmt.Errorf("read %s: %w", stateFile, err))
	}
}

// abandonCopy ends a copy soon, if there is one. It does not wait for that.
func (db *DB) abandonCopy() {
	if cancel := db.cancelCopy.Load(); cancel != nil {
		(*cancel)()
	}
}

// copying reports whether flushes that can wait should. Of the flusher.
func (db *DB) copying() bool {
	if db.shrink.done == nil {
		return false
	}
	select {
	case <-db.shrink.done:
		db.shrink.done = nil
		return false
	default:
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.bytes < db.o.MaxPendingBytes/2
}

// copyFile writes a compact copy of f and puts it in its place. On an error there is no copy, and nothing has happened.
func (db *DB) copyFile(ctx context.Context, f *file) error {
	failpoint("shrink.begun")
	path := filepath.Join(db.dir, stateFile+newSuffix)
	err := guard(func() error { return copyRecords(ctx, f, path) })
	var compact *file
	if err == nil {
		failpoint("shrink.copied")
		compact, err = db.openCopy(path)
	}
	if err != nil {
		return errors.Join(err, remove(db.dir, stateFile+newSuffix))
	}
	err = db.o.Commit(stateFile, func() error { return db.place(ctx, f, compact) })
	if errors.Is(err, errAbandoned) {
		return errors.Join(err, compact.release(), remove(db.dir, stateFile+newSuffix))
	}
	if err != nil {
		return errors.Join(db.fail(err), compact.release())
	}
	failpoint("shrink.placed")
	return f.release() // the DB's reference
}

// openCopy opens a copy with its reserve, or with a part of it where there is no room for all: the rest comes when the original has gone.
func (db *DB) openCopy(path string) (*file, error) {
	compact, _, _, err := openTrusted(path)
	if err != nil {
		return nil, err
	}
	there, err := compact.extend(compact.end + db.o.Reserve)
	if err == nil && !there {
		there, err = compact.extend(compact.end + db.o.Reserve/4)
	}
	if err == nil && !there {
		err = ErrNoRoom
	}
	if err != nil {
		return nil, errors.Join(err, compact.release())
	}
	return compact, nil
}

// place gives a copy the name of its original.
func (db *DB) place(ctx context.Context, f, compact *file) error {
	db.writing.Lock()
	defer db.writing.Unlock()
	db.mu.Lock()
	// A writer cancels ctx before it changes the file, and has the lock.
	stop := ctx.Err() != nil || db.failed != nil || db.closed || db.file != f
	db.mu.Unlock()
	if stop {
		return errAbandoned
	}
	if err := os.Rename(filepath.Join(db.dir, stateFile+newSuffix), filepath.Join(db.dir, stateFile)); err != nil {
		return fmt.Errorf("%w: %w", errAbandoned, err)
	}
	failpoint("shrink.renamed")
	// Both files are whole, but later flushes must not go to one that a power loss takes away.
	if err := syncDir(db.dir); err != nil {
		return err
	}
	db.mu.Lock()
	db.file = compact
	db.mu.Unlock()
	db.noteSize(compact)
	return nil
}

// copyRecords writes the records of a file to a new one, and makes that durable. It takes half of a core at most.
func copyRecords(ctx context.Context, f *file, path string) (err error) {
	b, err := newBuilder(path)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.abort())
		}
	}()
	return f.bolt.View(func(tx *bbolt.Tx) error {
		rec, want, err := describe(tx)
		if err != nil {
			return err
		}
		c := copying{ctx: ctx, b: b, since: time.Now()}
		from := readRecords(tx)
		for {
			r, payload, sum, err := from.next()
			if err != nil {
				return err
			}
			if payload == nil {
				break
			}
			if err := c.add(r, payload, sum); err != nil {
				return err
			}
		}
		if b.totals != want {
			return fmt.Errorf("found %+v, want %+v: %w", b.totals, want, ErrDamaged)
		}
		_, err = b.finish(rec)
		return err
	})
}

// copying adds records to a file at its leisure.
type copying struct {
	ctx      context.Context
	b        *builder
	n        int // bytes since the last look at ctx
	unsynced int
	since    time.Time
}

func (c *copying) add(r proto.Revision, payload []byte, sum uint32) error {
	if err := c.b.add(r, payload, sum); err != nil {
		return err
	}
	if c.n += len(payload); c.n < copyChunk {
		return nil
	}
	if c.unsynced += c.n; c.unsynced >= copySync {
		c.unsynced = 0
		if err := c.b.file.Sync(); err != nil {
			return err
		}
	}
	c.n = 0
	pause := time.NewTimer(time.Since(c.since))
	defer pause.Stop()
	select {
	case <-c.ctx.Done():
		return errAbandoned
	case <-pause.C:
	}
	c.since = time.Now()
	return nil
}
