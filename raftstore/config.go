package raftstore

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/hashicorp/raft"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/disk"
	"github.com/quorate/quorate/raftstore/local"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// Config is what a Store needs to know. Zero durations and sizes take defaults.
type Config struct {
	// Dir holds state.db, raft.db, raft-log and the snapshots; made if absent.
	Dir  string
	Node proto.NodeID
	// Name is the node's name for people.
	Name string
	// Transport carries Raft. It must not have a heartbeat fast path (see DESIGN.md).
	Transport raft.Transport
	// Peers carries everything else between nodes.
	Peers Peers
	// Cluster is the id that this node remembers of its cluster, or "". It counts
	// as long as the state has none: between Bootstrap and the first leader's
	// entry. It must not block.
	Cluster func() proto.ClusterID
	// NameOf is the name of the node with an id or a peer address, for log lines; what it is
	// given, if it knows none. Default: that.
	NameOf func(idOrAddress string) string
	// QuorumIsLost says that there is no leader, and no majority to elect one: requests
	// do not wait for one then. It must not block. Default: never.
	QuorumIsLost func() bool
	// Fatal ends the process: the log, the disk or the state machine can no
	// longer be trusted. It must not return in production.
	Fatal  func(error)
	Logger *slog.Logger

	Timing Timing
	Limits Limits

	// TestHooks are for tests; leave them empty.
	TestHooks TestHooks
}

// TestHooks are where tests look into a store and put faults under it.
type TestHooks struct {
	// Commit makes each durable change; see disk.CommitFunc.
	Commit disk.CommitFunc
	// SegmentBytes is the size of the log's segments; see disk.LogOptions.
	SegmentBytes int
	// Free, if set, says what the file system has room for, in bytes.
	Free func() int64
	// ReadOnly, if set, says whether the file system takes no writes.
	ReadOnly func() bool
	// Applied is told of each entry when it is applied, before readers see it: the
	// entry, and an mvcc.Result unless it carries no command. It must not wait.
	Applied func(entry *raft.Log, result mvcc.Result)
	// RetryFor is for how long a message to a peer that is away holds its entries. Default 30 s.
	RetryFor time.Duration
	// Supports is the feature version of a node of another release. Default
	// mvcc.FeatureVersion.
	Supports uint32
	// Needs is another release's mvcc.Needs.
	Needs func(proto.Kind, proto.Message) uint32
}

// Peers is what the store needs of the peer port.
type Peers = local.Peers

// Timing are the durations of a store.
type Timing struct {
	// Heartbeat, Election (default 2 s) and Lease (as Heartbeat) must exceed the
	// worst stall of a disk: heartbeats wait behind its writes, because the
	// transport has no fast path for them. A leader that does not answer a question which
	// waits for no disk is silent after half of Heartbeat: see package failover.
	Heartbeat, Election, Lease time.Duration
	// NoLeader is how long proposals and reads wait for a leader, and for one that
	// sends no heartbeats any more. Default 1.6 s.
	NoLeader time.Duration
	// History is how long the history is kept. Default 5 min.
	History time.Duration
	// SnapshotInterval, default 30 s.
	SnapshotInterval time.Duration
	// HungDisk is how long a log write may take. Default 10 s.
	HungDisk time.Duration
}

// Limits are the sizes of a store.
type Limits struct {
	// InFlightBytes bounds the proposals that wait on this node. Default 128 MiB.
	InFlightBytes int64
	// HistoryBytes bounds the history window. Default: see Store.HistoryLimit.
	HistoryBytes int64
	// TrailingLogs and SnapshotThreshold count log entries. Defaults 50,000 and 20,000.
	TrailingLogs, SnapshotThreshold uint64
	// SnapshotLogBytes bounds what the log may grow by while it is kept, beyond
	// TrailingLogs, for a node that is being sent a snapshot, and for a while after:
	// with less than is written in that time, a node that needs a snapshot does not
	// catch up under load. Default 1 GiB.
	SnapshotLogBytes int64
	// LogBytes is what the log's files take at most, beside SnapshotLogBytes: as much as the live keys, between 64 MiB and this. Where they
	// are full, fewer entries than TrailingLogs are kept. Default 256 MiB.
	LogBytes int64
	// ReserveBytes are taken on the disk for when it is full. Default 64 MiB, none if it is below 0.
	ReserveBytes int64
	// StorageBytes is what this node would have the live keys take at most: see
	// Store.LimitStorage. Default: as much as fits.
	StorageBytes int64
	// MaxAppendEntries caps entries per group commit. Default 256.
	MaxAppendEntries int
}

func (c *Config) defaults() error {
	if c.Dir == "" || c.Node == "" || c.Transport == nil || c.Peers == nil || c.Fatal == nil {
		return errors.New("raftstore: Dir, Node, Transport, Peers and Fatal are needed")
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Cluster == nil {
		c.Cluster = func() proto.ClusterID { return "" }
	}
	if c.NameOf == nil {
		c.NameOf = func(idOrAddress string) string { return idOrAddress }
	}
	if c.QuorumIsLost == nil {
		c.QuorumIsLost = func() bool { return false }
	}
	if c.TestHooks.Supports == 0 {
		c.TestHooks.Supports = mvcc.FeatureVersion
	}
	if c.TestHooks.Needs == nil {
		c.TestHooks.Needs = mvcc.Needs
	}
	t, l := &c.Timing, &c.Limits
	for _, d := range []struct {
		p *time.Duration
		v time.Duration
	}{
		{&t.Heartbeat, 2 * time.Second}, {&t.Election, 2 * time.Second},
		{&t.NoLeader, 1600 * time.Millisecond}, {&t.History, 5 * time.Minute},
		{&t.SnapshotInterval, 30 * time.Second}, {&t.HungDisk, 10 * time.Second},
	} {
		if *d.p == 0 {
			*d.p = d.v
		}
	}
	if t.Lease == 0 {
		t.Lease = t.Heartbeat
	}
	if l.InFlightBytes == 0 {
		l.InFlightBytes = 128 << 20
	}
	if l.TrailingLogs == 0 {
		l.TrailingLogs = 50_000
	}
	if l.SnapshotThreshold == 0 {
		l.SnapshotThreshold = 20_000
	}
	if l.SnapshotLogBytes == 0 {
		l.SnapshotLogBytes = 1 << 30
	}
	if l.LogBytes == 0 {
		l.LogBytes = 256 << 20
	}
	if l.ReserveBytes == 0 {
		l.ReserveBytes = 64 << 20
	}
	l.ReserveBytes = max(l.ReserveBytes, 0)
	if l.MaxAppendEntries == 0 {
		l.MaxAppendEntries = 256
	}
	return nil
}

// segmentBytes is the size of the log's segments.
func (c *Config) segmentBytes() int {
	return cmp.Or(c.TestHooks.SegmentBytes, disk.DefaultSegmentBytes)
}

// spareSegments is half of the reserve; state.db has the other half.
func (c *Config) spareSegments() int {
	if c.Limits.ReserveBytes == 0 {
		return 0
	}
	return max(2, int(c.Limits.ReserveBytes/2)/c.segmentBytes())
}

// raftConfig is the library's configuration for ours.
func (c *Config) raftConfig(notify chan bool) (*raft.Config, error) {
	r := raft.DefaultConfig()
	r.LocalID = raft.ServerID(c.Node)
	r.HeartbeatTimeout, r.ElectionTimeout, r.LeaderLeaseTimeout = c.Timing.Heartbeat, c.Timing.Election, c.Timing.Lease
	// A buffered apply channel: a batch is given to the main loop by one goroutine (batches), and
	// without the buffer the loop would begin with the first entry of it alone. What is in it
	// when Raft ends it never answers: see endsWith.
	r.BatchApplyCh = true
	r.MaxAppendEntries = c.Limits.MaxAppendEntries
	r.TrailingLogs = c.Limits.TrailingLogs
	r.SnapshotThreshold = c.Limits.SnapshotThreshold
	r.SnapshotInterval = c.Timing.SnapshotInterval
	// A removed node keeps its data and says so; it does not stop its Raft.
	r.ShutdownOnRemove = false
	r.NoLegacyTelemetry = true
	r.NotifyCh = notify
	r.Logger = newRaftLogger(c.Logger, c.NameOf)
	if err := raft.ValidateConfig(r); err != nil {
		return nil, fmt.Errorf("raft configuration: %w", err)
	}
	return r, nil
}
