package disk

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/wal"
)

// Record queues what was applied. It waits only while more than
// Options.MaxPendingBytes are queued, and not for room on the disk. After a failure it
// does nothing: Fatal has been called.
func (db *DB) Record(b Batch) {
	if b.State == nil {
		return
	}
	n := int64(8 * len(b.Removed))
	for _, a := range b.Added {
		n += a.bytes()
	}
	db.mu.Lock()
	if db.closed || db.failed != nil {
		db.mu.Unlock()
		return
	}
	if last := len(db.pending) - 1; last < 0 || db.pending[last].cost() >= db.o.FlushBytes/8 {
		db.pending = append(db.pending, part{})
	}
	db.pending[len(db.pending)-1].append(part{b.Added, b.Removed, b.State, n})
	db.recorded = proto.Revision(b.State.Applied)
	db.bytes += n
	bytes := db.bytes
	db.mu.Unlock()

	switch {
	case db.waiting.Load():
		// The flusher tries again; memory and the log have it.
	case bytes > db.o.MaxPendingBytes:
		// The flush that runs, if any, and one for the rest. The error has gone
		// to Fatal, or the flush waits for room.
		_ = db.flush()
	case bytes > db.o.FlushBytes:
		select {
		case db.kick <- struct{}{}:
		default:
		}
	}
}

// Sync returns when everything recorded before the call is durable. Error: ErrNoRoom, with
// which nothing has changed.
func (db *DB) Sync() error {
	if err := db.flush(); err != nil {
		return fmt.Errorf("sync state: %w", err)
	}
	return nil
}

// flusher bounds how long a change waits. It ends with Close.
func (db *DB) flusher() {
	defer close(db.done)
	tick := time.NewTicker(db.o.FlushEvery)
	defer tick.Stop()
	for {
		select {
		case <-db.quit:
			return
		case <-tick.C:
		case <-db.kick:
		}
		if db.copying() {
			continue
		}
		// The error has gone to Fatal, and every later call returns it; or the disk is full,
		// and the next tick tries again.
		if err := db.flush(); err == nil && db.shrink.done == nil {
			db.beginCopy()
		}
	}
}

// flush writes what is pending: in one transaction, unless there is no room for it. When it returns nil,
// everything recorded before the call is durable.
func (db *DB) flush() error {
	for {
		more := false
		err := db.o.Commit(stateFile, func() (err error) {
			more, err = db.flushPending()
			return err
		})
		if err != nil && !errors.Is(err, ErrClosed) && !errors.Is(err, ErrNoRoom) {
			return db.fail(err) // known already, unless it is Commit's own
		}
		if err != nil || !more {
			return err
		}
	}
}

// flushPending commits one transaction at most, with the first parts of what is pending. It reports whether there were more.
func (db *DB) flushPending() (more bool, err error) {
	db.writing.Lock()
	defer db.writing.Unlock()
	db.mu.Lock()
	switch {
	case db.failed != nil:
		defer db.mu.Unlock()
		return false, db.failed
	case db.closed:
		defer db.mu.Unlock()
		return false, ErrClosed
	}
	f, nothing := db.file, len(db.pending) == 0
	db.mu.Unlock()
	if nothing {
		if err := db.keepReserve(f, 0); err != nil {
			return false, db.fail(err)
		}
		db.noteSize(f)
		return false, nil
	}
	if err := db.stillNoRoom(f); errors.Is(err, ErrNoRoom) {
		return false, err
	} else if err != nil {
		return false, db.fail(err)
	}
	db.mu.Lock()
	parts := db.pending
	db.pending = nil
	db.mu.Unlock()
	db.abandonCopy()
	start := time.Now()
	n, pause := len(parts), db.wait.pause
	var tot totals
	for {
		db.wait.pause = pause // once longer, however many tries there are
		// Before it is encoded.
		if err = db.mayFit(f, parts[:n]); err == nil {
			tot = db.totals
			err = guard(func() error { return db.writeParts(f, parts[:n], &tot) })
		}
		if n == 1 || !errors.Is(err, ErrNoRoom) {
			break
		}
		n /= 2
	}
	if errors.Is(err, ErrNoRoom) {
		db.putBack(bound(parts, db.Durable(), db.o.MaxPendingBytes))
		return false, err
	}
	if err != nil {
		return false, db.fail(fmt.Errorf("write %s: %w", stateFile, err))
	}
	failpoint("flushed")
	db.totals = tot
	db.wait = wait{}
	db.durable.Store(parts[n-1].state.Applied)
	db.noteSize(f)
	more = n < len(parts)
	db.putBack(parts[n:])
	// Record goes on to leave the flush to the flusher until all parts have found room.
	db.waiting.Store(more)
	db.o.Observe(time.Since(start))
	return more, nil
}

// mayFit returns ErrNoRoom for parts that add more than there is room for.
func (db *DB) mayFit(f *file, parts []part) error {
	need := added(parts, db.Durable())
	room := f.size - f.end + f.freePages()*int64(f.bolt.Info().PageSize)
	if need <= room {
		return nil
	}
	if free, ok := freeBytes(f.os); !ok || need <= room+free {
		return nil
	}
	return db.noRoomFor(f.size+need-room, nil)
}

// writeParts commits one transaction. On ErrNoRoom the file is as it was.
func (db *DB) writeParts(f *file, parts []part, tot *totals) error {
	free := f.freePages()
	tx, err := f.bolt.Begin(true)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // an error says that it is over
	d := demand{pageSize: int64(f.bolt.Info().PageSize)}
	if err := write(tx, parts, tot, db.Durable(), &d); err != nil {
		return err
	}
	need := d.bytes(f.end/d.pageSize, free)
	if f.end+need > f.size && d.removals > 0 {
		var removed []proto.Revision
		for _, p := range parts {
			removed = append(removed, p.removed...)
		}
		if err := d.recount(f.bolt, removed); err != nil {
			return err
		}
		need = d.bytes(f.end/d.pageSize, free)
	}
	if err := db.makeRoom(f, need); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		// bbolt writes all pages that it has spilled, syncs, and writes the meta page. If one of the former could not
		// be written, no meta page refers to any of them, and bbolt has taken the transaction back.
		// Of a file system that is read-only the meta page is as it was, too.
		if s := tx.Stats(); wal.NoRoom(err) && (s.GetWrite() < s.GetSpill() || errors.Is(err, syscall.EROFS) && refusedWrite(err)) {
			return db.noRoomFor(0, err)
		}
		return err
	}
	return f.measure()
}

// putBack puts parts that were not written back, before the newer ones.
func (db *DB) putBack(parts []part) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.pending = append(parts, db.pending...)
	db.bytes = 0
	for _, p := range db.pending {
		db.bytes += p.bytes
	}
}
