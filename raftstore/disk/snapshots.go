package disk

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/raftstore/wal"
)

// SnapshotStore implements raft.SnapshotStore without a second copy of the
// data. The data of a local snapshot is state.db, which may by then be newer
// than the snapshot's index: the state machine skips entries that it has
// applied. The data of a snapshot from the leader is state.db.incoming until
// Restore has taken it. All that a snapshot adds is one small file with its
// index, term and configuration. There is only the newest.
type SnapshotStore struct {
	db    *DB
	dir   string
	files metaFiles // guarded by mu
	// hold, if set, keeps the log behind an index; see HoldLog.
	hold func(index uint64) (release func())

	mu       sync.Mutex
	meta     *meta     // on disk, unless Advance has been called; nil if there is none
	incoming *Incoming // nil if there is none
	late     func(index, term uint64, newest bool) bool
	received func(err error)
	// newest is meta's index, for who must not wait for a write of it.
	newest atomic.Uint64
	// written is the index of the one that is on disk, or 0.
	written atomic.Uint64
}

var _ raft.SnapshotStore = (*SnapshotStore)(nil)

// NewSnapshotStore opens the snapshots of a data directory. It decides what
// becomes of a received snapshot that an earlier process did not restore.
// Errors: ErrDamaged, ErrBehind.
func NewSnapshotStore(db *DB, dir string) (*SnapshotStore, error) {
	s := &SnapshotStore{db: db, dir: dir, files: metaFiles{dir: dir}}
	if err := s.recover(); err != nil {
		return nil, fmt.Errorf("open snapshots: %w", err)
	}
	return s, nil
}

// HoldLog has the log kept for the node that a snapshot is sent to: from Open to the
// Close of what that returned, and for a while after (Log.Hold). Call it before the
// store is used.
func (s *SnapshotStore) HoldLog(l *Log) { s.hold = l.Hold }

func (s *SnapshotStore) recover() (err error) {
	if err := errors.Join(remove(s.dir, metaFile+".tmp"), s.files.prepare()); err != nil {
		return err
	}
	if s.meta, err = readMeta(s.dir); err != nil {
		return err
	}
	if s.meta != nil {
		s.newest.Store(s.meta.Index)
		s.written.Store(s.meta.Index)
	}
	if s.meta == nil || s.meta.DataIndex <= uint64(s.db.Durable()) {
		// Nobody waits for it: its meta was never written, or it was older than
		// what the log had brought meanwhile.
		return remove(s.dir, incomingFile)
	}
	in, err := s.db.findIncoming()
	if err != nil {
		return fmt.Errorf("the received snapshot at %d: %w", s.meta.Index, err)
	}
	s.incoming = in
	_, err = s.NeedsRestore()
	return err
}

// NeedsRestore reports whether the newest snapshot has to be restored before
// the node can go on: the process ended between its receipt and its Restore.
// Otherwise state.db holds at least the newest snapshot. Error: ErrBehind.
func (s *SnapshotStore) NeedsRestore() (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	durable := uint64(s.db.Durable())
	if s.meta == nil || s.meta.DataIndex <= durable {
		return false, nil
	}
	if in := s.incoming; in == nil || in.gone.Load() || in.state.Applied < s.meta.DataIndex {
		return false, fmt.Errorf("state at %d, snapshot at %d: %w", durable, s.meta.DataIndex, ErrBehind)
	}
	return true, nil
}

// Newest returns the index and the term of the newest snapshot, and the applied index
// that its data had at least. All are zero if there is none.
func (s *SnapshotStore) Newest() (index, term, data uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.meta == nil {
		return 0, 0, 0
	}
	return s.meta.Index, s.meta.Term, s.meta.DataIndex
}

// ReceivedData is the newest applied index that came with a snapshot of another node or a backup, as far as the newest
// snapshot says.
func (s *SnapshotStore) ReceivedData() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.meta.received()
}

// RefuseLate sets who knows, of a received snapshot, that the node's log has gone on from
// its last entry, and in a way that must not be undone. Call it before Raft starts.
//
// Raft takes the index, the term and the members of a snapshot over without a look at
// what it has. One that comes late, when its first copy was installed and entries have
// followed, or a local one that an install has overtaken, takes a node back to members
// and to a last snapshot of before. With an error it does not begin (ErrLate).
//
// newest says that the node's newest snapshot is the same one: then the log need not hold
// its last entry. A second copy is not late for that alone: when the answer to the first
// one is lost, the leader sends it again, and would for ever.
func (s *SnapshotStore) RefuseLate(late func(index, term uint64, newest bool) bool) { s.late = late }

// Received has f told what became of each snapshot that was received: nil, or why it was not. ErrNoRoom: the disk had none. Call it
// before Raft starts.
func (s *SnapshotStore) Received(f func(err error)) { s.received = f }

// Index of the newest snapshot, or 0. It never waits.
func (s *SnapshotStore) Index() uint64 { return s.newest.Load() }

// Written is the index of the newest snapshot that is on disk, or 0. It is below Index
// after Advance, until there is another snapshot. It never waits.
func (s *SnapshotStore) Written() uint64 { return s.written.Load() }

// Advance makes what this process has loaded from state.db the newest snapshot, as it is one
// of state.db: index and term are those of its newest entry, configuration is the newest one up
// to there. Call it before Raft starts.
//
// Nothing is written. That state.db is durable up to there is not known: the process before
// may have ended between a write and its sync. So the log must not be cut by this snapshot,
// and is not: Raft cuts it behind one that it has taken or installed, which is written.
// After a power loss the next start finds the snapshot that was written, the log behind it,
// and state.db as it is then. A received one that is above that one and below this one is not late.
func (s *SnapshotStore) Advance(index, term uint64, configuration raft.Configuration, configurationIndex uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	received := s.meta.received()
	s.meta = newMeta(index, term, configuration, configurationIndex)
	s.meta.DataIndex, s.meta.Received = index, &received
	s.newest.Store(index)
}

// Create begins a snapshot. If nothing is written to the sink before Close, it
// is a local one.
func (s *SnapshotStore) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration,
	configurationIndex uint64, _ raft.Transport,
) (raft.SnapshotSink, error) {
	if version != 1 {
		return nil, fmt.Errorf("create snapshot: unsupported version %d", version)
	}
	return &sink{store: s, meta: newMeta(index, term, configuration, configurationIndex)}, nil
}

// List returns the newest snapshot, if there is one.
func (s *SnapshotStore) List() ([]*raft.SnapshotMeta, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.meta == nil {
		return nil, nil
	}
	return []*raft.SnapshotMeta{s.meta.raft()}, nil
}

// Open returns a snapshot's data, with its exact size in the meta.
func (s *SnapshotStore) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	m, rc, err := s.open(id)
	if err != nil {
		return nil, nil, fmt.Errorf("open snapshot %s: %w", id, err)
	}
	return m, rc, nil
}

func (s *SnapshotStore) open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.meta
	if m == nil || m.id() != id {
		return nil, nil, ErrNoSnapshot
	}
	out := m.raft()
	if in := s.incoming; in != nil && !in.gone.Load() && in.state.Applied >= m.DataIndex {
		out.Size = in.size
		return out, &incomingReader{db: s.db, in: in}, nil
	}
	data, err := s.db.openStream()
	if err != nil {
		return nil, nil, err
	}
	if data.state.Applied < m.DataIndex {
		return nil, nil, errors.Join(
			fmt.Errorf("state at %d, snapshot at %d: %w", data.state.Applied, m.DataIndex, ErrBehind), data.Close())
	}
	out.Size = data.size
	if s.hold != nil {
		// Under the lock: the next snapshot is not finished yet, and what it cuts is
		// held. (A received one, above, is opened to be restored here.)
		data.closed = s.hold(m.Index)
	}
	return out, data, nil
}

// finish makes a snapshot the newest. in is its data, or nil for state.db.
func (s *SnapshotStore) finish(m *meta, in *Incoming) error {
	return s.db.o.Commit(metaFile, func() error { return s.finishNow(m, in) })
}

func (s *SnapshotStore) finishNow(m *meta, in *Incoming) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	// One that is in memory only takes nobody back: the log has all behind the one on disk. And a
	// leader that does not know how far this node is, and has cut its log, sends what it has: to refuse
	// that until it has a newer one would keep this node out for as long.
	if at := s.written.Load(); at > m.Index {
		return fmt.Errorf("index %d, and the newest is at %d: %w", m.Index, at, ErrLate)
	}
	newest := s.meta != nil && s.meta.Index == m.Index && s.meta.Term == m.Term
	if in != nil && s.late != nil && s.late(m.Index, m.Term, newest) {
		return fmt.Errorf("index %d, and the log has gone on from there: %w", m.Index, ErrLate)
	}
	// Of a local snapshot the index may exceed it: the state machine does not see
	// entries without a command. FSM.Snapshot has synced everything below. A received
	// one that is older than the state will be dropped by Restore.
	received := s.meta.received()
	m.DataIndex, m.Received = uint64(s.db.Durable()), &received
	if in != nil {
		m.DataIndex, received = max(m.DataIndex, in.state.Applied), max(received, in.state.Applied)
	}
	if err := s.files.write(m); err != nil {
		return err
	}
	s.meta = m
	s.newest.Store(m.Index)
	s.written.Store(m.Index)
	failpoint("meta.written")
	if in != nil {
		if s.incoming != nil {
			s.incoming.overwritten()
		}
		s.incoming = in
	}
	return nil
}

// LocalSnapshot implements raft.FSMSnapshot for a state that is durable in
// state.db: FSM.Snapshot has called DB.Sync.
type LocalSnapshot struct{}

var _ raft.FSMSnapshot = LocalSnapshot{}

// Persist writes nothing: raft closes a sink that is not cancelled.
func (LocalSnapshot) Persist(sink raft.SnapshotSink) error { return sink.Close() }

// Release does nothing.
func (LocalSnapshot) Release() {}

// sink is for one goroutine.
type sink struct {
	store  *SnapshotStore
	meta   *meta
	closed bool
	err    error

	// in takes a snapshot that is received; nil before its first byte.
	in *receiver
}

// ID implements raft.SnapshotSink.
func (s *sink) ID() string { return s.meta.id() }

// begin has what is received taken. Close or Cancel ends it.
func (s *sink) begin() (err error) {
	if s.closed {
		return ErrClosed
	}
	if s.in == nil {
		if s.in, err = newReceiver(s.store.dir); err != nil {
			s.tell(err)
		}
	}
	return err
}

// tell says what became of what was received.
func (s *sink) tell(err error) {
	if wal.NoRoom(err) {
		err = fmt.Errorf("%w: %w", ErrNoRoom, err)
	}
	if s.store.received != nil {
		s.store.received(err)
	}
}

// Write takes a part of a snapshot stream.
func (s *sink) Write(p []byte) (int, error) {
	if err := s.begin(); err != nil {
		return 0, err
	}
	return s.in.Write(p)
}

// ReadFrom takes a snapshot stream. Raft's io.Copy finds it, and so does without a copy.
func (s *sink) ReadFrom(r io.Reader) (int64, error) {
	if err := s.begin(); err != nil {
		return 0, err
	}
	return s.in.ReadFrom(r)
}

// Close makes the snapshot durable, all of it or nothing. Further calls return
// the same.
func (s *sink) Close() error {
	if s.closed {
		return s.err
	}
	s.closed = true
	err := s.close()
	if s.in != nil {
		s.tell(err)
	}
	if err != nil {
		s.err = fmt.Errorf("finish snapshot %s: %w", s.ID(), err)
	}
	return s.err
}

func (s *sink) close() error {
	if s.in == nil {
		return s.store.finish(s.meta, nil)
	}
	s.in.least = s.store.awaited()
	in, err := s.in.finish(s.store.db.o.Commit)
	if err != nil {
		return fmt.Errorf("receive snapshot: %w", err)
	}
	failpoint("install.received")
	err = s.store.finish(s.meta, in)
	if err == nil || s.store.takesOver(in) {
		return err
	}
	return errors.Join(err, s.store.db.discard(in))
}

// awaited is the applied index of the newest snapshot if only its received file has that: its Restore found no room for
// what it needs first. 0: state.db has it.
func (s *SnapshotStore) awaited() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.meta == nil || s.incoming == nil || s.incoming.gone.Load() || s.meta.DataIndex <= uint64(s.db.Durable()) {
		return 0
	}
	return s.meta.DataIndex
}

// takesOver has a received state that is not to be the newest snapshot stand in for that one, whose file it has
// overwritten, and reports whether that one is still awaited.
func (s *SnapshotStore) takesOver(in *Incoming) bool {
	if s.awaited() == 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.incoming.overwritten()
	s.incoming = in
	return true
}

// Cancel drops a snapshot that is not closed.
func (s *sink) Cancel() error {
	if s.closed {
		return nil
	}
	s.closed, s.err = true, ErrClosed
	if s.in != nil {
		s.tell(s.in.abort(ErrClosed)) // which returns that, or what has failed before
	}
	return nil
}
