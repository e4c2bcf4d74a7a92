package raftstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"github.com/quorate/quorate/internal/loglimit"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/disk"
	"github.com/quorate/quorate/raftstore/mvcc"
	"github.com/quorate/quorate/raftstore/watch"
)

// Store is one node's part of the replicated store. All methods are safe for
// concurrent use.
type Store struct {
	cfg  Config
	raft *raft.Raft
	// running is raft, for the log, which is asked while that is made.
	running atomic.Pointer[raft.Raft]
	db      *disk.DB
	log     *disk.Log
	// snapshots are raft's; there is only the newest.
	snapshots *disk.SnapshotStore
	fsm       *fsm
	hub       *watch.Hub

	waiters waiters
	leader  leadership
	streams *peerStreams
	silence *silence
	disks   *diskSpace
	// often limits what this node would say at every try.
	often        *loglimit.Limiter
	snapshotRoom snapshotRoom
	askers       askers
	// elections is of Store.failover.
	elections elections
	candidacy candidacy
	// transport is what raft was given: cfg.Transport, and the nudge.
	transport *raftTransport
	fresh     freshness
	inFlight  atomic.Int64
	// applying counts the proposals that this leader has given to raft and that
	// are not applied yet.
	applying   atomic.Int64
	batches    batches
	writeTime  writeTime
	stats      Stats
	progress   progress
	suffrage   atomic.Pointer[suffrage]
	comparison comparison
	startedAt  time.Time
	// bootstrapped is the cluster id that Bootstrap was given.
	bootstrapped atomic.Pointer[proto.ClusterID]
	// formed has a value when this node has written the first configuration of a cluster.
	formed chan struct{}

	ctx    context.Context // ends when Close begins
	cancel context.CancelFunc
	ended  chan struct{} // closed when Raft has ended
	tasks  sync.WaitGroup
}

// Open starts this node's part: it loads the state, then the log is replayed as
// far as a leader says that it is committed. A node without any state waits
// until Bootstrap is called or a leader sends it entries.
func Open(cfg Config) (*Store, error) {
	if err := cfg.defaults(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	if err := disk.WriteInPlace(cfg.Dir); err != nil {
		cfg.Logger.Warn("on a full disk this node may have to wait for room", "err", err)
	}
	s := newStore(cfg)
	opened := false
	defer func() {
		if !opened {
			s.cancel() // also if Fatal ends this goroutine: what waits for this store must not wait for good
		}
	}()
	if err := s.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("open store %s: %w", cfg.Dir, err), s.Close())
	}
	opened = true
	return s, nil
}

func newStore(cfg Config) *Store {
	s := &Store{cfg: cfg, startedAt: time.Now(), formed: make(chan struct{}, 1), ended: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.disks = newDiskSpace(cfg.Limits.TrailingLogs)
	s.often = loglimit.New(repeatedAfter)
	return s
}

func (s *Store) open() error {
	if err := s.openFiles(); err != nil {
		return err
	}
	return s.startRaft()
}

// openFiles does what has to be done with the directory before Raft starts.
func (s *Store) openFiles() (err error) {
	cfg := &s.cfg
	if s.db, err = disk.Open(cfg.Dir, disk.Options{
		Fatal: cfg.Fatal, Observe: s.stats.backendCommit, Commit: cfg.TestHooks.Commit,
		Reserve: cmp.Or(cfg.Limits.ReserveBytes/2, -1),
	}); err != nil {
		return err
	}
	s.fsm = &fsm{
		db: s.db, waiters: &s.waiters, fatal: cfg.Fatal, applied: s.applied,
		trace: cfg.TestHooks.Applied, supports: cfg.TestHooks.Supports,
	}
	// The log is verified while the state is loaded: both wait for memory and the disk more than they compute.
	var (
		state   *mvcc.State
		loadErr error
		loading sync.WaitGroup
	)
	loading.Go(func() { state, loadErr = s.db.Load() })
	s.log, err = disk.OpenLog(cfg.Dir, disk.LogOptions{
		Fatal: cfg.Fatal, Watchdog: cfg.Timing.HungDisk, Observe: s.logWrite, Commit: cfg.TestHooks.Commit,
		Applied: s.fsm.fromLog.Load, Snapshot: s.snapshotWritten, SegmentBytes: cfg.TestHooks.SegmentBytes,
		HoldBytes: cfg.Limits.SnapshotLogBytes, GaveUp: s.gaveUp, Spares: cfg.spareSegments(), Leads: s.ledByRaft,
		Full: s.disks.refuse, Ends: s.ctx.Done(),
	})
	loading.Wait()
	if loadErr != nil {
		return errors.Join(loadErr, err)
	}
	// Before other nodes reach this one: what it would apply and vote for may be more
	// than it understands.
	if err := checkFeature(state.Mark().Feature, cfg.TestHooks.Supports); err != nil {
		return err
	}
	if err != nil {
		return err
	}
	s.hub = watch.New(state)
	s.fsm.hub = s.hub
	if s.snapshots, err = disk.NewSnapshotStore(s.db, cfg.Dir); err != nil {
		return err
	}
	s.snapshots.HoldLog(s.log)
	s.snapshots.RefuseLate(s.wouldForgetMembers)
	s.snapshots.Received(func(err error) { s.snapshotRoom.received(time.Now(), err) })
	if err := s.mendLog(state.Mark()); err != nil {
		return err
	}
	if err := s.beginAtState(state.Mark()); err != nil {
		return err
	}
	if err := s.beginComparison(); err != nil {
		return err
	}
	s.fsm.follow(s.log, s.snapshots, state.Mark())
	return nil
}

// mendLog refuses a log that does not belong to the state, and takes out of it what an
// interrupted start or a snapshot has left there.
func (s *Store) mendLog(state mvcc.Mark) error {
	if err := checkLog(s.log, s.snapshots, state, s.cfg.Cluster()); err != nil {
		return err
	}
	if err := undoHalfBootstrap(s.log, s.snapshots, s.cfg.Cluster()); err != nil {
		return err
	}
	return s.dropDeadAtStart(s.snapshots, state)
}

// startRaft starts Raft, and what this store does besides.
func (s *Store) startRaft() error {
	notify := make(chan bool, 16)
	rc, err := s.cfg.raftConfig(notify)
	if err != nil {
		return err
	}
	// state.db is the newest snapshot's data, unless the process ended between
	// the receipt of a snapshot and its Restore.
	restore, err := s.snapshots.NeedsRestore()
	if err != nil {
		return err
	}
	rc.NoSnapshotRestoreOnStart = !restore

	s.leader.changed = make(chan struct{})
	s.transport = newRaftTransport(s.cfg.Transport)
	s.streams = newPeerStreams(s)
	s.comparison.ready = make(chan struct{})
	if t, ok := s.cfg.Transport.(interface {
		Admit(func(any, raft.ServerID, raft.ServerAddress) error)
	}); ok {
		t.Admit(s.admit) // before Raft answers anybody
	}
	if s.raft, err = raft.NewRaft(rc, s.fsm, logBehind{s.log, s.snapshots, s.transport.ahead}, s.log, s.snapshots, s.transport); err != nil {
		return err
	}
	s.running.Store(s.raft)
	s.silence = newSilence(s.cfg.Timing.Heartbeat/2, s.raft.LastContact)
	s.transport.start(s)
	close(s.comparison.ready)
	s.start(s.compare)
	s.start(func() { s.lead(notify) })
	s.start(s.observe)
	s.start(s.listen)
	s.start(s.failover)
	s.start(s.offer)
	s.start(s.measureDelay)
	s.start(s.compactor)
	s.start(s.packer)
	s.start(s.refresher)
	s.start(s.writeSnapshot)
	s.start(s.watchDisk)
	return nil
}

// gaveUp is called when the log is not kept any longer for a node that is being sent a
// snapshot.
func (s *Store) gaveUp(index uint64, bytes int64) {
	s.often.Warn(s.cfg.Logger, "the log has grown too much to be kept for a node that was sent a snapshot: it may need another one",
		"snapshot", index, "bytes", bytes, "limit", s.cfg.Limits.SnapshotLogBytes)
}

// ledByRaft reports whether this node leads, for the log.
func (s *Store) ledByRaft() bool {
	r := s.running.Load()
	return r != nil && r.State() == raft.Leader
}

// logWrite is told how long each write of the log took.
func (s *Store) logWrite(d time.Duration, entries, bytes int) {
	s.writeTime.observe(d)
	s.stats.logWrite(d, entries, bytes)
}

// applied is called by the state machine after each batch.
func (s *Store) applied() {
	if s.leader.ready() {
		s.transport.wakeUp()
	}
}

// start runs a task that ends with s.ctx; Close waits for it.
func (s *Store) start(task func()) {
	s.tasks.Add(1)
	go func() {
		defer s.tasks.Done()
		task()
	}()
}

// newestConfiguration is that of the newest snapshot.
func newestConfiguration(snapshots raft.SnapshotStore) (uint64, raft.Configuration) {
	if list, err := snapshots.List(); err == nil && len(list) > 0 {
		return list[0].ConfigurationIndex, list[0].Configuration
	}
	return 0, raft.Configuration{}
}

// snapshotIndex is the index of the newest snapshot, or 0.
func (s *Store) snapshotIndex() uint64 {
	if s.snapshots == nil {
		return 0 // the store is being opened
	}
	return s.snapshots.Index()
}

// snapshotWritten is the index of the newest snapshot that is on disk, or 0: up to there the log may lose entries.
func (s *Store) snapshotWritten() uint64 {
	if s.snapshots == nil {
		return 0 // the store is being opened
	}
	return s.snapshots.Written()
}

// awaitFuture waits for a future of raft, but not longer than raft lives: when it
// shuts down it drops the committed batches that wait for the state machine,
// and never answers their futures.
func (s *Store) awaitFuture(f raft.Future) error {
	done := make(chan error, 1)
	go func() { done <- f.Error() }()
	select {
	case err := <-done:
		return err
	case <-s.ended:
		return raft.ErrRaftShutdown
	}
}

// Close stops this node's part and waits for everything that it started. It does not give up
// leadership first; see TransferLeadership.
func (s *Store) Close() error {
	s.cancel()
	s.waiters.close(ErrClosed)
	var errs []error
	if s.raft != nil {
		end := s.raft.Shutdown()
		// Raft's goroutines may be in an exchange with a peer, on the main loop even,
		// and a snapshot can take long.
		if t, ok := s.cfg.Transport.(interface{ CloseStreams() }); ok {
			t.CloseStreams()
		}
		errs = append(errs, end.Error())
	}
	close(s.ended)
	s.batches.close()
	if s.streams != nil {
		s.streams.close()
	}
	if s.transport != nil {
		s.transport.close()
	}
	s.tasks.Wait()
	if s.log != nil {
		errs = append(errs, s.log.Close())
	}
	if s.db != nil {
		errs = append(errs, s.db.Close())
	}
	if s.hub != nil {
		s.hub.Close()
	}
	return errors.Join(errs...)
}

// State is the local state. A snapshot may replace it as a whole: take it once
// per read.
func (s *Store) State() *mvcc.State { return s.hub.State() }

// Applied is the newest revision that reads of this node see.
func (s *Store) Applied() proto.Revision { return s.hub.State().Applied() }

// Watch returns a watcher of what concerns an interest in a table, behind revision
// after. It does not return other changes and is not woken by them. The table need not
// exist. Errors: mvcc.ErrCompacted.
func (s *Store) Watch(table string, after proto.Revision, interest mvcc.Interest) (*watch.Watcher, error) {
	return s.hub.Watch(table, after, interest)
}

// WatchesBehind reports whether watchers have not been told of everything that was applied,
// and since when the oldest of that waits.
func (s *Store) WatchesBehind() (since watch.Moment, behind bool) { return s.hub.Behind() }

// Published returns a channel that is sent to after entries were applied, whatever
// they changed, and a function that ends it. Capacity one: a wake-up may stand
// for many entries. Who follows all tables reads their histories after it.
func (s *Store) Published() (<-chan struct{}, func()) { return s.hub.Listen() }

// WaitApplied returns when this node has applied index r. It returns the
// context's error or ErrClosed.
func (s *Store) WaitApplied(ctx context.Context, r proto.Revision) error {
	return s.waiters.wait(ctx, r, s.Applied)
}

// NodeName of this node.
func (s *Store) NodeName() string { return s.cfg.Name }

// Cluster is the id of the cluster, or "" before there is one.
func (s *Store) Cluster() proto.ClusterID {
	if id := s.hub.State().Mark().Cluster; id != "" {
		return id
	}
	if id := s.bootstrapped.Load(); id != nil {
		return *id
	}
	return s.cfg.Cluster()
}

// SaveSnapshot writes a backup of everything applied on this node to w. about goes
// into it, for people; nil is nothing.
func (s *Store) SaveSnapshot(w io.Writer, about *proto.Backup) (*proto.StateRecord, error) {
	if err := s.fsm.sync(); err != nil {
		return nil, fmt.Errorf("save snapshot: %w", err)
	}
	rec, err := s.db.WriteBackup(w, about)
	if err != nil {
		return nil, fmt.Errorf("save snapshot: %w", err)
	}
	return rec, nil
}
