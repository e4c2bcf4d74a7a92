package raftstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unicode"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/disk"
	storeerrors "github.com/quorate/quorate/raftstore/errors"
	"github.com/quorate/quorate/raftstore/mvcc"
	"github.com/quorate/quorate/raftstore/watch"
)

func TestJudgeDisk(t *testing.T) {
	const mib = 1 << 20
	l := Limits{ReserveBytes: 64 * mib}
	b := l.roomBounds(16 * mib)
	for _, row := range []struct {
		name string
		was  proto.DiskSpace_Level
		now  roomNow
		want proto.DiskSpace_Level
	}{
		{"a large disk before the reserve is made", diskEnough, roomNow{free: 1 << 40, log: mib}, diskEnough},
		{"the disk fills", diskEnough, roomNow{free: 31 * mib, log: 20 * mib, state: 32 * mib}, diskLow},
		{"a full disk whose files have room", diskEnough, roomNow{log: 40 * mib, whole: true, state: 100 * mib}, diskEnough},
		{"state.db has little", diskEnough, roomNow{log: 40 * mib, whole: true, state: 15 * mib}, diskLow},
		{"the log has taken of its reserve", diskEnough, roomNow{log: 23 * mib, state: 100 * mib}, diskLow},
		{"the log begins its next segment, and the one before is not cut yet", diskEnough, roomNow{log: 31 * mib, state: 100 * mib}, diskEnough},
		{"the same on a disk that was low", diskLow, roomNow{log: 31 * mib, state: 100 * mib}, diskLow},
		{"the log has little", diskLow, roomNow{log: 9 * mib, state: 100 * mib}, diskFull},
		{"it has a little more", diskFull, roomNow{log: 11 * mib, whole: true, state: 100 * mib}, diskFull},
		{"it was compacted", diskFull, roomNow{log: 40 * mib, whole: true, state: 100 * mib}, diskEnough},
		{"state.db waits", diskLow, roomNow{log: 40 * mib, whole: true, stuck: true}, diskFull},
		{"the log has refused a write", diskEnough, roomNow{log: 15 * mib, refuse: true}, diskFull},
		{"the file system is read-only", diskEnough, roomNow{free: 1 << 40, log: 40 * mib, whole: true, state: 100 * mib, readOnly: true}, diskFull},
		{"a bit of room is back", diskLow, roomNow{free: 40 * mib, log: 40 * mib, state: 20 * mib, whole: true}, diskLow},
		{"room is back", diskLow, roomNow{free: 64 * mib, log: 40 * mib}, diskEnough},
	} {
		if got := b.judge(row.was, row.now); got != row.want {
			t.Errorf("%s: %v, want %v", row.name, got, row.want)
		}
	}
}

// TestLoggedLevel: a level that goes to and fro is logged twice in ten seconds at most, and a worse one at once.
func TestLoggedLevel(t *testing.T) {
	const enough, low, full = diskEnough, diskLow, diskFull
	for _, row := range []struct {
		name   string
		levels []proto.DiskSpace_Level // one each second
		want   []int                   // which of them are logged
	}{
		{"none", []proto.DiskSpace_Level{enough, enough}, nil},
		{"it fills", []proto.DiskSpace_Level{enough, low, low, full, full}, []int{1, 3}},
		{"it is better for a moment", []proto.DiskSpace_Level{full, enough, full, low, full}, []int{0}},
		{"it stays better", slices.Concat([]proto.DiskSpace_Level{full}, slices.Repeat([]proto.DiskSpace_Level{enough}, 12)), []int{0, 10}},
		{"to and fro", slices.Repeat([]proto.DiskSpace_Level{low, full}, 11), []int{0, 1, 12, 13}},
	} {
		var l loggedLevel
		var got []int
		for i, level := range row.levels {
			if l.log(level, time.Unix(int64(i), 0)) {
				got = append(got, i)
			}
		}
		if !slices.Equal(got, row.want) {
			t.Errorf("%s: %v are logged, want %v", row.name, got, row.want)
		}
	}
}

// TestDiskOfAnother: what another voter says of its disk is not a write that this node's log has refused.
func TestDiskOfAnother(t *testing.T) {
	d := newDiskSpace(&Config{}, nil)
	d.note("n2", &proto.DiskSpace{Level: diskLow})
	if len(d.told) != 1 || len(d.refused) != 0 {
		t.Errorf("told %d, refused %d, want 1 and 0", len(d.told), len(d.refused))
	}
	<-d.told
	d.note("n2", &proto.DiskSpace{Level: diskLow})
	if len(d.told) != 0 {
		t.Error("the same level makes the node look again")
	}
}

// TestReadOnlyDisk: a node whose log cannot be written because the file system is read-only says so, and does not campaign, until
// something can be written.
func TestReadOnlyDisk(t *testing.T) {
	var readOnly atomic.Bool
	readOnly.Store(true)
	c := newCluster(t, 1, func(cfg *Config) { cfg.TestHooks.ReadOnly = readOnly.Load })
	s := c.leader().Store
	is := func(readOnly bool) func() error {
		return func() error {
			own, _ := s.Disk()
			if own.GetReadOnly() != readOnly || (own.GetLevel() == diskFull) != readOnly || (s.disks.mayLead() != nil) != readOnly {
				return fmt.Errorf("%v, may lead: %v", own, s.disks.mayLead())
			}
			return nil
		}
	}
	s.disks.refuse(fmt.Errorf("%w: write: %w", disk.ErrNoRoom, syscall.ENOSPC))
	c.eventually("a full disk is not read-only", is(false))
	s.disks.refuse(fmt.Errorf("%w: write: %w", disk.ErrNoRoom, syscall.EROFS))
	c.eventually("it is read-only", is(true))
	readOnly.Store(false)
	c.eventually("it can be written again", is(false))
}

func TestIsReadOnly(t *testing.T) {
	for options, want := range map[string]bool{"size=1m": false, "size=1m,ro": true} {
		s := newStore(Config{Dir: mounted(t, options)})
		if got := s.disks.probeReadOnly(); got != want {
			t.Errorf("%s: %v", options, got)
		}
		s.node.Close()
	}
}

// TestFreeBytes: a node on a file system with less room than a segment of the log takes tells how much there is, as df does.
func TestFreeBytes(t *testing.T) {
	dir := mounted(t, "size=30m")
	c := newCluster(t, 1, func(cfg *Config) {
		cfg.Dir = filepath.Join(dir, "node")
		cfg.TestHooks.SegmentBytes, cfg.Limits.ReserveBytes = 4<<20, 40<<20 // of which there is not so much
	})
	s := c.leader().Store
	c.eventually("the log has taken what there is", func() error {
		own, _ := s.Disk()
		if free := freeBytes(dir); own.GetLevel() == diskEnough || free >= 4<<20 || free == 0 || own.FreeBytes != free {
			return fmt.Errorf("%v, %d bytes are free, %+v", own, free, s.log.Room())
		}
		return nil
	})
}

// TestOnReserve: a node says that its file system has no room while its files still have some of their own.
func TestOnReserve(t *testing.T) {
	var free atomic.Int64
	free.Store(1 << 40)
	c := newCluster(t, 1, func(cfg *Config) { cfg.TestHooks.Free = free.Load })
	s := c.leader().Store
	for _, bytes := range []int64{1 << 40, 0, 1 << 40} {
		free.Store(bytes)
		c.eventually(fmt.Sprintf("%d bytes are free", bytes), func() error {
			if own, _ := s.Disk(); own.GetLevel() != diskEnough || own.GetFreeBytes() != bytes || own.GetOnReserve() != (bytes == 0) {
				return fmt.Errorf("%v", own)
			}
			return nil
		})
	}
}

// TestTakes: what a disk takes of entries is in both files, and room on the file system is not there twice.
func TestTakes(t *testing.T) {
	const mib = 1 << 20
	l := Limits{ReserveBytes: 64 * mib}
	b := l.roomBounds(16 * mib) // 9.5 MiB of the log and 8 MiB of state.db are kept
	for _, row := range []struct {
		now  roomNow
		want int64
	}{
		{roomNow{log: 40 * mib, state: 32 * mib}, 12 * mib},
		{roomNow{log: 40 * mib, state: 32 * mib, free: 30 * mib}, 12 * mib},
		{roomNow{log: 40 * mib, state: 32 * mib, free: 72 * mib}, 22 * mib},
		{roomNow{log: 19*mib + mib/2, state: 320 * mib}, 10 * mib},
		{roomNow{log: 9 * mib, state: 32 * mib}, 0},
		{roomNow{log: 40 * mib, state: 32 * mib, readOnly: true}, 0},
		{roomNow{log: 40 * mib, state: 7 * mib}, 0},
	} {
		if got := b.takes(row.now); got != row.want {
			t.Errorf("%+v takes %d bytes, want %d", row.now, got, row.want)
		}
	}
}

// TestRefusalNamesTheNodes: a write that is to be tried again names the nodes without room, and none if writes only come too fast.
func TestRefusalNamesTheNodes(t *testing.T) {
	frame, err := proto.Encode(proto.KindWrite, write("k", "v"))
	must.OK(t, err)
	for _, row := range []struct {
		level  proto.DiskSpace_Level
		enough bool
		want   string
	}{
		{diskFull, true, "there is no room for writes on the disks of n1, n2"},
		{diskLow, false, "there is no room for writes on the disks of n1, n2"},
		{diskEnough, false, "writes come faster than the disks take them"},
	} {
		s := newStore(Config{})
		s.hub = watch.New(mvcc.New())
		s.disks.cluster = &proto.DiskSpace{Level: row.level, Nodes: []string{"n1", "n2"}}
		var full *noSpaceError
		if err := s.disks.refusedByDisks(frame, row.level, row.enough); !errors.As(err, &full) {
			t.Fatalf("%v, %v: %v", row.level, row.enough, err)
		}
		if _, err := full.refusal(); !errors.Is(err, storeerrors.ErrDiskFull) || err.Error() != row.want {
			t.Errorf("%v, %v: %v, want %s", row.level, row.enough, err, row.want)
		}
		s.hub.Close()
		s.node.Close()
	}
}

func TestClusterLevel(t *testing.T) {
	for _, row := range []struct {
		voters  string // a letter each: e enough, l low, f full, L and F just now, - has said nothing; the first one is this node
		taken   int64  // 20 of each one that has enough, 10 of a low one
		want    proto.DiskSpace_Level
		better  proto.NodeID
		without string
	}{
		{"e", 20, diskEnough, "", ""},
		{"l", 10, diskLow, "", "0"},
		{"lee", 10, diskEnough, "1", "0"},
		{"ell", 10, diskLow, "", "1 2"},
		{"elf", 10, diskLow, "", "1 2"},
		{"elF", 0, diskLow, "", "1 2"},
		{"eeF", 20, diskEnough, "", "2"},
		{"eel", 20, diskEnough, "", "2"},
		{"eeL", 10, diskEnough, "", "2"},
		{"elL", 10, diskLow, "", "1 2"},
		{"ffL", 0, diskFull, "2", "0 1 2"},
		{"ffe", 0, diskFull, "2", "0 1"},
		{"flf", 0, diskFull, "1", "0 1 2"},
		{"fll", 0, diskLow, "1", "0 1 2"},
		{"l--", 10, diskEnough, "", "0"},
		{"llel", 10, diskLow, "2", "0 1 3"}, // three of four are needed
		{"lleee", 10, diskEnough, "2", "0 1"},
	} {
		var servers []Server
		reports := map[proto.NodeID]diskReport{}
		for i, c := range row.voters {
			id := proto.NodeID(fmt.Sprint(i))
			servers = append(servers, Server{ID: id, Voter: true})
			if c != '-' {
				level := strings.IndexRune("elf", unicode.ToLower(c))
				r := diskReport{DiskSpace: &proto.DiskSpace{
					Level: proto.DiskSpace_Level(level), FreeBytes: int64(100 - i), TakesBytes: int64(20 - 10*level),
				}, given: 1000, at: time.Now()}
				if unicode.IsUpper(c) {
					r.since = r.at
				}
				reports[id] = r
			}
		}
		servers = append(servers, Server{ID: "nonvoter"})
		reports["nonvoter"] = diskReport{DiskSpace: &proto.DiskSpace{Level: diskFull}}
		level, taken, tight, better, without := clusterLevel(servers, "0", reports, time.Now())
		if want := level > diskEnough || strings.ContainsAny(row.voters, "L") || strings.ContainsAny(row.voters[:1], "lf"); tight != want {
			t.Errorf("%s: tight is %v", row.voters, tight)
		}
		if taken != 1000+row.taken {
			t.Errorf("%s: %d bytes are taken, want %d", row.voters, taken-1000, row.taken)
		}
		if got := strings.Trim(fmt.Sprint(without), "[]"); level != row.want || better != row.better || got != row.without {
			t.Errorf("%s: %v, better %q, without %q", row.voters, level, better, got)
		}
	}
}

// TestSlowest: a leader keeps entries for voters that are behind, unless they do not report, or stand still.
func TestSlowest(t *testing.T) {
	now := time.Now()
	for _, row := range []struct {
		reports string // of each other voter: how far it has got, since when, and the report's age
		want    uint64
	}{
		{"", 0},
		{"7 0s 0s", 7},
		{"9 0s 0s, 7 4s 2s, 8 0s 0s", 7},
		{"9 0s 0s, 7 6s 0s", 9},
		{"9 0s 0s, 7 4s 4s", 9},
		{"0 0s 0s, 9 0s 0s", 9}, // of a release that does not say it
		{"7 6s 0s", 0},
	} {
		d := newDiskSpace(&Config{}, nil)
		for i, text := range strings.Split(row.reports, ", ") {
			var end uint64
			var moved, age string
			if _, err := fmt.Sscan(text, &end, &moved, &age); row.reports != "" && err != nil {
				t.Fatal(err)
			}
			ago := func(text string) time.Time {
				d, _ := time.ParseDuration(text)
				return now.Add(-d)
			}
			d.others[proto.NodeID(fmt.Sprint(i))] = diskReport{DiskSpace: &proto.DiskSpace{Committed: end}, at: ago(age), moved: ago(moved)}
		}
		if got := d.slowest(now); got != row.want {
			t.Errorf("%s: %d, want %d", row.reports, got, row.want)
		}
	}
	// A report of the same end does not count as a move.
	d := newDiskSpace(&Config{}, nil)
	d.note("n", &proto.DiskSpace{Committed: 5})
	first := d.others["n"].moved
	d.note("n", &proto.DiskSpace{Committed: 5})
	if again := d.others["n"]; again.moved != first || again.at.Before(first) {
		t.Errorf("moved %v, then %v", first, again.moved)
	}
}

// mounted returns a directory with a file system of its own.
func mounted(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", options, "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("mounting is not allowed here: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	return dir
}

// filler is the file that fills a disk.
const filler = "filler"

// fillDisk takes all room of a file system, and returns what gives it back.
func fillDisk(t *testing.T, dir string) (empty func()) {
	t.Helper()
	path := filepath.Join(dir, filler)
	f, err := os.Create(path)
	must.OK(t, err)
	for err == nil {
		_, err = f.Write(make([]byte, 64<<10))
	}
	for err = nil; err == nil; {
		_, err = f.Write(make([]byte, 4<<10))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	_ = f.Close()
	return func() {
		if err := os.Remove(path); err != nil {
			t.Error(err)
		}
	}
}

// TestLogBound: a log that grows beyond its bytes is cut each time within a moment. Where that was done every 10 s at most, fast
// writes made it several times as long.
func TestLogBound(t *testing.T) {
	const bound, rounds = 4 << 20, 5
	c := newCluster(t, 1, func(cfg *Config) {
		cfg.TestHooks.SegmentBytes = bound / 16
		cfg.Limits.LogBytes = bound
	})
	leader := c.leader()
	began := time.Now()
	for round := range rounds {
		for i := range 2 * bound / (64 << 10) {
			if _, err := leader.Propose(c.ctx(), write(fmt.Sprint(i), strings.Repeat("x", 64<<10))); err != nil {
				t.Fatal(err)
			}
		}
		c.eventually("the log is cut", func() error {
			if n := leader.LogBytes(); n > bound {
				return fmt.Errorf("round %d: %d bytes", round, n)
			}
			return nil
		})
	}
	// Not even two pauses of 10 s.
	if took := time.Since(began); took > 20*time.Second { //wall: what it was before took 40 s, most of it pauses; this takes 5
		t.Errorf("%d cuts took %s", rounds, took)
	}
}

// TestFullDisks fills one, two and three disks of three under load. No node ends, nothing that was acknowledged is
// lost, what needs no room goes on, and what needs room is refused while a majority has none, and goes on
// by itself when there is room again.
func TestFullDisks(t *testing.T) {
	t.Parallel()
	for full := 1; full <= 3; full++ {
		for _, leads := range []bool{true, false} {
			if full == 3 && !leads {
				continue
			}
			t.Run(fmt.Sprintf("%d, the leader's among them: %v", full, leads), func(t *testing.T) { testFullDisks(t, full, leads) })
		}
	}
}

// TestLargeHistoryOnFullDisks: objects fill the disks with their history, of which each takes a good part of a step of the floor. Nodes refuse
// writes for moments, at different times, and the cluster goes on: no node falls behind for good, as it would if the entries that it
// misses were cut, because there is no room for a snapshot.
func TestLargeHistoryOnFullDisks(t *testing.T) {
	t.Parallel()
	c, _ := onDisksOfTheirOwn(t, "size=192m")
	const writers, rounds, size = 4, 80, 700 << 10
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute) //wall: it takes ten seconds, minutes on a busy machine with -race, and where a node has got stuck it never ends
	defer cancel()
	var refused atomic.Int64
	var done sync.WaitGroup
	for i := range writers {
		m := c.nodes[[]proto.NodeID{"a", "b", "c"}[i%3]]
		done.Go(func() {
			value := strings.Repeat(fmt.Sprint(i), size)
			for round := 0; round < rounds; {
				w := write(fmt.Sprint("object", i), value)
				r, err := m.Store.Propose(ctx, w)
				switch {
				case err == nil && r.Outcome == proto.Outcome_OUTCOME_APPLIED:
					round++
				case err == nil && r.Outcome == proto.Outcome_OUTCOME_NO_SPACE, errors.Is(err, storeerrors.ErrDiskFull), errors.Is(err, storeerrors.ErrUnknownOutcome):
					refused.Add(1)
					select {
					case <-time.After(20 * time.Millisecond):
					case <-ctx.Done():
						t.Errorf("round %d of %d", round, rounds)
						return
					}
				default:
					t.Errorf("round %d: %v %v", round, r, err)
					return
				}
			}
		})
	}
	done.Wait()
	t.Logf("%d writes were refused", refused.Load()) // none where writes are slow: then the log and the history are short in time
	c.eventually("all nodes have all, and room", func() error {
		for _, m := range c.nodes {
			if own, _ := m.Disk(); m.Applied() != c.leader().Applied() || own.GetLevel() != diskEnough {
				return fmt.Errorf("%s at %d, the leader at %d: %v", m.id, m.Applied(), c.leader().Applied(), own)
			}
		}
		return nil
	})
	c.sameHash()
}

func testFullDisks(t *testing.T, full int, leads bool) {
	c, dirs := onDisksOfTheirOwn(t, "size=192m")
	leader := c.leader()
	var load load
	load.run(t, c)
	c.eventually("some writes", func() error { return load.acknowledged(100) })

	victims := []*testNode{}
	if leads {
		victims = append(victims, leader)
	}
	for _, m := range c.nodes {
		if len(victims) < full && !slices.Contains(victims, m) && (leads || m != leader) {
			victims = append(victims, m)
		}
	}
	var empty []func()
	for _, m := range victims {
		empty = append(empty, fillDisk(t, dirs[m.id]))
	}
	put := func(table, key string, size int) (mvcc.Result, error) {
		w := write(key, strings.Repeat("x", size))
		w.Table = table
		return c.leader().Propose(c.ctx(), w)
	}
	if full == 1 {
		c.eventually("a node with room leads", func() error {
			if m := c.leader(); m == victims[0] {
				return fmt.Errorf("%s leads", m.id)
			}
			return nil
		})
		before := load.count()
		c.eventually("writes go on", func() error { return load.acknowledged(before + 100) })
	} else {
		untilRefused(t, c)
		// Many times the reserve: the log's files go round, and state.db's pages do.
		for range 500 {
			c.eventually("a write that needs no room", func() error {
				r, err := put("t", "lease", 64<<10)
				if err == nil && r.Outcome != proto.Outcome_OUTCOME_APPLIED {
					err = fmt.Errorf("%v", r)
				}
				return err
			})
		}
		for _, key := range load.some(20) {
			began := time.Now()
			c.eventually("a delete", func() error {
				_, err := c.leader().Propose(c.ctx(), &proto.Write{Table: "t", Key: key, Op: proto.Op_OP_DELETE})
				if err == nil {
					load.forget(key)
				}
				return err
			})
			//wall: a delete on a full disk takes milliseconds; one that waits for room waits for ever
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("a delete took %v", took)
			}
		}
	}
	for _, f := range empty {
		f()
	}
	goesOn(t, c, &load)
}

// load writes objects of some KiB through all nodes, and remembers those that were acknowledged.
type load struct {
	end  context.CancelFunc
	done sync.WaitGroup

	tried atomic.Int64 // writes that have ended somehow

	mu   sync.Mutex
	keys map[string]string
}

func (l *load) run(t *testing.T, c *cluster) {
	ctx, end := context.WithCancel(context.Background())
	l.end, l.keys = end, map[string]string{}
	t.Cleanup(l.stop)
	for _, m := range c.nodes {
		store := m.Store
		l.done.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				key, value := fmt.Sprintf("%s-%d", m.id, i), strings.Repeat(fmt.Sprint(i%10), 100+i*7919%2000)
				w := write(key, value)
				w.Condition = proto.Condition_CONDITION_ABSENT
				r, err := store.Propose(ctx, w)
				l.tried.Add(1)
				if err == nil && r.Outcome == proto.Outcome_OUTCOME_APPLIED {
					l.mu.Lock()
					l.keys[key] = value
					l.mu.Unlock()
				}
				select {
				case <-ctx.Done():
				case <-time.After(5 * time.Millisecond):
				}
			}
		})
	}
}

func (l *load) stop() {
	l.end()
	l.done.Wait()
}

// tries waits until some more writes have ended.
func (l *load) tries(t *testing.T, c *cluster, n int64) {
	t.Helper()
	n += l.tried.Load()
	c.eventually("writes end", func() error {
		if now := l.tried.Load(); now < n {
			return fmt.Errorf("%d of %d", now, n)
		}
		return nil
	})
}

func (l *load) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.keys)
}

func (l *load) acknowledged(n int) error {
	if have := l.count(); have < n {
		return fmt.Errorf("%d of %d writes", have, n)
	}
	return nil
}

func (l *load) some(n int) (keys []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key := range l.keys {
		if keys = append(keys, key); len(keys) == n {
			break
		}
	}
	return keys
}

func (l *load) forget(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.keys, key)
}

func (l *load) check(t *testing.T, c *cluster) {
	t.Helper()
	for _, m := range c.nodes {
		table, at := m.State().Table("t"), m.Applied()
		for key, value := range l.keys {
			if v, err := table.Get(key, at); err != nil || v == nil || string(v.Value()) != value {
				t.Errorf("%s: %s was acknowledged, and is not there: %v", m.id, key, err)
			}
		}
	}
}
