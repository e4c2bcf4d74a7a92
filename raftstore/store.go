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

	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/disk"
	"github.com/quorate/quorate/raftstore/exchange"
	"github.com/quorate/quorate/raftstore/failover"
	"github.com/quorate/quorate/raftstore/local"
	"github.com/quorate/quorate/raftstore/mvcc"
	"github.com/quorate/quorate/raftstore/readindex"
	"github.com/quorate/quorate/raftstore/replication"
	"github.com/quorate/quorate/raftstore/watch"
)

// Store is one node's part of the replicated store. All methods are safe for
// concurrent use.
type Store struct {
	cfg  Config
	node *local.Node
	db   *disk.DB
	log  *disk.Log
	// snapshots are raft's; there is only the newest.
	snapshots *disk.SnapshotStore
	fsm       *fsm
	hub       *watch.Hub
	notes     *notes

	members
	waiters    waiters
	leading    leading
	comparison *comparison
	failover   *failover.Failover
	reads      *readindex.Reader
	features   features
	proposals  proposals
	disks      *diskSpace

	streams   *exchange.Streams // to other nodes
	server    *exchange.Server  // of those to this one
	transport *replication.Transport

	observers observers
	progress  progress
	suffrage  atomic.Pointer[suffrage]
	startedAt time.Time
	// bootstrapped is the cluster id that Bootstrap was given.
	bootstrapped atomic.Pointer[proto.ClusterID]
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
			s.node.Close() // also if Fatal ends this goroutine: what waits for this store must not wait for good
		}
	}()
	if err := s.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("open store %s: %w", cfg.Dir, err), s.Close())
	}
	opened = true
	return s, nil
}

func newStore(cfg Config) *Store {
	s := &Store{cfg: cfg, node: local.New(cfg.Node, cfg.Peers, cfg.Logger), startedAt: time.Now()}
	s.disks = newDiskSpace(&s.cfg, s.node)
	s.notes = &notes{
		dir: cfg.Dir, logger: cfg.Logger, often: s.disks.often, cluster: func() string { return string(s.Cluster()) },
		readOnly: func() { s.disks.readOnly.Store(true) },
	}
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
		Fatal: cfg.Fatal, Observe: s.observers.backendCommit, Commit: cfg.TestHooks.Commit,
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
		HoldBytes: cfg.Limits.SnapshotLogBytes, GaveUp: s.disks.gaveUp, Spares: cfg.spareSegments(), Leads: s.node.IsRaftsLeader,
		Full: s.disks.refuse, Ends: s.node.Context().Done(),
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
	s.snapshots.Received(func(err error) { s.disks.snapshot.received(time.Now(), err) })
	if err := s.mendLog(state.Mark()); err != nil {
		return err
	}
	if err := s.beginAtState(state.Mark()); err != nil {
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

	if err := s.makeParts(); err != nil {
		return err
	}
	if t, ok := s.cfg.Transport.(interface {
		Admit(func(any, raft.ServerID, raft.ServerAddress) error)
	}); ok {
		t.Admit(s.admit) // before Raft answers anybody
	}
	r, err := raft.NewRaft(rc, s.fsm, logBehind{s.log, s.snapshots, s.transport.Ahead}, s.log, s.snapshots, s.transport)
	if err != nil {
		return err
	}
	s.node.SetRaft(r)
	s.transport.Start()
	s.comparison.begin(s.transport.Promises)
	for _, task := range []func(){
		s.comparison.run, func() { s.leading.lead(notify) }, s.leading.observe, s.failover.Listen, s.failover.Run, func() { offer(s.node) }, func() { s.observers.measureDelay(s.node.Context()) },
		s.compactor, s.packer, s.reads.Refresh, s.writeSnapshot, s.disks.watch,
	} {
		s.node.Start(task)
	}
	return nil
}

// makeParts makes what Raft is given, and what works beside it. Nothing of it does anything before Raft is there.
func (s *Store) makeParts() error {
	cfg, node := &s.cfg, s.node
	s.members = members{node: node, fsm: s.fsm, election: cfg.Timing.Election}
	s.features = features{node: node, hooks: &cfg.TestHooks, state: s.State, waiters: &s.waiters, noLeader: cfg.Timing.NoLeader}
	var err error
	if s.comparison, err = newComparison(node, s.log, s.snapshots.Index(), s.notes, cfg.Fatal); err != nil {
		return err
	}
	s.streams = exchange.New(node, cfg.Timing.NoLeader)
	s.server = exchange.NewServer(node.Ended())
	s.transport = replication.New(replication.Config{
		Inner: cfg.Transport, Node: node, Log: s.log, Comparison: s.comparison, MayLead: s.disks.mayLead, Applied: s.Applied,
		Applying: func() bool { return s.proposals.applying.Load() > 0 }, Go: s.streams.Go, WriteTime: &s.proposals.writeTime,
		RetryFor: cfg.TestHooks.RetryFor,
	})
	own, _ := cfg.Transport.(local.Deliverer)
	s.failover = failover.New(failover.Config{
		Node: node, Silence: cfg.Timing.Heartbeat / 2, Log: s.log, Snapshots: s.snapshots, Own: own, Header: s.transport.Header,
		MayLead: s.disks.mayLead, Report: s.disks.report, Follow: s.disks.follow,
	})
	s.reads = readindex.New(readindex.Config{
		Node: node, Streams: s.streams, Applied: s.Applied, Unheard: s.failover.Unheard, Compared: s.comparison.Counts,
		NoLeader: cfg.Timing.NoLeader, QuorumIsLost: cfg.QuorumIsLost, Waited: s.observers.readIndexWait, RoundTrip: s.observers.roundTrip,
	})
	s.disks.log, s.disks.db, s.disks.snapshots, s.disks.state = s.log, s.db, s.snapshots, s.State
	s.disks.hurry, s.disks.transfer = s.failover.Hurry, s.TransferLeadership
	p := &s.proposals
	p.cfg, p.node, p.streams, p.transport, p.failover, p.disks = cfg, node, s.streams, s.transport, s.failover, s.disks
	p.features, p.waiters, p.applied = &s.features, &s.waiters, s.Applied
	l := &s.leading
	l.cfg, l.node, l.hub, l.disks, l.failover, l.cluster = cfg, node, s.hub, s.disks, s.failover, s.Cluster
	return nil
}

// admit is asked about each message of Raft from another node.
func (s *Store) admit(req any, id raft.ServerID, addr raft.ServerAddress) error {
	if err := s.comparison.Must(id, addr); err != nil {
		return err
	}
	switch r := req.(type) {
	case *raft.InstallSnapshotRequest:
		return s.disks.admitSnapshot(r.Size)
	case *raft.RequestVoteRequest:
		s.comparison.Promised(id, r.Term, 0, 0) // a candidate has voted for itself
	case *raft.AppendEntriesRequest:
		// What a leader sends may not be on its disk yet (replication.Transport.Ahead); what comes before that is, and what
		// it knows to be committed.
		index := uint64(0)
		if r.PrevLogTerm == r.Term {
			index = r.PrevLogEntry
		}
		s.comparison.Promised(id, r.Term, index, min(r.LeaderCommitIndex, r.PrevLogEntry+uint64(len(r.Entries))))
		s.skipBelow(r)
	}
	return nil
}

// logWrite is told how long each write of the log took.
func (s *Store) logWrite(d time.Duration, _, _ int) {
	s.proposals.writeTime.Observe(d)
	s.observers.logWrite(d)
}

// applied is called by the state machine after each batch.
func (s *Store) applied() {
	if s.node.Ready() {
		s.transport.WakeUp()
	}
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

// Close stops this node's part and waits for everything that it started. It does not give up
// leadership first; see TransferLeadership.
func (s *Store) Close() error {
	s.node.Close()
	s.waiters.close(ErrClosed)
	var errs []error
	if r := s.node.Raft(); r != nil {
		end := r.Shutdown()
		// Raft's goroutines may be in an exchange with a peer, on the main loop even,
		// and a snapshot can take long.
		if t, ok := s.cfg.Transport.(interface{ CloseStreams() }); ok {
			t.CloseStreams()
		}
		errs = append(errs, end.Error())
	}
	close(s.node.Ended())
	s.proposals.batches.close()
	if s.streams != nil {
		s.streams.Close()
	}
	if s.transport != nil {
		s.transport.Close()
	}
	s.node.Wait()
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

// Bootstrap makes this node part of a new cluster of the given voters. All of
// them must be given the same servers and cluster id; the first leader writes the
// id into the state. A node that has state already ignores it.
func (s *Store) Bootstrap(servers []Server, cluster proto.ClusterID) error {
	s.bootstrapped.Store(&cluster)
	var c raft.Configuration
	for _, m := range servers {
		suffrage := raft.Voter
		if !m.Voter {
			suffrage = raft.Nonvoter
		}
		c.Servers = append(c.Servers, raft.Server{ID: raft.ServerID(m.ID), Address: raft.ServerAddress(m.Address), Suffrage: suffrage})
	}
	err := s.node.Raft().BootstrapCluster(c).Error()
	switch {
	case errors.Is(err, raft.ErrCantBootstrap):
		return nil
	case err != nil:
		return fmt.Errorf("bootstrap: %w", err)
	}
	s.failover.Formed() // once in a store's life: after that it has state
	return nil
}

// ReadIndex returns an index with this promise: a node that has applied it has
// applied every write that was acknowledged anywhere before the call. It asks
// the leader, or, on the leader, a majority of the voters. Errors: ErrNoLeader
// (after Timing.NoLeader, or as soon as none can be elected), ErrClosed, the context's.
func (s *Store) ReadIndex(ctx context.Context) (proto.Revision, error) { return s.reads.ReadIndex(ctx) }

// Staleness is how long ago this node last certainly had everything that was
// acknowledged anywhere: an upper bound of how stale its local reads are. It is
// refreshed in the background, more often while it is asked for. Before the
// first time it is readindex.NeverCurrent.
func (s *Store) Staleness() time.Duration { return s.reads.Staleness() }

// Lost are the members that are known here to have lost entries.
func (s *Store) Lost() []*proto.LostEntries { return s.comparison.lostMembers() }

// Acknowledged is the index up to which this node remembers, also behind a restart, that another one has acknowledged
// entries, some of which may not be committed.
func (s *Store) Acknowledged(id proto.NodeID) uint64 { return s.comparison.keptOf(id) }

// Compared reports whether this node has compared with another one what it has acknowledged to it, and lost nothing
// of that. Before, it does not answer that node.
func (s *Store) Compared(id proto.NodeID) bool { return s.comparison.compared(raft.ServerID(id)) }

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
