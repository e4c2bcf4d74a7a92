package raftstore

import (
	"bytes"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	"github.com/quorate/quorate/raftstore/watch"
)

// history makes marks a second apart: each second writes some revisions of some
// bytes.
func history(seconds int, revisions, bytes int64) *marks {
	m := &marks{}
	for i := range int64(seconds) {
		m.list = append(m.list, mark{time.Unix(i, 0), proto.Revision(revisions * (i + 1)), bytes * (i + 1)})
	}
	return m
}

func TestFloorByAge(t *testing.T) {
	for _, c := range []struct {
		seconds int
		window  time.Duration
		want    proto.Revision
		kept    int
	}{
		{1, time.Minute, 0, 1},
		{60, time.Minute, 0, 60},
		{61, time.Minute, 10, 61},
		{100, time.Minute, 400, 61},
		{100, time.Second, 990, 2},
	} {
		m := history(c.seconds, 10, 1)
		if got := m.byAge(c.window); got != c.want || len(m.list) != c.kept {
			t.Errorf("after %d s with a window of %s the floor is at %d with %d marks kept, want %d and %d",
				c.seconds, c.window, got, len(m.list), c.want, c.kept)
		}
	}
}

func TestFloorByBytes(t *testing.T) {
	// 100 seconds of 10 revisions and 1,000 bytes each. A floor leaves three quarters.
	for _, c := range []struct {
		most    int64
		present proto.Revision
		want    proto.Revision
	}{
		{1_000_000, 0, 10}, // what is above the cap lies before the first mark
		{80_000, 0, 400},
		{80_000, 300, 400},
		{80_000, 400, 410}, // the present floor was not enough
		{6_000, 0, 950},    // the last 5 s stay, as they are within the bound
		{5_000, 0, 950},
		{4_999, 0, 960}, // they are not
		{4_000, 0, 960},
		{3_999, 0, 970},
		{1_000, 0, 990},
		{1, 0, 990}, // the last second stays
		{1, 990, 0},
	} {
		if got := history(100, 10, 1000).byBytes(c.most, c.present, 5*time.Minute); got != c.want {
			t.Errorf("at most %d above %d: the floor is at %d, want %d", c.most, c.present, got, c.want)
		}
	}
}

// A snapshot replaces the state: its bytes are counted from the start.
func TestFloorByBytesAfterSnapshot(t *testing.T) {
	m := history(100, 10, 1000)
	m.add(time.Unix(100, 0), mvcc.New())
	if got := m.byBytes(5_000, 0, 5*time.Minute); got == 0 || got > 960 {
		t.Errorf("the floor is at %d", got)
	}
}

// TestHistoryLimit: what nobody has bounded follows from the storage limit, which the voter with the least memory has set.
func TestHistoryLimit(t *testing.T) {
	const mib = 1 << 20
	for _, row := range []struct{ set, storage, want int64 }{
		{0, 0, 1024 * mib}, // the voters have not agreed yet, or are of an earlier release
		{0, 6144 * mib, 1024 * mib},
		{0, 512 * mib, 256 * mib},
		{0, mib, 64 * mib},
		{5, 512 * mib, 5},
		{4096 * mib, 512 * mib, 4096 * mib},
	} {
		if got := (&Limits{HistoryBytes: row.set}).historyBytes(row.storage); got != row.want {
			t.Errorf("%d bytes are set, and %d may be stored: %d, want %d", row.set, row.storage, got, row.want)
		}
	}
}

// The cap on bytes holds under load, and the floor is the same on every node. Age moves the
// floor too, but not past what is younger than the history.
func TestHistoryBytes(t *testing.T) {
	t.Parallel()
	const limit, history = 2 << 20, time.Second
	var (
		mu      sync.Mutex
		applied = map[uint64]time.Time{}
		byBytes atomic.Bool
	)
	c := newCluster(t, 3, func(cfg *Config) {
		cfg.Limits.HistoryBytes = limit
		cfg.Timing.History = history
		if cfg.Node != "a" {
			return
		}
		cfg.TestHooks.Applied = func(entry *raft.Log, _ mvcc.Result) {
			mu.Lock()
			defer mu.Unlock()
			now := time.Now()
			applied[entry.Index] = now
			if floor, ok := floorOf(entry); ok && now.Sub(applied[floor]) < history {
				byBytes.Store(true)
			}
		}
	})
	m := c.leader()
	value := string(bytes.Repeat([]byte("x"), 128<<10))
	for i := 0; m.State().HistoryWritten() < 3*limit || !byBytes.Load(); i++ {
		if _, err := m.Propose(c.ctx(), write(fmt.Sprint("k", i%16), value)); err != nil {
			t.Fatal(err)
		}
	}
	c.eventually("the history is within its bytes", func() error {
		if _, now := m.State().History(); now > limit || m.State().Floor() == 0 {
			return fmt.Errorf("%d bytes of %d, floor %d", now, m.State().HistoryWritten(), m.State().Floor())
		}
		return nil
	})
	c.eventually("all nodes have the floor", func() error {
		for _, n := range c.nodes {
			if n.State().Floor() != m.State().Floor() || n.Applied() != m.Applied() {
				return fmt.Errorf("%s: floor %d at %d, the leader %d at %d", n.id, n.State().Floor(), n.Applied(), m.State().Floor(), m.Applied())
			}
		}
		return nil
	})
}

// floorOf returns the floor that an entry sets, if it sets one.
func floorOf(entry *raft.Log) (floor uint64, ok bool) {
	kind, body, err := proto.Split(entry.Data)
	var compact proto.Compact
	if err != nil || kind != proto.KindCompact || proto.Decode(body, &compact) != nil {
		return 0, false
	}
	return compact.Floor, true
}

// The floor never passes what is younger than a quarter of the history or leastWindow,
// also not when the compactor itself had to wait: ids of requests that may be sent
// again go with it.
func TestFloorStaysBehindASlowDisk(t *testing.T) {
	t.Parallel()
	const history, hold = 400 * time.Millisecond, 400 * time.Millisecond
	var (
		mu      sync.Mutex
		applied = map[uint64]time.Time{}
		floors  int
		stall   atomic.Bool
	)
	c := newCluster(t, 1, func(cfg *Config) {
		cfg.Timing.History = history
		cfg.Limits.HistoryBytes = 1 // as much as may go, goes
		cfg.TestHooks.Commit = func(file string, commit func() error) error {
			if ofLog(file) && stall.CompareAndSwap(true, false) {
				//sleep: a slow disk is what is tested
				time.Sleep(hold)
			}
			return commit()
		}
		cfg.TestHooks.Applied = func(entry *raft.Log, _ mvcc.Result) {
			mu.Lock()
			defer mu.Unlock()
			now := time.Now()
			applied[entry.Index] = now
			floor, ok := floorOf(entry)
			if !ok {
				return
			}
			floors++
			if age := now.Sub(applied[floor]); age < history/4 {
				t.Errorf("the floor passes entry %d, which was applied %s ago", floor, age)
			}
		}
	})
	m := c.leader()
	counted := func() int {
		mu.Lock()
		defer mu.Unlock()
		return floors
	}
	for i, next := 0, 2; next < 8; i++ {
		if _, err := m.Propose(c.ctx(), write(fmt.Sprint("k", i%4), "v")); err != nil {
			t.Fatal(err)
		}
		if counted() >= next {
			stall.Store(true)
			next += 2
		}
	}
}

// A leader that has just started goes on with the history that the process before it has seen. Ages are as long as
// the file says, at least.
func TestWindowOutlivesTheProcess(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, func(cfg *Config) { cfg.Timing.History = time.Hour })
	m := c.leader()
	c.writes(m, 10)
	old := m.Applied()
	c.writes(m, 10)
	cfg := m.cfg
	cfg.Cluster = func() proto.ClusterID { return "test" }
	s := newStore(cfg)
	s.hub = watch.New(mvcc.New())
	c.close(m)
	if got := readMarks(s.notes, cfg.Timing.History, time.Now()); len(got.list) == 0 || got.list[len(got.list)-1].applied < old {
		t.Fatalf("the process has left %v", got.list)
	}
	marks := &proto.HistoryMarksFile{Format: noteFormat, ClusterId: "test", Marks: []*proto.HistoryMark{
		{AgeMs: uint64(61 * time.Minute / time.Millisecond), Applied: uint64(old)},
		{AgeMs: uint64(time.Minute / time.Millisecond), Applied: uint64(old) + 5},
	}}
	must.OK(t, s.notes.try(marksFile, marks))
	c.open(m)
	m = c.leader()
	c.eventually("the floor is where it was an hour ago", func() error {
		if at := m.State().Floor(); at != old {
			return fmt.Errorf("it is at %d, not at %d", at, old)
		}
		return nil
	})
}

// TestStepTo: on a full disk the floor moves by as many bytes as there is room for.
func TestStepTo(t *testing.T) {
	const kb = 1000
	for _, row := range []struct {
		seconds, revisions, bytes int64
		from, to                  proto.Revision
		history, step             int64
		want                      proto.Revision
	}{
		{10, 100, 100 * kb, 0, 900, 1000 * kb, 250 * kb, 250},
		{10, 100, 100 * kb, 0, 200, 1000 * kb, 250 * kb, 200},
		{10, 100, 100 * kb, 300, 900, 700 * kb, 250 * kb, 550},
		{10, 100, 100 * kb, 300, 900, 800 * kb, 150 * kb, 375}, // more than the marks say is behind the floor
		{10, 100, 100 * kb, 300, 900, 200 * kb, 200 * kb, 900}, // less
		{10, 100, 100 * kb, 300, 900, 700 * kb, 1 << 62, 900},
		{10, 100, 100 * kb, 300, 900, 700 * kb, 1, 301},
		{10, 100, 0, 300, 900, 0, kb, 900},
		// As many versions as state.db may have to copy around.
		{10, 100, 100 << 20, 100, 900, 900 << 20, 4 << 20, 100 + 4<<20/copiedBytes},
	} {
		if got := history(int(row.seconds), row.revisions, row.bytes).stepTo(row.from, row.to, row.history, row.step); got != row.want {
			t.Errorf("%+v: %d", row, got)
		}
	}
}
