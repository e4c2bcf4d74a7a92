package raftstore

import (
	"cmp"
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/loglimit"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/disk"
	storeerrors "github.com/quorate/quorate/raftstore/errors"
	"github.com/quorate/quorate/raftstore/local"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// A full disk must not end a node, and deletes must find room on it: see DESIGN.md, "Full disks". Each node looks at
// its own disk. Voters tell the leader what they have found with the question of package failover; the leader refuses
// what makes objects larger while the disks of a majority have no room for it, and hands over leadership while
// its own disk alone has none. Nothing of that is in the log: which room there is follows from nothing that is there.

// Levels of a disk, and of those that a majority needs.
const (
	diskEnough = proto.DiskSpace_ENOUGH
	diskLow    = proto.DiskSpace_LOW
	diskFull   = proto.DiskSpace_FULL
)

const (
	// lookEvery is how often a node looks at its disk, and tryEvery how often it tries what has found no room.
	lookEvery = 200 * time.Millisecond
	tryEvery  = time.Second
	// handOverAfter is how long the disk of a leader has been low, and it has led, when it tries to give up leadership.
	handOverAfter = time.Second
	// handOverEvery is how often a leader with a low disk tries to give up leadership.
	handOverEvery = 10 * time.Second
	// logEvery is how long after a level was logged a better one is.
	logEvery = 10 * time.Second
	// lowHistory bounds the history while disks are low: what was deleted takes room for as long as it is there.
	lowHistory = 8 << 20
	// leastLog is what the log may take in any case.
	leastLog = 64 << 20
	// leadsWith is what the log must have room for so that this node campaigns: its first entries as the leader.
	leadsWith = 64 << 10
)

// roomNow is what a node finds when it looks at its disk. In bytes.
type roomNow struct {
	has    int64 // what the file system says that it has room for
	free   int64 // the same, or 0 if something has found no room: a quota, inodes, or less than a segment of the log
	log    int64 // that can be appended to the log without more of it
	whole  bool  // the log's reserve is
	state  int64 // that state.db can grow by without more of it
	stuck  bool  // state.db waits for room
	refuse bool  // a write of the log was refused since the last look

	readOnly bool // the file system takes no writes
}

// takes is how many bytes of entries a disk takes before only what compaction needs is left. An entry is in the log
// and, some time later, in state.db, which writes pages around it anew as well. Of the room on the file system the log takes whole
// segments, and others take of it, too: half of the rest counts for state.db.
func (b roomBounds) takes(r roomNow) int64 {
	if r.readOnly {
		return 0
	}
	return max(0, min(r.log+r.free-b.last, (r.state+max(0, r.free-b.segments)/2-b.keep)/2))
}

// roomBounds are what a disk is judged by. In bytes.
type roomBounds struct {
	low   int64 // of the file system: below it what the files have for themselves decides
	log   int64 // the log may have no less for itself then, also while a full segment is cut, which comes back to the reserve
	state int64 // state.db needs to have for itself then
	last  int64 // of the log, and
	keep  int64 // of state.db: below these there is room for compaction only

	segments int64 // that the log may take of the file system before anybody looks again
}

func (l *Limits) roomBounds(segment int64) roomBounds {
	// What is on its way to a follower when it says what it has room for is not in that.
	last := min(mostBytes+proto.MaxEntryBytes, l.ReserveBytes/4)
	return roomBounds{low: l.ReserveBytes / 2, log: max(last, l.ReserveBytes/2-segment/2), state: l.ReserveBytes / 4, last: last, keep: l.ReserveBytes / 8, segments: 2 * segment}
}

// judge says what a disk has room for. Where it was low, it takes twice as much to be enough: a disk that fills and
// empties does not change the answer with each file.
func (b roomBounds) judge(was proto.DiskSpace_Level, r roomNow) proto.DiskSpace_Level {
	low, state, last := b.low, b.state, b.last
	if was >= diskLow {
		low, state = 2*low, 2*state
	}
	if was >= diskFull {
		last += last / 4
	}
	switch {
	case r.stuck, r.refuse, r.readOnly, r.log+r.free < last, r.state+r.free < b.keep:
		return diskFull
	case r.free >= low, (r.whole || was == diskEnough && r.log >= b.log) && r.state >= state:
		return diskEnough
	}
	return diskLow
}

// diskSpace is what a node knows of disks. watch begins when everything that it needs is there.
type diskSpace struct {
	cfg       *Config
	often     *loglimit.Limiter // limits what this node would say at every try
	node      *local.Node
	log       *disk.Log
	db        *disk.DB
	snapshots *disk.SnapshotStore
	state     func() *mvcc.State
	hurry     func() // tells the leader at once
	transfer  func(context.Context, proto.NodeID) error

	// level is that of the cluster, by which a leader refuses writes.
	level atomic.Int32
	// given counts the bytes of entries that this node has given to Raft; it may give as many as taken says.
	given, taken atomic.Int64
	// tight is whether the history is to be short, by which the leader moves the floor.
	tight    atomic.Bool
	refused  chan struct{} // a write of the log has found no room
	readOnly atomic.Bool   // because the file system is read-only
	// copies is whether the log has refused what it has room for: the file system copies what is written over, and has no room for that.
	copies atomic.Bool
	told   chan struct{} // the level of another voter's disk has changed

	mu       sync.Mutex
	own      *proto.DiskSpace            // nil before the first look
	others   map[proto.NodeID]diskReport // what voters have said to this node
	cluster  *proto.DiskSpace
	leads    time.Time // since when this node judges the cluster's disks; zero while it does not
	trailing uint64
	snapshot snapshotRoom

	// Of watch.
	found      bool // the log could not make its reserve
	tried      time.Time
	probed     time.Time
	lowSince   time.Time // of this node as the leader
	low        time.Time // when a disk was low
	handedOver time.Time
	compacted  time.Time
	compacting atomic.Bool
	failures   atomic.Int32 // of snapshots in a row

	ownLogged, clusterLogged loggedLevel
}

// loggedLevel is the level that was logged last.
type loggedLevel struct {
	level proto.DiskSpace_Level
	at    time.Time
}

// log reports whether a level is to be logged: a worse one at once, a better one after logEvery. A disk on which what is
// deleted is written again changes its level several times a second.
func (l *loggedLevel) log(level proto.DiskSpace_Level, now time.Time) bool {
	if level == l.level || level < l.level && now.Sub(l.at) < logEvery {
		return false
	}
	l.level, l.at = level, now
	return true
}

// diskReport is what a node has said of its disk when the leader had given Raft so many bytes.
type diskReport struct {
	*proto.DiskSpace
	given int64
	at    time.Time
	moved time.Time // when it had got further since the report before
	since time.Time // when it has reached its level
}

// taken is up to where the leader may give more.
func (r diskReport) taken() int64 {
	if r.DiskSpace == nil {
		return math.MaxInt64 // it has said nothing yet
	}
	return r.given + min(r.TakesBytes, math.MaxInt64/2)
}

func newDiskSpace(cfg *Config, node *local.Node) *diskSpace {
	d := &diskSpace{
		cfg: cfg, node: node, often: loglimit.New(repeatedAfter),
		refused: make(chan struct{}, 1), told: make(chan struct{}, 1), cluster: &proto.DiskSpace{},
		others: map[proto.NodeID]diskReport{}, trailing: cfg.Limits.TrailingLogs,
	}
	d.taken.Store(math.MaxInt64)
	return d
}

// refuse is told of each write of the log that found no room.
func (d *diskSpace) refuse(err error) {
	if errors.Is(err, syscall.EROFS) {
		d.readOnly.Store(true)
	}
	local.Wake(d.refused)
}

// note takes what a voter says of its disk.
func (d *diskSpace) note(from proto.NodeID, disk *proto.DiskSpace) {
	if disk == nil {
		return // of an earlier release
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	was, now := d.others[from], time.Now()
	if was.GetLevel() != disk.Level {
		local.Wake(d.told) // this node looks at once
	}
	moved := was.moved
	if disk.Committed != was.GetCommitted() {
		moved = now
	}
	since := was.since
	if disk.Level != was.GetLevel() {
		since = now
	}
	d.others[from] = diskReport{disk, d.given.Load(), now, moved, since}
}

// othersAreLow reports whether a voter has said so.
func (d *diskSpace) othersAreLow() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, disk := range d.others {
		if disk.GetLevel() > diskEnough {
			return true
		}
	}
	return false
}

// slowest is how far the voter has got that is farthest behind, of those that go on to report: behind what it knows to be committed its log
// may have entries that nobody else has. It is zero without one.
// The caller has mu.
func (d *diskSpace) slowest(now time.Time) (index uint64) {
	for _, r := range d.others {
		if at := r.GetCommitted(); at > 0 && now.Sub(r.at) < reportAge && now.Sub(r.moved) < standsStill && (index == 0 || at < index) {
			index = at
		}
	}
	return index
}

// lead has a new leader give Raft nothing before it has judged the disks, if one is known to be low: what the leader before it has given is on its way.
func (d *diskSpace) lead() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.own.GetLevel() > diskEnough || len(d.cluster.Nodes) > 0 {
		d.taken.Store(d.given.Load())
	}
}

// resign forgets what voters have said to this node as the leader.
func (d *diskSpace) resign() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.others)
	d.leads = time.Time{}
}

// follow takes what the leader says of the cluster's disks.
func (d *diskSpace) follow(disks *proto.DiskSpace) {
	if disks == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cluster = disks
}

// Disk says what this node's disk has room for, and what those of the cluster have as far as this node knows. Both may be empty, or nil, at
// a start.
func (s *Store) Disk() (own, cluster *proto.DiskSpace) { return s.disks.said() }

// LogBytes is what the log's files take, without their reserve.
func (s *Store) LogBytes() int64 { return s.log.Size() }

// DBBytesInUse is what state.db takes without its free pages and the reserve behind them.
func (s *Store) DBBytesInUse() int64 { return s.db.InUse() }

// gaveUp is called when the log is not kept any longer for a node that is being sent a
// snapshot.
func (d *diskSpace) gaveUp(index uint64, bytes int64) {
	d.often.Warn(d.node.Logger, "the log has grown too much to be kept for a node that was sent a snapshot: it may need another one",
		"snapshot", index, "bytes", bytes, "limit", d.cfg.Limits.SnapshotLogBytes)
}

// said is what is known: see Store.Disk.
func (d *diskSpace) said() (own, cluster *proto.DiskSpace) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.own, d.cluster
}

// report is what this node tells the leader.
func (d *diskSpace) report() *proto.DiskSpace {
	own, _ := d.said()
	return own
}

// watch looks at this node's disk, for as long as the store is open.
func (d *diskSpace) watch() {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	d.look(false)
	for {
		refused := false
		select {
		case <-d.node.Context().Done():
			return
		case <-d.refused:
			refused = true
		case <-d.told:
		case <-tick.C:
		}
		d.look(refused)
	}
}

func (d *diskSpace) look(refused bool) {
	segment := int64(d.cfg.segmentBytes())
	bounds, given := d.cfg.Limits.roomBounds(int64(d.cfg.segmentBytes())), d.given.Load()
	now := d.roomNow(time.Now(), refused)
	d.mu.Lock()
	was := d.own.GetLevel()
	own := &proto.DiskSpace{Level: bounds.judge(was, now), FreeBytes: now.has, TakesBytes: bounds.takes(now), ReadOnly: now.readOnly}
	own.SnapshotBytes = d.snapshot.lacking(time.Now())
	own.OnReserve = own.Level == diskEnough && now.free < bounds.low
	own.Committed = d.node.Raft().CommitIndex()
	d.own = own
	d.mu.Unlock()
	if own.Level != was {
		d.hurry() // the leader is told
	}
	if d.ownLogged.log(own.Level, time.Now()) {
		log := d.node.Logger.Warn
		if own.Level == diskEnough {
			log = d.node.Logger.Info
		}
		log("the room on this node's disk has changed", "level", own.Level, "free", now.has, "log", now.log, "state", now.state, "readOnly", now.readOnly)
	}
	if report := (diskReport{DiskSpace: own, given: given, at: time.Now()}); d.node.Ready() {
		d.judgeCluster(report)
	} else {
		d.taken.Store(report.taken()) // if it leads before it looks again
	}
	d.boundLog(own, now, segment)
}

// roomNow looks, and has the reserve made if the log misses a part of it.
func (d *diskSpace) roomNow(now time.Time, refused bool) roomNow {
	log := d.log.Room()
	r, missing := roomNow{has: d.freeBytes()}, log.Spares < log.Wanted
	r.free = r.has
	r.state, r.stuck = d.db.Room()
	// A state.db that waits for room has the first that there is: the log cannot be cut before.
	if missing && !r.stuck && now.Sub(d.tried) >= tryEvery {
		d.tried = now
		// Not from what the disk says that it has: quotas and inodes are not in it.
		err := d.log.Reserve()
		d.found = errors.Is(err, disk.ErrNoRoom)
		if err != nil && !d.found {
			d.node.Logger.Warn("cannot make the reserve of the log", "err", err)
		}
		log = d.log.Room()
		missing = log.Spares < log.Wanted
	}
	r.log, r.whole = log.Bytes, log.Whole()
	if missing && d.found || d.db.Cramped() {
		r.free = 0
	}
	if d.readOnly.Load() && now.Sub(d.probed) >= tryEvery {
		d.probed = now
		d.readOnly.Store(d.probeReadOnly())
	}
	r.readOnly = d.readOnly.Load()
	r.refuse = refused && r.log < d.cfg.Limits.roomBounds(int64(d.cfg.segmentBytes())).last
	if refused && !r.readOnly && r.log >= 2*d.cfg.Limits.roomBounds(int64(d.cfg.segmentBytes())).last {
		d.copies.Store(true)
		d.probed = now
	} else if d.copies.Load() && now.Sub(d.probed) >= tryEvery {
		d.probed = now
		d.copies.Store(errors.Is(d.log.Probe(), disk.ErrNoRoom))
	}
	if d.copies.Load() {
		r.log, r.free, r.whole, r.refuse = 0, 0, false, true
	}
	return r
}

// boundLog keeps the log's files within their bytes: by what stays behind a snapshot, and by snapshots of its own, which
// Raft takes by the number of entries only.
func (d *diskSpace) boundLog(own *proto.DiskSpace, now roomNow, segment int64) {
	// The log of a small state is small, too, but for what a follower may miss in a moment.
	level, bytes := own.Level, min(d.cfg.Limits.LogBytes, max(leastLog, d.state().Used()))/2
	if level == diskEnough && d.node.Ready() && d.othersAreLow() {
		bytes += d.cfg.Limits.SnapshotLogBytes // who has no room for entries has none for a snapshot
	}
	// The reserve of a log on a full disk is whole again when its full segment is cut.
	short := level > diskEnough || own.OnReserve && !now.whole
	if short {
		bytes = min(bytes, segment)
	}
	// A voter that misses an entry needs a snapshot, for which a full disk has no room.
	d.mu.Lock()
	keep := d.cluster.GetCommitted()
	if len(d.cluster.Nodes) > 0 || level > diskEnough {
		d.low = time.Now()
	}
	calm := time.Since(d.low) >= standsStill
	d.mu.Unlock()
	if calm || d.node.Raft().CommitIndex() <= keep || level == diskEnough && d.log.Size() > bytes+d.cfg.Limits.SnapshotLogBytes {
		keep = 0 // or this node is that voter, or that is too far behind
	}
	d.log.KeepFrom(keep)
	trailing := min(d.cfg.Limits.TrailingLogs, max(1, d.log.NewestWithin(bytes)))
	if d.log.Size() <= bytes {
		trailing = d.cfg.Limits.TrailingLogs
	}
	if trailing != d.trailing {
		rc := d.node.Raft().ReloadableConfig()
		rc.TrailingLogs = trailing
		if err := d.node.Raft().ReloadConfig(rc); err != nil {
			d.node.Logger.Warn("cannot bound the log", "err", err)
			return
		}
		d.trailing = trailing
	}
	if last := d.node.Raft().LastIndex(); last > trailing && (short || d.log.Size() > bytes) {
		if err := d.log.CutFront(min(d.snapshots.Written(), last-trailing)); err != nil {
			d.node.Logger.Warn("cannot cut the log", "err", err)
		}
	}
	// A quarter of LogBytes is for what is written until the snapshot is there.
	most, pause := bytes+min(bytes, d.cfg.Limits.LogBytes/4), min(time.Second<<d.failures.Load(), compactEvery)
	if d.log.Size() <= most && (!short || now.whole) || time.Since(d.compacted) < pause ||
		d.node.Raft().AppliedIndex() <= d.snapshots.Written() || !d.compacting.CompareAndSwap(false, true) {
		return
	}
	d.compacted = time.Now()
	d.node.Start(func() {
		defer d.compacting.Store(false)
		first, _ := d.log.FirstIndex()
		err := d.node.Await(d.node.Raft().Snapshot())
		if err == nil || errors.Is(err, raft.ErrNothingNewToSnapshot) {
			if now, _ := d.log.FirstIndex(); now > first || d.log.Size() <= most {
				d.failures.Store(0)
				return
			}
			// The log is kept for a node that is sent a snapshot: another one of this node's cuts nothing either.
		}
		d.failures.Store(min(d.failures.Load()+1, 4))
	})
}

// judgeCluster decides, on the leader, what the disks of a majority have room for.
func (d *diskSpace) judgeCluster(own diskReport) {
	servers := d.node.Members()
	d.mu.Lock()
	was := d.cluster.Level
	if d.leads.IsZero() {
		d.leads = time.Now()
	}
	leads := time.Since(d.leads)
	begins, missing := leads < reportAge, false
	reports := map[proto.NodeID]diskReport{d.node.ID: own}
	for _, m := range servers {
		if disk := d.others[m.ID]; disk.DiskSpace != nil {
			reports[m.ID] = disk
		}
		if reports[m.ID].DiskSpace != nil || !m.Voter {
			continue
		}
		missing = true
		// It will say so itself. Until then it has as much room as this node, or none if a disk is known to be low.
		guess := diskReport{DiskSpace: &proto.DiskSpace{TakesBytes: math.MaxInt64}}
		if begins {
			guess = diskReport{DiskSpace: &proto.DiskSpace{TakesBytes: own.TakesBytes}, given: own.given}
			if own.Level > diskEnough || len(d.cluster.Nodes) > 0 {
				guess.TakesBytes = 0
			}
		}
		if slices.Contains(d.cluster.Nodes, d.cfg.NameOf(string(m.ID))) {
			guess.Level = diskLow
		}
		reports[m.ID] = guess
	}
	level, taken, tight, others, without := clusterLevel(servers, d.node.ID, reports, time.Now())
	// A new leader begins where the last one did: what was deleted since can be made again.
	base := d.cluster.StoredBytes
	switch {
	case level == diskEnough:
		base = 0
	case was == diskEnough || base == 0:
		base = d.state().Used()
	}
	committed := d.slowest(time.Now())
	if begins && missing && len(d.cluster.Nodes) > 0 {
		committed = max(1, d.cluster.Committed) // what the leader before this one has said
	}
	d.cluster = &proto.DiskSpace{Level: level, StoredBytes: base, Committed: committed}
	for _, id := range without {
		d.cluster.Nodes = append(d.cluster.Nodes, d.cfg.NameOf(string(id)))
	}
	d.mu.Unlock()
	d.level.Store(int32(level))
	d.taken.Store(taken)
	d.tight.Store(tight)
	if d.clusterLogged.log(level, time.Now()) {
		d.node.Logger.Warn("the room on the disks of the cluster has changed", "level", level, "without", d.cluster.Nodes)
	}
	if own.Level == diskEnough {
		d.lowSince = time.Time{}
	} else if d.lowSince.IsZero() {
		d.lowSince = time.Now()
	}
	// Not at once: it may pass, and the next leader should know of it, so that it gives this node no more than it takes.
	if own.Level > level && others != "" && min(leads, time.Since(d.lowSince)) >= handOverAfter && time.Since(d.handedOver) >= handOverEvery {
		d.handedOver = time.Now()
		d.node.Start(func() {
			d.node.Logger.Warn("this node's disk is low, and others have room: giving up leadership", "to", others)
			if err := d.transfer(d.node.Context(), others); err != nil {
				d.node.Logger.Warn("leadership is not given up", "err", err)
			}
		})
	}
}

// standsStill is how long a voter may get no further until nodes whose own disks are low no longer keep entries for it.
const standsStill = 5 * time.Second

// reportAge is how old a report may be with which a node that is behind the others is waited for.
const reportAge = 3 * time.Second

// clusterLevel is the best one that a majority of the voters reaches: what that has room for is written, up to taken. While disks are low, voters
// on the same level are waited for, and so are those one below it for some seconds: to keep a third copy counts for more than the rate of writes then. It is tight as long as some are. better is the voter that has most room, if it is on a better level than this node. without are the voters with less than enough.
func clusterLevel(servers []Server, self proto.NodeID, reports map[proto.NodeID]diskReport, now time.Time,
) (level proto.DiskSpace_Level, taken int64, tight bool, better proto.NodeID, without []proto.NodeID) {
	var levels []proto.DiskSpace_Level
	var takes []int64
	best := reports[self].DiskSpace
	for _, m := range servers {
		if !m.Voter {
			continue
		}
		disk := reports[m.ID] // empty, which is enough, as long as it has said nothing
		levels, takes = append(levels, disk.GetLevel()), append(takes, disk.taken())
		if disk.GetLevel() > diskEnough {
			without = append(without, m.ID)
		}
		if disk.DiskSpace != nil && (disk.Level < best.GetLevel() || better != "" && disk.Level == best.Level && disk.FreeBytes > best.FreeBytes) {
			better, best = m.ID, disk.DiskSpace
		}
	}
	if len(levels) == 0 {
		return diskEnough, math.MaxInt64, false, "", nil
	}
	slices.SortFunc(levels, cmp.Compare)
	slices.SortFunc(takes, func(a, b int64) int { return cmp.Compare(b, a) })
	level, taken = levels[len(levels)/2], takes[len(takes)/2]
	taken = min(taken, reports[self].taken()) // a leader writes first
	tight = max(level, reports[self].GetLevel()) > diskEnough
	for _, disk := range reports {
		if disk.Level > diskEnough && disk.Level <= level+1 && now.Sub(disk.at) < reportAge && (disk.Level == level || now.Sub(disk.since) < standsStill) {
			taken, tight = min(taken, disk.taken()), true
		}
	}
	return level, taken, tight, better, without
}

// noSpaceError refuses a write for which the disks of the cluster have no room. The key of what it exceeds has the nodes. Without
// bounds they have room for compaction only.
type noSpaceError struct{ exceeded *proto.Exceeded }

func (e *noSpaceError) Error() string {
	return "the disk is full: " + e.exceeded.Key
}

// refusal is what the write's caller is told.
func (e *noSpaceError) refusal() (mvcc.Result, error) {
	if len(e.exceeded.Bounds) == 0 {
		return mvcc.Result{}, &storeerrors.DiskFullError{Nodes: e.exceeded.Key}
	}
	return mvcc.Result{Outcome: proto.Outcome_OUTCOME_NO_SPACE, Exceeded: e.exceeded}, nil
}

// hasRoom returns an error for an entry that the disks of the cluster have no room for. It is asked by the leader, before an entry
// gets into the log.
func (d *diskSpace) hasRoom(frame []byte) error {
	size := int64(len(frame))
	level, enough := proto.DiskSpace_Level(d.level.Load()), d.given.Add(size) <= d.taken.Load()
	if level == diskEnough && enough {
		return nil
	}
	err := d.refusedByDisks(frame, level, enough)
	if err != nil {
		d.given.Add(-size)
	}
	return err
}

func (d *diskSpace) refusedByDisks(frame []byte, level proto.DiskSpace_Level, enough bool) error {
	kind, body, err := proto.Split(frame)
	if err != nil || kind != proto.KindWrite {
		return nil
	}
	p := parsers.Get().(*mvcc.Parser)
	defer parsers.Put(p)
	w, err := p.Parse(body)
	if err != nil || strings.HasPrefix(w.Table, proto.ClusterTables) {
		return nil // Raft and the state machine say what is wrong; what the cluster itself keeps is small
	}
	d.mu.Lock()
	disks := d.cluster
	d.mu.Unlock()
	switch {
	case level == diskEnough: // and not enough for this one, until they say so again
		return &noSpaceError{&proto.Exceeded{}}
	case level == diskFull, !enough:
		return &noSpaceError{diskExceeded(&proto.Exceeded{}, disks)}
	}
	exceeded := d.state().NoRoomAbove(max(disks.StoredBytes, 1), d.cfg.Limits.ReserveBytes/16, w)
	if exceeded == nil {
		return nil
	}
	return &noSpaceError{diskExceeded(exceeded, disks)}
}

// diskExceeded says which disks have no room for a write.
func diskExceeded(e *proto.Exceeded, disks *proto.DiskSpace) *proto.Exceeded {
	e.Key = strings.Join(disks.Nodes, ", ")
	for _, b := range e.Bounds {
		b.Name = mvcc.DiskBound
	}
	return e
}

// errDiskFull is why this node does not campaign: it could not store its first entry as the leader.
var errDiskFull = errors.New("this node's disk is full: it does not campaign")

// mayLead returns an error unless the log takes a leader's first entries.
func (d *diskSpace) mayLead() error {
	own, _ := d.said()
	if own.GetLevel() < diskFull || !own.ReadOnly && !d.copies.Load() && d.log.Room().Bytes >= leadsWith {
		return nil
	}
	return errDiskFull
}

// probeReadOnly tries to write. Some file systems that have become read-only by an error do not say so before.
func (d *diskSpace) probeReadOnly() bool {
	if d.cfg.TestHooks.ReadOnly != nil {
		return d.cfg.TestHooks.ReadOnly()
	}
	probe := filepath.Join(d.cfg.Dir, "probe.tmp")
	f, err := os.OpenFile(probe, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err == nil {
		err = errors.Join(f.Close(), os.Remove(probe))
	}
	return errors.Is(err, syscall.EROFS)
}

// freeBytes is what the file system has room for.
func (d *diskSpace) freeBytes() int64 {
	if d.cfg.TestHooks.Free != nil {
		return d.cfg.TestHooks.Free()
	}
	return freeBytes(d.cfg.Dir)
}
