package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
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
// Options.MaxPendingBytes are queued. After a failure it does nothing: Fatal
// has been called.
func (db *DB) Record(b Batch) {
	if b.State == nil {
		return
	}
	n := int64(8 * len(b.Removed))
	for _, a := range b.Added {
		n += a.Version.Size() + int64(len(a.Table))
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
	case bytes > db.o.MaxPendingBytes:
		// The flush that runs, if any, and one for the rest. The error has gone
		// to Fatal.
		_ = db.flush()
	case bytes > db.o.FlushBytes:
		select {
		case db.kick <- struct{}{}:
		default:
		}
	}
}

// Sync returns when everything recorded before the call is durable.
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
		// The error has gone to Fatal, and every later call returns it.
		_ = db.flush()
	}
}

// flush writes what is pending in one transaction. When it returns nil,
// everything recorded before the call is durable.
func (db *DB) flush() error {
	err := db.o.Commit(stateFile, db.flushPending)
	if err != nil && !errors.Is(err, ErrClosed) {
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
	p, bytes, f := db.pending, db.bytes, db.file
	db.pending = pending{}
	db.mu.Unlock()
	if p.state == nil {
		return nil
	}
	start := time.Now()
	tot := db.totals
	err := guard(func() error {
		return f.bolt.Update(func(tx *bbolt.Tx) error { return p.write(tx, &tot, db.Durable()) })
	})
	if err != nil {
		return db.fail(fmt.Errorf("write %s: %w", stateFile, err))
	}
	failpoint("flushed")
	db.totals = tot
	db.durable.Store(p.state.Applied)
	db.noteSize()
	db.mu.Lock()
	db.bytes -= bytes
	db.mu.Unlock()
	db.o.Observe(time.Since(start))
	return nil
}

// write puts everything into one transaction: records and state must never be
// apart. durable is the applied index of the file so far.
func (p *pending) write(tx *bbolt.Tx, tot *totals, durable proto.Revision) error {
	if proto.Revision(p.state.Applied) < durable {
		return fmt.Errorf("state goes from %d to %d: %w", durable, p.state.Applied, mvcc.ErrOrder)
	}
	versions, meta := tx.Bucket(versionsBucket), tx.Bucket(metaBucket)
	// Revisions only grow: a page is never inserted into again.
	versions.FillPercent = 1
	// What came and went while it was pending never reaches the disk.
	gone := map[proto.Revision]bool{}
	for _, r := range p.removed {
		if r > durable {
			gone[r] = true
			continue
		}
		if err := drop(versions, r, tot); err != nil {
			return err
		}
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
	}
	if len(gone) > 0 {
		return fmt.Errorf("%d removed revisions above %d were never added: %w", len(gone), durable, mvcc.ErrOrder)
	}
	p.state.Versions = tot.versions
	return errors.Join(meta.Put(totalsKey, tot.encode()), putState(meta, p.state))
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

// drop deletes a record, and takes it out of the totals.
func drop(versions *bbolt.Bucket, r proto.Revision, tot *totals) error {
	key := revisionKey(r)
	value := versions.Get(key)
	if value == nil {
		return fmt.Errorf("revision %d is to be removed, but is not there: %w", r, ErrDamaged)
	}
	payload, sum, err := open(value)
	if err != nil {
		return fmt.Errorf("revision %d: %w", r, err)
	}
	tot.sub(len(payload), sum)
	if err := versions.Delete(key); err != nil {
		return fmt.Errorf("remove revision %d: %w", r, err)
	}
	return nil
}
