package disk

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/hashicorp/raft"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// Incoming is a verified and durable state.db.incoming.
type Incoming struct {
	state *proto.StateRecord
	size  int64       // of its snapshot stream
	gone  atomic.Bool // replaced, discarded, or overwritten by a newer one
	// loaded is the state itself, made of the same bytes as the file. Nil: it is to be loaded
	// from there. It belongs to who has set gone.
	loaded *mvcc.State
}

// overwritten says that a newer one has the file.
func (in *Incoming) overwritten() {
	if !in.gone.Swap(true) {
		in.loaded = nil
	}
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

func receive(dir string, r io.Reader, commit CommitFunc) (*Incoming, error) {
	to, err := newReceiver(dir)
	if err != nil {
		return nil, err
	}
	if _, err := to.ReadFrom(r); err != nil {
		return nil, to.abort(err)
	}
	return to.finish(commit)
}

// Replace makes a received state the DB's. It was, or is here, loaded and verified as a
// whole before its file takes state.db's name, so that on an error state.db is as it
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
	db.abandonCopy()
	f, rec, tot, state, err := db.openIncoming(in)
	if err != nil {
		return nil, err
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

// openIncoming opens the file of a received state, and returns the state. One that was received
// by this process was verified on its way into the file, and is in memory already.
func (db *DB) openIncoming(in *Incoming) (f *file, rec *proto.StateRecord, tot totals, state *mvcc.State, err error) {
	path := filepath.Join(db.dir, incomingFile)
	state, in.loaded = in.loaded, nil
	if state != nil {
		f, rec, tot, err = openTrusted(path)
		return f, rec, tot, state, err
	}
	if f, rec, tot, err = openFile(path); err != nil {
		return nil, nil, totals{}, nil, err
	}
	if state, err = load(f); err != nil {
		return nil, nil, totals{}, nil, errors.Join(fmt.Errorf("%s: %w", incomingFile, err), f.release())
	}
	return f, rec, tot, state, nil
}

// discard removes a received state that is not needed.
func (db *DB) discard(in *Incoming) error {
	if in.gone.Swap(true) {
		return nil
	}
	in.loaded = nil
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
