package raftstore

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/disk"
	"github.com/quorate/quorate/raftstore/mvcc"
	"github.com/quorate/quorate/raftstore/watch"
)

// ErrInstallLoop is fatal: the leader sends the same snapshot again and again, and
// nothing in this node's log explains why.
var ErrInstallLoop = errors.New("the same snapshot was installed over and over")

// ErrDiverged is fatal: this node's state holds an entry that is not the
// cluster's. Either may be right: see disk.KeepDirectory.
var ErrDiverged = errors.New("this node's state is not a state of the cluster: " + disk.KeepDirectory)

// maxInstalls is how many snapshots may be installed without any log entry in
// between and without a gain: a slow follower that always gets newer ones is not
// in a loop. What is known to cause a loop is met before (see dropDead); this is for
// what is not known.
const maxInstalls = 3

// fsm adapts the state machine to raft. All its methods but the statistics are
// called by raft's FSM goroutine only.
type fsm struct {
	db      *disk.DB
	hub     *watch.Hub
	waiters *waiters
	hashes  hashes
	// fatal ends the process; it does not return in production.
	fatal func(error)
	// applied is told after each batch. It must not wait.
	applied func()
	// trace, if set, is told of each entry.
	trace func(*raft.Log, mvcc.Result)
	// supports is the feature version of this node.
	supports uint32
	// dropDead is called when a snapshot has been restored, while Raft waits: it makes
	// the log agree with the snapshot. An error is fatal. Nil: there is no log.
	dropDead func(mvcc.Mark) error

	// publishing is held while a batch is shown and given to the disk: see sync.
	publishing sync.Mutex

	grown    []string // the tables of a batch: ApplyBatch's, kept for the next one
	idle     int      // installs since the last applied entry that brought nothing new
	restored atomic.Uint64
	// fromLog is the index up to which the state machine has applied what this node's
	// log holds. The state's own mark is higher when a snapshot has brought more.
	fromLog atomic.Uint64

	// configuration is the index of the newest committed configuration, servers its
	// servers; nil before there is any.
	configuration atomic.Uint64
	servers       atomic.Pointer[raft.Configuration]
	// snapshotConfiguration is that of the newest snapshot.
	snapshotConfiguration func() (uint64, raft.Configuration)
}

var _ raft.BatchingFSM = (*fsm)(nil)

// follow ties the state machine to the log and the snapshots that it starts with.
func (f *fsm) follow(log *disk.Log, snapshots *disk.SnapshotStore, state mvcc.Mark) {
	f.dropDead = func(m mvcc.Mark) error { return dropDead(log, snapshots, m) }
	f.noteApplied(log, state)
	f.snapshotConfiguration = func() (uint64, raft.Configuration) { return newestConfiguration(snapshots) }
	f.committed(newestConfiguration(snapshots))
}

func (f *fsm) Apply(l *raft.Log) any { return f.ApplyBatch([]*raft.Log{l})[0] }

// ApplyBatch applies committed entries in order and then, once for all of them,
// shows the result to readers, hands it to the disk and wakes who waits. It
// returns an mvcc.Result for each command that was applied now.
func (f *fsm) ApplyBatch(logs []*raft.Log) []any {
	came := watch.Now()
	state := f.hub.State()
	results := make([]any, len(logs))
	batch := disk.Batch{Added: make([]disk.Added, 0, len(logs))}
	at := state.Applied() // what Publish has shown: nothing of this batch yet
	f.fromLog.Store(logs[len(logs)-1].Index)
	for i, l := range logs {
		if l.Type == raft.LogConfiguration {
			f.committed(l.Index, raft.DecodeConfiguration(l.Data))
		}
		if proto.Revision(l.Index) <= at {
			if err := sameEntry(l, state.Mark()); err != nil {
				f.fatal(err)
				return results
			}
			continue
		}
		at = proto.Revision(l.Index)
		if l.Type != raft.LogCommand {
			state.Advance(proto.RaftIndex(l.Index), proto.Term(l.Term))
			if f.trace != nil {
				f.trace(l, mvcc.Result{})
			}
			continue
		}
		r, err := state.Apply(proto.RaftIndex(l.Index), proto.Term(l.Term), l.Data)
		if err != nil {
			f.fatal(fmt.Errorf("state machine: %w", err))
			return results
		}
		if !f.speaks(l, state) {
			return results
		}
		results[i] = r
		if f.trace != nil {
			f.trace(l, r)
		}
		f.hashes.add(proto.Revision(l.Index), r.Hash)
		if r.Version != nil {
			batch.Added = append(batch.Added, disk.Added{Table: r.Table.Name(), Version: r.Version})
		}
		batch.Removed = append(batch.Removed, r.Removed...)
	}
	if at != state.Applied() {
		f.publish(state, at, batch, came)
	}
	return results
}

// sameEntry refuses an entry that state.db has not applied though it was ahead of the
// log's replay, or of the snapshot's index: another one at the index of the newest means
// that this directory is an old copy, or that a vote was forgotten.
func sameEntry(l *raft.Log, m mvcc.Mark) error {
	if proto.Revision(l.Index) == m.Applied && proto.Term(l.Term) != m.Term {
		return fmt.Errorf("entry %d is of term %d, this node has applied one of term %d: %w", l.Index, l.Term, m.Term, ErrDiverged)
	}
	return nil
}

// publish shows a batch, which ends at a revision and was handed to the state machine when it came, to readers,
// waiters, watchers and the disk, in this order.
func (f *fsm) publish(state *mvcc.State, at proto.Revision, batch disk.Batch, came watch.Moment) {
	f.publishing.Lock()
	defer f.publishing.Unlock()
	f.idle = 0
	state.Publish()
	if mvcc.Invariants() {
		if err := state.CheckSome(); err != nil {
			f.fatal(fmt.Errorf("state machine at %d: %w", at, err))
		}
	}
	f.waiters.advance(at)
	f.grown = f.grown[:0]
	for i := range batch.Added {
		f.grown = append(f.grown, batch.Added[i].Table)
	}
	f.hub.Published(at, f.grown, came)
	f.applied()
	batch.State = state.StateRecord()
	f.db.Record(batch)
}

// sync returns when everything that was shown before the call is in state.db, and durable. The disk is given a batch last, when its
// writers may have their answers already.
func (f *fsm) sync() error {
	f.publishing.Lock()
	f.publishing.Unlock() //lint:ignore SA2001 what was shown has been given to the disk then
	return f.db.Sync()
}

// committed notes a configuration that is committed, if it is newer than what is known.
func (f *fsm) committed(index uint64, c raft.Configuration) {
	if index > f.configuration.Load() {
		f.servers.Store(&c)
		f.configuration.Store(index)
	}
}

// Snapshot makes everything applied so far durable in state.db, which is the
// snapshot's data. The log is only cut behind what is on disk.
func (f *fsm) Snapshot() (raft.FSMSnapshot, error) {
	if err := f.db.Sync(); err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	return disk.LocalSnapshot{}, nil
}

// Restore replaces the state by a snapshot that has been received.
func (f *fsm) Restore(rc io.ReadCloser) error {
	// A loop turns many times between one snapshot and the leader's next one.
	if f.idle >= maxInstalls {
		f.fatal(ErrInstallLoop)
	}
	before := f.hub.State().Applied()
	state, err := f.db.Restore(rc)
	if errors.Is(err, disk.ErrNoRoom) {
		// The snapshot is older than the state, which goes on; the leader sends it again, or entries.
		return err
	}
	if err != nil {
		// raft would go on with the old state.
		f.fatal(fmt.Errorf("restore a snapshot: %w", err))
		return err
	}
	if err := checkFeature(state.Mark().Feature, f.supports); err != nil {
		f.fatal(fmt.Errorf("restore a snapshot: %w", err))
		return err
	}
	f.restored.Add(1)
	// The state is durable. Raft keeps the log as it is, whatever it holds.
	if f.dropDead != nil {
		if err := f.dropDead(state.Mark()); err != nil {
			f.fatal(fmt.Errorf("restore a snapshot: %w", err))
			return err
		}
	}
	f.committed(f.snapshotConfiguration())
	f.hashes.reset()
	if f.idle++; state.Applied() > before {
		f.idle = 0
	}
	f.hub.Replace(state)
	f.waiters.advance(state.Applied())
	return nil
}

// hashes keeps the rolling state hash at some recent indexes, the same ones on
// every node, so that nodes can be compared: close together for a cluster that is at
// rest, and far apart for one that writes so much that the close ones of two nodes,
// asked at the same time, do not meet.
type hashes struct {
	mu          sync.Mutex
	close, wide hashRing
}

// Distances of the indexes whose hash is kept: 2,000 entries back, and 500,000.
const (
	hashEvery     = 16
	hashEveryWide = 4096
)

func (h *hashes) add(at proto.Revision, hash uint64) {
	if at%hashEvery != 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.close.add(at, hash)
	if at%hashEveryWide == 0 {
		h.wide.add(at, hash)
	}
}

func (h *hashes) reset() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.close.n, h.wide.n = 0, 0
}

// recent returns the newest hashes, each kind oldest first.
func (h *hashes) recent() []*proto.StateHash {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.close.appendTo(h.wide.appendTo(nil))
}

// hashRing is the newest hashes at some distance.
type hashRing struct {
	ring [128]proto.StateHash
	n    int
}

func (h *hashRing) add(at proto.Revision, hash uint64) {
	e := &h.ring[h.n%len(h.ring)]
	e.Applied, e.Hash = uint64(at), hash
	h.n++
}

func (h *hashRing) appendTo(out []*proto.StateHash) []*proto.StateHash {
	for i := max(0, h.n-len(h.ring)); i < h.n; i++ {
		e := &h.ring[i%len(h.ring)]
		out = append(out, &proto.StateHash{Applied: e.Applied, Hash: e.Hash})
	}
	return out
}

// currentHash adds the state's present mark.
func currentHash(state *mvcc.State) *proto.StateHash {
	m := state.Mark()
	return &proto.StateHash{Applied: uint64(m.Applied), Hash: m.Hash}
}
