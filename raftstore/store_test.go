package raftstore

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// A write through any node is seen by linearizable reads of every node, and by
// local reads of the node that answered.
func TestWriteAnywhereReadAnywhere(t *testing.T) {
	c := newCluster(t, 3, nil)
	for id, m := range c.nodes {
		r, err := m.Propose(c.ctx(), write("from-"+string(id), "v"))
		if err != nil {
			t.Fatalf("%s: %v", id, err)
		}
		if r.Outcome != proto.Outcome_OUTCOME_APPLIED || r.Version == nil || r.Version.Revision != r.Revision {
			t.Fatalf("%s: %+v", id, r)
		}
		if v, err := m.State().Table("t").Get("from-"+string(id), m.Applied()); err != nil || v != r.Version {
			t.Errorf("%s does not read its own write: %v %v", id, v, err)
		}
		for other, x := range c.nodes {
			index, err := x.ReadIndex(c.ctx())
			if err != nil {
				t.Fatalf("%s: %v", other, err)
			}
			if index < r.Revision {
				t.Errorf("%s: read index %d is below the acknowledged write %d", other, index, r.Revision)
			}
			must.OK(t, x.WaitApplied(c.ctx(), index))
			if v, err := x.State().Table("t").Get("from-"+string(id), x.Applied()); err != nil || v == nil || v.Revision != r.Revision {
				t.Errorf("%s does not see the write of %s: %v %v", other, id, v, err)
			}
		}
	}
}

// The leader stops under load: every acknowledged write is there afterwards at
// the revision that was acknowledged, and a watch on a surviving node has seen
// each write once and in order.
func TestLeaderStopsUnderLoad(t *testing.T) {
	c := newCluster(t, 3, nil)
	leader := c.leader()
	survivor := c.other(leader)
	watcher, err := survivor.Watch("t", 0, mvcc.Interest{})
	must.OK(t, err)
	defer watcher.Close()

	const writers, each = 8, 60
	var (
		mu    sync.Mutex
		acked = map[string]proto.Revision{}
		wg    sync.WaitGroup
		half  = make(chan struct{})
		once  sync.Once
	)
	for w := range writers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range each {
				key := fmt.Sprintf("%d/%d", w, i)
				r, err := survivor.Propose(c.ctx(), &proto.Write{
					Table: "t", Key: key, Op: proto.Op_OP_PUT, Condition: proto.Condition_CONDITION_ABSENT, Value: []byte(key),
				})
				if err != nil {
					t.Errorf("%s: %v", key, err)
					return
				}
				if r.Outcome != proto.Outcome_OUTCOME_APPLIED {
					t.Errorf("%s: %v", key, r.Outcome)
				}
				mu.Lock()
				acked[key] = r.Revision
				if len(acked) == writers*each/2 {
					once.Do(func() { close(half) })
				}
				mu.Unlock()
			}
		}()
	}
	<-half
	c.close(leader)
	wg.Wait()

	table := survivor.State().Table("t")
	for key, rev := range acked {
		v, err := table.Get(key, survivor.Applied())
		if err != nil || v == nil || v.Revision != rev {
			t.Errorf("%s was acknowledged at %d: %v %v", key, rev, v, err)
		}
	}
	var last proto.Revision
	seen := map[string]int{}
	buf := make([]*mvcc.Version, 64)
	for {
		n, _, err := watcher.Next(buf)
		must.OK(t, err)
		if n == 0 {
			break
		}
		for _, v := range buf[:n] {
			if v.Revision <= last {
				t.Errorf("event %d after %d", v.Revision, last)
			}
			last = v.Revision
			seen[v.Key]++
		}
	}
	for key := range acked {
		if seen[key] != 1 {
			t.Errorf("the watch saw %s %d times", key, seen[key])
		}
	}
}

// A restart of everything at once keeps state, revisions and history.
func TestRestartKeepsEverything(t *testing.T) {
	c := newCluster(t, 3, nil)
	leader := c.leader()
	var first, last proto.Revision
	for i := range 50 {
		r, err := leader.Propose(c.ctx(), write(fmt.Sprint(i%10), fmt.Sprint(i)))
		must.OK(t, err)
		if first == 0 {
			first = r.Revision
		}
		last = r.Revision
	}
	for _, m := range c.nodes {
		c.close(m)
	}
	for _, m := range c.nodes {
		c.open(m)
	}
	c.leader()
	for id, m := range c.nodes {
		must.OK(t, m.WaitApplied(c.ctx(), last))
		w, err := m.Watch("t", first, mvcc.Interest{})
		must.OK(t, err)
		n, _, err := w.Next(make([]*mvcc.Version, 100))
		if err != nil || n != 49 {
			t.Errorf("%s: a watch behind the first write saw %d of 49 events (%v)", id, n, err)
		}
		w.Close()
	}
	c.sameHash()
}

// sameHash waits until all nodes have applied the same index, and compares.
func (c *cluster) sameHash() {
	c.t.Helper()
	c.eventually("the same index and hash on all nodes", func() error {
		var first mvcc.Mark
		for id, m := range c.nodes {
			if m.Store == nil {
				continue
			}
			mark := m.State().Mark()
			if first.Applied == 0 {
				first = mark
			}
			if mark.Applied != first.Applied {
				return fmt.Errorf("%s is at %d, another at %d", id, mark.Applied, first.Applied)
			}
			if mark.Hash != first.Hash {
				c.t.Fatalf("%s has hash %x at %d, another has %x", id, mark.Hash, mark.Applied, first.Hash)
			}
		}
		return nil
	})
}

// A follower that was away longer than the log reaches gets a snapshot, history
// included, and open watches on it go on.
func TestSnapshotInstall(t *testing.T) {
	c := newCluster(t, 3, func(cfg *Config) {
		cfg.Limits.TrailingLogs, cfg.Limits.SnapshotThreshold = 16, 32
		cfg.Timing.SnapshotInterval = 50 * time.Millisecond
	})
	leader := c.leader()
	away := c.other(leader)
	r, err := leader.Propose(c.ctx(), write("before", "v"))
	must.OK(t, err)
	c.close(away)
	for i := range 400 {
		if _, err := leader.Propose(c.ctx(), write(fmt.Sprint(i%20), fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	c.eventually("the log is cut", func() error {
		if first, err := leader.log.FirstIndex(); err != nil || first < 300 {
			return fmt.Errorf("the log begins at %d: %w", first, err)
		}
		return nil
	})
	c.open(away)
	must.OK(t, away.WaitApplied(c.ctx(), leader.Applied()))
	if n := away.Counters().SnapshotsInstalled; n == 0 {
		t.Error("no snapshot was installed: the test shows nothing")
	}
	w, err := away.Watch("t", r.Revision, mvcc.Interest{})
	must.OK(t, err)
	defer w.Close()
	n, _, err := w.Next(make([]*mvcc.Version, 500))
	if err != nil || n != 400 {
		t.Errorf("the history behind a snapshot holds %d of 400 events (%v)", n, err)
	}
	c.sameHash()
}

// Without a quorum, writes and linearizable reads fail in time, and local reads
// go on; with the quorum back, everything does, without a restart.
func TestMinority(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, func(cfg *Config) { silent(cfg); cfg.Timing.NoLeader = 500 * time.Millisecond })
	leader := c.leader()
	if _, err := leader.Propose(c.ctx(), write("k", "v")); err != nil {
		t.Fatal(err)
	}
	var gone []*testNode
	for _, m := range c.nodes {
		if m != leader {
			gone = append(gone, m)
			c.close(m)
		}
	}
	began := time.Now()
	if _, err := leader.Propose(c.ctx(), write("k", "w")); !errors.Is(err, ErrNoLeader) && !errors.Is(err, ErrUnknownOutcome) {
		t.Errorf("a write without a quorum: %v", err)
	}
	if _, err := leader.ReadIndex(c.ctx()); !errors.Is(err, ErrNoLeader) {
		t.Errorf("a read index without a quorum: %v", err)
	}
	//wall: a write without a quorum would wait for ten seconds
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the refusals took %s", took)
	}
	if v, err := leader.State().Table("t").Get("k", leader.Applied()); err != nil || v == nil {
		t.Errorf("a local read without a quorum: %v %v", v, err)
	}
	for _, m := range gone {
		c.open(m)
	}
	c.eventually("writes again", func() error {
		_, err := leader.Propose(c.ctx(), write("k", "x"))
		return err
	})
}
