package raftstore

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/disk"
	"github.com/quorate/quorate/raftstore/peer"
	pb "google.golang.org/protobuf/proto"
)

// TestHasRoom: what is refused for want of room does not count as given to Raft, and what the cluster itself writes is never refused.
func TestHasRoom(t *testing.T) {
	frame := func(kind proto.Kind, m pb.Message) []byte {
		t.Helper()
		b, err := proto.Encode(kind, m)
		must.OK(t, err)
		return b
	}
	large, small := frame(proto.KindWrite, write("k", strings.Repeat("x", 1000))), frame(proto.KindWrite, write("k", "x"))
	members := write("m", strings.Repeat("x", 1000))
	members.Table = proto.ClusterTables + "members"
	own := frame(proto.KindWrite, members)
	for _, row := range []struct {
		name   string
		level  proto.DiskSpace_Level
		taken  int64
		frame  []byte
		refuse bool
	}{
		{"enough", diskEnough, 2000, large, false},
		{"less than it takes", diskEnough, 500, large, true},
		{"that much", diskEnough, 500, small, false},
		{"full", diskFull, 2000, small, true},
		{"of the cluster", diskFull, 500, own, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := &Store{disks: newDiskSpace(&Config{}, nil)}
			s.disks.level.Store(int32(row.level))
			s.disks.taken.Store(row.taken)
			var refused *noSpaceError
			if err := s.disks.hasRoom(row.frame); errors.As(err, &refused) != row.refuse || err != nil && !row.refuse {
				t.Fatalf("refused: %v", err)
			}
			want := int64(len(row.frame))
			if row.refuse {
				want = 0
			}
			if got := s.disks.given.Load(); got != want {
				t.Errorf("%d bytes count as given, want %d", got, want)
			}
		})
	}
}

// TestMayLead: a node on a full disk campaigns only if its log takes what a leader writes first.
func TestMayLead(t *testing.T) {
	for _, row := range []struct {
		level   proto.DiskSpace_Level
		segment int
		copies  bool
		want    bool
	}{
		{diskLow, leadsWith / 2, false, true},
		{diskFull, leadsWith / 2, false, false},
		{diskFull, 2 * leadsWith, false, true},
		{diskFull, 2 * leadsWith, true, false},
	} {
		log, err := disk.OpenLog(t.TempDir(), disk.LogOptions{SegmentBytes: row.segment, Fatal: func(err error) { t.Error(err) }})
		must.OK(t, err)
		s := &Store{disks: newDiskSpace(&Config{}, nil)}
		s.disks.log = log
		s.disks.own = &proto.DiskSpace{Level: row.level}
		s.disks.copies.Store(row.copies)
		if got := s.disks.mayLead() == nil; got != row.want {
			t.Errorf("%v, a log with room for %d bytes: %v", row.level, log.Room().Bytes, got)
		}
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestStoredOnFullDisks: while disks are low, what may be stored is what was there when that began, also for the next leader. When they have room, the
// next time begins anew.
func TestStoredOnFullDisks(t *testing.T) {
	c := newCluster(t, 1, func(cfg *Config) {
		cfg.TestHooks.Free = func() int64 {
			<-t.Context().Done() // nobody but the test looks
			return 1 << 40
		}
	})
	leader := c.leader()
	put := func(key string, size int) {
		t.Helper()
		if _, err := leader.Propose(c.ctx(), write(key, strings.Repeat("x", size))); err != nil {
			t.Fatal(err)
		}
	}
	judge := func(level proto.DiskSpace_Level) int64 {
		leader.disks.judgeCluster(diskReport{DiskSpace: &proto.DiskSpace{Level: level, TakesBytes: 1 << 30}})
		_, cluster := leader.Disk()
		if cluster.Level != level {
			t.Fatalf("the cluster is %v, want %v", cluster.Level, level)
		}
		return cluster.StoredBytes
	}
	put("k", 10_000)
	began := leader.State().Used()
	if got := judge(diskLow); got != began {
		t.Errorf("%d bytes may be stored, and %d are", got, began)
	}
	put("k", 10_100) // small growth
	if got := judge(diskLow); got != began || leader.State().Used() <= began {
		t.Errorf("%d bytes may be stored, and %d were when it began", got, began)
	}
	const before = 5000 // what was deleted on another leader may be stored again
	leader.disks.follow(&proto.DiskSpace{Level: diskLow, StoredBytes: before, Nodes: []string{"a"}})
	if got := judge(diskLow); got != before {
		t.Errorf("%d bytes may be stored, and %d with the leader before", got, before)
	}
	judge(diskEnough)
	if got, want := judge(diskLow), leader.State().Used(); got != want {
		t.Errorf("the next time %d bytes may be stored, and %d are", got, want)
	}
}

// TestLeaderWithoutLog: a leader whose file system becomes read-only steps down at its next write. Raft's followers would wait
// for their timeout; these learn from its answers that it leads no more.
func TestLeaderWithoutLog(t *testing.T) {
	t.Parallel()
	const timeout = 15 * time.Second // questions come in less than a quarter of it when nothing is heard
	var readOnly atomic.Bool
	c := newCluster(t, 3, func(cfg *Config) {
		cfg.Timing.Heartbeat, cfg.Timing.Election, cfg.Timing.Lease = timeout, timeout, timeout
		if cfg.Node != "a" {
			return
		}
		cfg.TestHooks.ReadOnly = readOnly.Load
		cfg.TestHooks.Commit = func(file string, do func() error) error {
			if readOnly.Load() {
				return fmt.Errorf("%w: %w", disk.ErrNoRoom, &os.PathError{Op: "write", Path: file, Err: syscall.EROFS})
			}
			return do()
		}
	})
	c.makeLeader("a")
	before := c.nodes["a"]
	campaigns := c.nodes["b"].failover.Campaigns() + c.nodes["c"].failover.Campaigns()
	readOnly.Store(true)
	if r, err := c.nodes["b"].Propose(c.ctx(), write("k", "v")); err != nil || r.Outcome != proto.Outcome_OUTCOME_APPLIED {
		t.Errorf("through a follower: %v, %v", r.Outcome, err)
	}
	if before.IsLeader() || c.nodes["b"].failover.Campaigns()+c.nodes["c"].failover.Campaigns() == campaigns {
		t.Error("it leads still, or its followers waited for their timeout")
	}
	readOnly.Store(false)
	c.eventually("the node has what was written", func() error {
		if before.Applied() < c.leader().Applied() {
			return errors.New("it lacks entries")
		}
		return nil
	})
}

// refusedInstalls counts the snapshots that the other node has not taken.
type refusedInstalls struct {
	*peer.Transport
	count *atomic.Int64
}

func (r *refusedInstalls) InstallSnapshot(id raft.ServerID, to raft.ServerAddress, req *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	err := r.Transport.InstallSnapshot(id, to, req, resp, data)
	if err != nil || !resp.Success {
		r.count.Add(1)
	}
	return err
}

// TestJoinOnFullDisk: a node that joins and has no room for the state takes nothing of it, also when it is started again,
// and has all of it when there is room.
func TestJoinOnFullDisk(t *testing.T) {
	t.Parallel()
	const trailing = 8
	dir := mounted(t, "size=40m")
	var refused atomic.Int64
	c := newCluster(t, 1, func(cfg *Config) {
		cfg.Transport = &refusedInstalls{cfg.Transport.(*peer.Transport), &refused}
		cfg.Limits.TrailingLogs, cfg.Limits.SnapshotThreshold = trailing, trailing
		if cfg.Node == "d" {
			cfg.Dir = filepath.Join(dir, "node")
		}
	})
	leader := c.leader()
	for i := range 16 {
		if _, err := leader.Propose(c.ctx(), write(fmt.Sprint(i), strings.Repeat("x", 1<<20))); err != nil {
			t.Fatal(err)
		}
	}
	must.OK(t, leader.node.Await(leader.node.Raft().Snapshot()))
	if first, err := leader.log.FirstIndex(); err != nil || first < 4 {
		t.Fatalf("the log begins at %d, %v: nobody needs a snapshot", first, err)
	}
	joins := c.add("d")
	empty := fillDisk(t, dir)
	must.OK(t, leader.AddNonvoter(c.ctx(), "d", joins.addr, 0))
	failed := func(n int64) {
		t.Helper()
		c.eventually("the state finds no room", func() error {
			if refused.Load() < n {
				return fmt.Errorf("%d snapshots were refused", refused.Load())
			}
			return nil
		})
		c.eventually("nothing of it is left", func() error {
			for _, name := range []string{"state.db.receiving", "state.db.incoming"} {
				if info, err := os.Stat(filepath.Join(dir, "node", name)); !errors.Is(err, fs.ErrNotExist) {
					return fmt.Errorf("%v, %w", info, err)
				}
			}
			return nil
		})
		if n := joins.State().Used(); n != 0 || joins.fsm.restored.Load() != 0 {
			t.Errorf("%d bytes are there of a state that has no room", n)
		}
	}
	failed(2)
	c.close(joins)
	c.open(joins)
	failed(refused.Load() + 2)
	empty()
	c.eventually("it has the state", func() error {
		if joins.Applied() < leader.Applied() {
			return fmt.Errorf("applied %d of %d", joins.Applied(), leader.Applied())
		}
		return nil
	})
	c.sameHash()
}

// TestDisksFilledInTurns: other programs fill the disks and give them back, again and again, in any order, under load. What was
// acknowledged stays, and when they have ended all goes on by itself.
func TestDisksFilledInTurns(t *testing.T) {
	t.Parallel()
	c, dirs := onDisksOfTheirOwn(t, "size=192m")
	seed := uint64(1)
	random := rand.New(rand.NewPCG(seed, 0))
	var load load
	load.run(t, c)
	c.eventually("some writes", func() error { return load.acknowledged(100) })
	turns := 8
	if testing.Short() {
		turns = 4
	}
	for turn := range turns {
		var empty []func()
		for _, dir := range dirs {
			if turn == 0 || random.IntN(3) > 0 {
				empty = append(empty, fillDisk(t, dir))
			}
		}
		if turn == 0 {
			untilRefused(t, c)
		}
		load.tries(t, c, int64(20+random.IntN(400)))
		for _, f := range empty {
			f()
			load.tries(t, c, int64(random.IntN(100)))
		}
	}
	goesOn(t, c, &load)
}

// TestNoInodes: disks on which no file can be made are full, whatever room they have: nothing ends, what makes nothing larger and
// deletes go on, and there is an end to it when files can be made.
func TestNoInodes(t *testing.T) {
	t.Parallel()
	c, dirs := onDisksOfTheirOwn(t, "size=192m,nr_inodes=64")
	var load load
	load.run(t, c)
	c.eventually("some writes", func() error { return load.acknowledged(100) })
	var empty []func()
	for _, dir := range dirs {
		empty = append(empty, fillInodes(t, dir))
	}
	// The log's files go round many times.
	for range 500 {
		c.eventually("a write that needs no room", func() error {
			r, err := c.leader().Propose(c.ctx(), write("lease", strings.Repeat("x", 64<<10)))
			if err == nil && r.Outcome != proto.Outcome_OUTCOME_APPLIED {
				err = fmt.Errorf("%v", r)
			}
			return err
		})
	}
	for _, key := range load.some(20) {
		c.eventually("a delete", func() error {
			_, err := c.leader().Propose(c.ctx(), &proto.Write{Table: "t", Key: key, Op: proto.Op_OP_DELETE})
			if err == nil {
				load.forget(key)
			}
			return err
		})
	}
	for _, f := range empty {
		f()
	}
	goesOn(t, c, &load)
}

// TestStateBeforeReserve: a directory without a reserve, as earlier releases have made them, on a full disk. Of the first room state.db has
// what it waits for, and the log's reserve is made behind that.
func TestStateBeforeReserve(t *testing.T) {
	t.Parallel()
	const segment = 4 << 20
	dir := mounted(t, "size=96m")
	var reserve atomic.Int64
	reserve.Store(-1)
	c := newCluster(t, 3, func(cfg *Config) {
		cfg.TestHooks.SegmentBytes = segment
		if cfg.Node == "c" {
			cfg.Dir = filepath.Join(dir, "node")
			cfg.Limits.ReserveBytes = reserve.Load()
		}
	})
	c.makeLeader("a")
	leader, full := c.nodes["a"], c.nodes["c"]
	// A leader that has heard of the full disk waits for it, some seconds long: then it gives no more than that takes.
	put := func(key string, size int) {
		t.Helper()
		c.eventually("a write", func() error {
			r, err := leader.Propose(c.ctx(), write(key, strings.Repeat("x", size)))
			if err == nil && r.Outcome != proto.Outcome_OUTCOME_APPLIED {
				err = fmt.Errorf("%v", r)
			}
			return err
		})
	}
	// The log takes more than a segment on the full disk, which then waits for room in state.db.
	c.eventually("the next segment is prepared", func() error {
		put("k", 64<<10)
		must.OK(t, full.WaitApplied(c.ctx(), leader.Applied()))
		if room := full.log.Room().Bytes; room < 5*segment/4 {
			return fmt.Errorf("%d bytes", room)
		}
		return nil
	})
	must.OK(t, full.fsm.sync())
	empty := fillDisk(t, dir)
	for i := range 9 {
		put(fmt.Sprint(i), segment/8)
	}
	waits := func(want bool) {
		t.Helper()
		c.eventually(fmt.Sprintf("all is applied, and state.db waits: %v", want), func() error {
			if _, waits := full.db.Room(); waits != want || full.Applied() < leader.Applied() {
				return fmt.Errorf("%v, applied %d of %d", waits, full.Applied(), leader.Applied())
			}
			return nil
		})
	}
	waits(true)
	c.close(full)
	reserve.Store(8 * segment)
	c.open(full)
	waits(true)
	// Room for a segment, and not for what waits.
	giveBack(t, dir, segment+16<<10)
	looks, last := 0, full.disks.report()
	c.eventually("it has looked at the disk", func() error {
		if now := full.disks.report(); now != last {
			last, looks = now, looks+1
		}
		if least := int(2 * tryEvery / lookEvery); looks < least { // of which one would have made a segment
			return fmt.Errorf("%d times", looks)
		}
		return nil
	})
	if r := full.log.Room(); r.Spares > 0 || r.Wanted == 0 {
		t.Fatalf("the log has %d segments of %d, and state.db waits", r.Spares, r.Wanted)
	}
	waits(true)
	giveBack(t, dir, segment)
	waits(false)
	empty()
	c.eventually("the reserve is there", func() error {
		if r := full.log.Room(); r.Spares < r.Wanted {
			return fmt.Errorf("%d of %d segments", r.Spares, r.Wanted)
		}
		return nil
	})
	c.sameHash()
}

// giveBack gives back some of the room that fillDisk has taken.
func giveBack(t *testing.T, dir string, bytes int64) {
	t.Helper()
	path := filepath.Join(dir, filler)
	info, err := os.Stat(path)
	must.OK(t, err)
	must.OK(t, os.Truncate(path, info.Size()-bytes))
}

// onDisksOfTheirOwn starts three nodes, and waits until each has its reserve.
func onDisksOfTheirOwn(t *testing.T, options string) (*cluster, map[proto.NodeID]string) {
	t.Helper()
	dirs := map[proto.NodeID]string{}
	for _, id := range []proto.NodeID{"a", "b", "c"} {
		dirs[id] = mounted(t, options)
	}
	c := newCluster(t, 3, func(cfg *Config) {
		silent(cfg)
		cfg.Dir = filepath.Join(dirs[cfg.Node], "node")
		cfg.TestHooks.SegmentBytes = 4 << 20
		cfg.Limits.ReserveBytes, cfg.Limits.LogBytes, cfg.Limits.SnapshotLogBytes = 64<<20, 32<<20, 32<<20
	})
	leader := c.leader()
	for _, m := range c.nodes {
		c.eventually("the reserve is there", func() error {
			if r := m.log.Room(); r.Spares < r.Wanted {
				return fmt.Errorf("%d of %d segments", r.Spares, r.Wanted)
			}
			return nil
		})
	}
	if _, err := leader.Propose(c.ctx(), write("lease", strings.Repeat("x", 64<<10))); err != nil {
		t.Fatal(err)
	}
	return c, dirs
}

// untilRefused writes what takes room until that is refused.
func untilRefused(t *testing.T, c *cluster) {
	t.Helper()
	n := 0
	c.eventually("what takes room is refused", func() error {
		n++
		r, err := c.leader().Propose(c.ctx(), write(fmt.Sprint("large", n), strings.Repeat("x", 100<<10)))
		if err != nil || r.Outcome != proto.Outcome_OUTCOME_NO_SPACE || r.Exceeded.GetKey() == "" {
			return fmt.Errorf("%v %v", r, err)
		}
		return nil
	})
}

// goesOn waits until the disks of all nodes have room, and checks what they have, then and after a start of each.
func goesOn(t *testing.T, c *cluster, load *load) {
	t.Helper()
	c.eventually("room for all", func() error {
		for _, m := range c.nodes {
			if own, cluster := m.Disk(); own.GetLevel() != diskEnough || cluster.GetLevel() != diskEnough {
				return fmt.Errorf("%s: %v, %v", m.id, own, cluster)
			}
		}
		r, err := c.leader().Propose(c.ctx(), write("large", strings.Repeat("x", 200<<10)))
		if err != nil || r.Outcome != proto.Outcome_OUTCOME_APPLIED {
			return fmt.Errorf("%v %v", r, err)
		}
		return nil
	})
	load.stop()
	c.sameHash()
	load.check(t, c)
	for _, m := range c.nodes {
		c.close(m)
		c.open(m)
	}
	c.leader()
	c.sameHash()
	load.check(t, c)
}

// fillInodes makes files until no more can be made, and returns what removes them.
func fillInodes(t *testing.T, dir string) (empty func()) {
	t.Helper()
	others := filepath.Join(dir, "others")
	err := os.Mkdir(others, 0o700)
	for i := 0; err == nil; i++ {
		err = os.WriteFile(filepath.Join(others, fmt.Sprint(i)), nil, 0o600)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	return func() {
		if err := os.RemoveAll(others); err != nil {
			t.Error(err)
		}
	}
}
