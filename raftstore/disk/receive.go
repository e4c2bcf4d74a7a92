package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/hashicorp/raft"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	"go.etcd.io/bbolt"
)

// Incoming is a verified and durable state.db.incoming.
type Incoming struct {
	state *proto.StateRecord
	size  int64       // of its snapshot stream
	gone  atomic.Bool // replaced, discarded, or overwritten by a newer one
}

// Receive reads a snapshot stream to its end into state.db.incoming, verifies
// everything and makes it durable. On an error there is no such file that was
// not there before, and state.db is never touched. One call at a time.
//
// It does not use Fatal: a full disk fails the snapshot, not the node.
func (db *DB) Receive(r io.Reader) (*Incoming, error) {
	in, err := receive(db.dir, r, db.o.Commit)
	if err != nil {
		return nil, fmt.Errorf("receive snapshot: %w", err)
	}
	return in, nil
}

func receive(dir string, r io.Reader, commit CommitFunc) (in *Incoming, err error) {
	if err := remove(dir, receivingFile); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, remove(dir, receivingFile))
		}
	}()
	p, err := newParser(r)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, receivingFile)
	b, err := newBuilder(path)
	if err != nil {
		return nil, err
	}
	var rec proto.VersionRecord
	for {
		payload, sum, err := p.next(&rec)
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = b.add(proto.Revision(rec.Revision), payload, sum)
		}
		if err != nil {
			return nil, errors.Join(err, b.abort())
		}
	}
	failpoint("receive.records")
	in = &Incoming{state: p.state}
	finish := func() error {
		var err error
		if in.size, err = b.finish(p.state); err != nil {
			return err
		}
		failpoint("receive.synced")
		return rename(dir, receivingFile, incomingFile)
	}
	if err := commit(incomingFile, finish); err != nil {
		return nil, errors.Join(err, b.abort()) // once more, if finish has closed it
	}
	return in, nil
}

// builder writes a new state file in big unsynced transactions.
type builder struct {
	path   string
	bolt   *bbolt.DB
	tx     *bbolt.Tx
	totals totals
	bytes  int // in tx
}

const builderBatch = 8 << 20

func newBuilder(path string) (*builder, error) {
	o := boltOptions()
	o.NoSync, o.NoGrowSync = true, true
	bolt, err := bbolt.Open(path, fileMode, o)
	if err != nil {
		return nil, err
	}
	b := &builder{path: path, bolt: bolt}
	if err := bolt.Update(writeHeader); err != nil {
		return nil, errors.Join(err, b.abort())
	}
	return b, nil
}

// add appends a record; revisions must ascend. payload is copied.
func (b *builder) add(r proto.Revision, payload []byte, sum uint32) (err error) {
	if b.tx == nil {
		if b.tx, err = b.bolt.Begin(true); err != nil {
			return err
		}
		b.tx.Bucket(versionsBucket).FillPercent = 1
	}
	value := make([]byte, 0, len(payload)+sumSize)
	value = append(value, payload...)
	value = binary.BigEndian.AppendUint32(value, sum)
	if err := put(b.tx.Bucket(versionsBucket), r, value, &b.totals); err != nil {
		return err
	}
	if b.bytes += len(value); b.bytes < builderBatch {
		return nil
	}
	return b.commit()
}

func (b *builder) commit() error {
	tx := b.tx
	b.tx, b.bytes = nil, 0
	if tx == nil {
		return nil
	}
	return tx.Commit()
}

// finish writes the state and makes the file durable. It returns the size of
// the file's snapshot stream.
func (b *builder) finish(rec *proto.StateRecord) (int64, error) {
	rec.Versions = b.totals.versions
	err := b.commit()
	if err == nil {
		err = b.bolt.Update(func(tx *bbolt.Tx) error {
			meta := tx.Bucket(metaBucket)
			return errors.Join(meta.Put(totalsKey, b.totals.encode()), putState(meta, rec))
		})
	}
	if err := errors.Join(err, b.bolt.Close()); err != nil {
		return 0, err
	}
	header, err := proto.Encode(proto.KindStateRecord, rec)
	if err != nil {
		return 0, err
	}
	return streamSize(len(header), b.totals), syncFile(b.path)
}

// abort closes the file; the caller removes it.
func (b *builder) abort() error {
	var err error
	if b.tx != nil {
		err = b.tx.Rollback()
	}
	return errors.Join(err, b.bolt.Close())
}

// Replace makes a received state the DB's. It is loaded and verified as a whole
// before its file takes state.db's name, so that on an error state.db is as it
// was. What was recorded before and not flushed is dropped. Streams of the old
// file go on. The caller must not call Record meanwhile.
func (db *DB) Replace(in *Incoming) (*mvcc.State, error) {
	var state *mvcc.State
	err := db.o.Commit(incomingFile, func() (err error) {
		state, err = db.replace(in)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("replace state: %w", err)
	}
	return state, nil
}

func (db *DB) replace(in *Incoming) (*mvcc.State, error) {
	db.writing.Lock()
	defer db.writing.Unlock()
	if in.gone.Swap(true) {
		return nil, ErrNoSnapshot
	}
	f, rec, tot, err := openFile(filepath.Join(db.dir, incomingFile))
	if err != nil {
		return nil, err
	}
	state, err := load(f)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", incomingFile, err), f.release())
	}
	db.mu.Lock()
	err = db.failed
	if db.closed {
		err = ErrClosed
	}
	db.mu.Unlock()
	if err != nil {
		return nil, errors.Join(err, f.release())
	}
	failpoint("replace.loaded")
	if err := rename(db.dir, incomingFile, stateFile); err != nil {
		// Which file the next start finds is open: only a start can tell.
		return nil, errors.Join(db.fail(err), f.release())
	}
	failpoint("replace.renamed")
	if err := db.use(f, rec, tot).release(); err != nil {
		return nil, err
	}
	return state, nil
}

// discard removes a received state that is not needed.
func (db *DB) discard(in *Incoming) error {
	if in.gone.Swap(true) {
		return nil
	}
	return remove(db.dir, incomingFile)
}

// Restore makes the state in rc the DB's and returns it loaded. rc is what
// raft gives to FSM.Restore. From SnapshotStore.Open it costs no copy: a
// received snapshot is renamed into place, and state.db itself is only loaded.
// A received snapshot that is older than what was recorded is dropped, because
// both are prefixes of one log and no reader may see a state go back. Any other
// reader is received first. The caller closes rc.
func (db *DB) Restore(rc io.ReadCloser) (*mvcc.State, error) {
	var inner io.Reader = rc
	for {
		w, ok := inner.(raft.ReadCloserWrapper)
		if !ok {
			break
		}
		inner = w.WrappedReadCloser()
	}
	switch r := inner.(type) {
	case *incomingReader:
		if r.db == db {
			return db.restoreIncoming(r.in)
		}
	case *stream:
		if r.db == db {
			return db.reload()
		}
	}
	in, err := db.Receive(rc)
	if err != nil {
		return nil, err
	}
	return db.Replace(in)
}

func (db *DB) restoreIncoming(in *Incoming) (*mvcc.State, error) {
	db.mu.Lock()
	recorded := db.recorded
	db.mu.Unlock()
	if proto.Revision(in.state.Applied) >= recorded {
		return db.Replace(in)
	}
	// snapshot.meta says already that data as new as the file is there. So the own state
	// must be durable before the file goes.
	state, err := db.reload()
	if err != nil {
		return nil, err
	}
	if err := db.discard(in); err != nil {
		return nil, fmt.Errorf("restore snapshot: %w", err)
	}
	return state, nil
}

// reload flushes and loads the DB's own state.
func (db *DB) reload() (*mvcc.State, error) {
	if err := db.Sync(); err != nil {
		return nil, err
	}
	return db.Load()
}

// findIncoming looks at a state.db.incoming that an earlier process has left.
// It returns nil if there is none.
func (db *DB) findIncoming() (*Incoming, error) {
	there, err := exists(db.dir, incomingFile)
	if err != nil || !there {
		return nil, err
	}
	s, err := db.streamIncoming()
	if err != nil {
		return nil, err
	}
	if err := s.Close(); err != nil {
		return nil, err
	}
	return &Incoming{state: s.state, size: s.size}, nil
}

func (db *DB) streamIncoming() (*stream, error) {
	path := filepath.Join(db.dir, incomingFile)
	if _, err := os.Stat(path); err != nil {
		return nil, err
	}
	f, _, _, err := openFile(path)
	if err != nil {
		return nil, err
	}
	s, err := newStream(f, nil)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.release())
	}
	return s, nil
}

// incomingReader is what SnapshotStore.Open returns for a received snapshot.
// Restore takes the file; only another reader needs the bytes.
type incomingReader struct {
	db *DB
	in *Incoming
	s  *stream
}

func (r *incomingReader) Read(p []byte) (int, error) {
	if r.s == nil {
		if r.in.gone.Load() {
			return 0, ErrNoSnapshot
		}
		s, err := r.db.streamIncoming()
		if err != nil {
			return 0, err
		}
		r.s = s
	}
	return r.s.Read(p)
}

func (r *incomingReader) Close() error {
	if r.s == nil {
		return nil
	}
	return r.s.Close()
}
