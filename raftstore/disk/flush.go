package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	"github.com/quorate/quorate/raftstore/wal"
	"go.etcd.io/bbolt"
)

// Added is a new version of a key in a table.
type Added struct {
	Table   string
	Version *mvcc.Version
}

// Batch is what some applied entries have changed. The DB takes it over.
type Batch struct {
	// Added versions in ascending revision order.
	Added []Added
	// Removed revisions: no reader can reach them any more.
	Removed []proto.Revision
	// State after the last of the entries. Versions need not be set.
	State *proto.StateRecord
}

// pending is what waits for the next flush.
type pending struct {
	added   []Added
	removed []proto.Revision
	state   *proto.StateRecord
}

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
	p := &db.pending
	p.added = append(p.added, b.Added...)
	p.removed = append(p.removed, b.Removed...)
	p.state = b.State
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

// flush writes what is pending in one transaction. When it returns nil,
// everything recorded before the call is durable.
func (db *DB) flush() error {
	err := db.o.Commit(stateFile, db.flushPending)
	if err != nil && !errors.Is(err, ErrClosed) && !errors.Is(err, ErrNoRoom) {
		return db.fail(err) // known already, unless it is Commit's own
	}
	return err
}

func (db *DB) flushPending() error {
	db.writing.Lock()
	defer db.writing.Unlock()
	db.mu.Lock()
	switch {
	case db.failed != nil:
		defer db.mu.Unlock()
		return db.failed
	case db.closed:
		defer db.mu.Unlock()
		return ErrClosed
	}
	f, nothing := db.file, db.pending.state == nil
	db.mu.Unlock()
	if nothing {
		if err := db.keepReserve(f, 0); err != nil {
			return db.fail(err)
		}
		db.noteSize(f)
		return nil
	}
	if err := db.stillNoRoom(f); errors.Is(err, ErrNoRoom) {
		return err
	} else if err != nil {
		return db.fail(err)
	}
	db.mu.Lock()
	p, bytes := db.pending, db.bytes
	db.pending = pending{}
	db.mu.Unlock()
	db.abandonCopy()
	start := time.Now()
	tot := db.totals
	err := guard(func() error { return db.writePending(f, &p, &tot) })
	if errors.Is(err, ErrNoRoom) {
		db.putBack(p)
		return err
	}
	if err != nil {
		return db.fail(fmt.Errorf("write %s: %w", stateFile, err))
	}
	failpoint("flushed")
	db.totals = tot
	db.wait = wait{}
	db.durable.Store(p.state.Applied)
	db.noteSize(f)
	db.mu.Lock()
	db.bytes -= bytes
	db.mu.Unlock()
	db.waiting.Store(false)
	db.o.Observe(time.Since(start))
	return nil
}

// writePending commits one transaction. On ErrNoRoom the file is as it was.
func (db *DB) writePending(f *file, p *pending, tot *totals) error {
	free := f.bolt.Stats().FreePageN
	tx, err := f.bolt.Begin(true)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // an error says that it is over
	d := demand{pageSize: int64(f.bolt.Info().PageSize)}
	if err := p.write(tx, tot, db.Durable(), &d); err != nil {
		return err
	}
	most, least := d.bytes(f.end/d.pageSize, free)
	if f.end+most > f.size && d.removals != (leaves{}) {
		if err := d.recount(f.bolt, slices.Clone(p.removed)); err != nil {
			return err
		}
		most, least = d.bytes(f.end/d.pageSize, free)
	}
	if err := db.makeRoom(f, most, least); err != nil {
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

// putBack puts changes that could not be written back, before the newer ones. Versions that came and went among them
// are left out, so that the size of the state bounds how much waits.
func (db *DB) putBack(p pending) {
	bytes := p.settle(db.Durable())
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.pending.state != nil {
		p.added = append(p.added, db.pending.added...)
		p.removed = append(p.removed, db.pending.removed...)
		p.state = db.pending.state
	}
	db.bytes -= bytes
	db.pending = p
}

// settle leaves out versions that came and went behind the file's applied index, and returns how many bytes they had.
func (p *pending) settle(durable proto.Revision) (bytes int64) {
	came := map[proto.Revision]bool{} // of those that went: whether their versions are here
	for _, r := range p.removed {
		if r > durable {
			came[r] = false
		}
	}
	if len(came) == 0 {
		return 0
	}
	p.added = slices.DeleteFunc(p.added, func(a Added) bool {
		_, went := came[a.Version.Revision]
		if went {
			came[a.Version.Revision] = true
			bytes += a.bytes() + 8
		}
		return went
	})
	p.removed = slices.DeleteFunc(p.removed, func(r proto.Revision) bool { return came[r] })
	return bytes
}

func (a Added) bytes() int64 { return a.Version.Size() + int64(len(a.Table)) }

// write puts everything into one transaction: records and state must never be
// apart. durable is the applied index of the file so far. It counts the pages that it takes in d.
func (p *pending) write(tx *bbolt.Tx, tot *totals, durable proto.Revision, d *demand) error {
	if proto.Revision(p.state.Applied) < durable {
		return fmt.Errorf("state goes from %d to %d: %w", durable, p.state.Applied, mvcc.ErrOrder)
	}
	versions, meta := tx.Bucket(versionsBucket), tx.Bucket(metaBucket)
	// Revisions only grow: a page is never inserted into again.
	versions.FillPercent = 1
	d.lastLeaf(versions) // before removals: bbolt's cursors do not get out of leaves that have become empty
	// What came and went while it was pending never reaches the disk.
	gone := map[proto.Revision]bool{}
	for _, r := range p.removed {
		if r > durable {
			gone[r] = true
			continue
		}
		n, err := drop(versions, r, tot)
		if err != nil {
			return err
		}
		d.removed(r, n)
	}
	last := durable
	for _, a := range p.added {
		r := a.Version.Revision
		if r <= last || r > proto.Revision(p.state.Applied) {
			return fmt.Errorf("revision %d after %d in a state at %d: %w", r, last, p.state.Applied, mvcc.ErrOrder)
		}
		last = r
		if gone[r] {
			delete(gone, r)
			continue
		}
		value, err := encodeVersion(a.Table, a.Version)
		if err != nil {
			return err
		}
		if err := put(versions, r, value, tot); err != nil {
			return err
		}
		d.added(len(value))
	}
	if len(gone) > 0 {
		return fmt.Errorf("%d removed revisions above %d were never added: %w", len(gone), durable, mvcc.ErrOrder)
	}
	p.state.Versions = tot.versions
	if err := errors.Join(meta.Put(totalsKey, tot.encode()), putState(meta, p.state)); err != nil {
		return err
	}
	d.meta = len(meta.Get(stateKey))
	return nil
}

// put stores a sealed record, and adds it to the totals.
func put(versions *bbolt.Bucket, r proto.Revision, value []byte, tot *totals) error {
	if err := versions.Put(revisionKey(r), value); err != nil {
		return fmt.Errorf("revision %d: %w", r, err)
	}
	n := len(value) - sumSize
	tot.add(n, binary.BigEndian.Uint32(value[n:]))
	return nil
}

// drop deletes a record, and takes it out of the totals. It returns its length.
func drop(versions *bbolt.Bucket, r proto.Revision, tot *totals) (int, error) {
	key := revisionKey(r)
	value := versions.Get(key)
	if value == nil {
		return 0, fmt.Errorf("revision %d is to be removed, but is not there: %w", r, ErrDamaged)
	}
	payload, sum, err := open(value)
	if err != nil {
		return 0, fmt.Errorf("revision %d: %w", r, err)
	}
	tot.sub(len(payload), sum)
	if err := versions.Delete(key); err != nil {
		return 0, fmt.Errorf("remove revision %d: %w", r, err)
	}
	return len(value), nil
}
