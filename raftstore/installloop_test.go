package raftstore

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/disk"
	"github.com/quorate/quorate/raftstore/watch"
)

// raft#697 on our store: the loop is found, the process ends, and the next one
// starts without the log and catches up. (Package regress shows the loop itself.)
func TestInstallLoopIsLeft(t *testing.T) {
	t.Parallel()
	for range 5 {
		if installLoopIsLeft(t) {
			return
		}
	}
	t.Fatal("no loop ever began")
}

// installLoopIsLeft is false if there was no loop: a request that was made before
// the leader cut its log, and arrives when the links are whole, clears the dead
// entries.
func installLoopIsLeft(t *testing.T) bool {
	f := newFaults()
	c := newCluster(t, 3, func(cfg *Config) {
		f.install(cfg)
		silent(cfg)
		cfg.Timing.SnapshotInterval = 20 * time.Millisecond
		cfg.Limits.TrailingLogs, cfg.Limits.SnapshotThreshold = 1, 8
		// A message that waits for a keeps no entries: they would clear the dead ones.
		cfg.TestHooks.RetryFor = time.Millisecond
		if cfg.Node == "a" {
			cfg.Timing.Heartbeat, cfg.Timing.Election, cfg.Timing.Lease = unheard, unheard, unheard
			cfg.Limits.TrailingLogs, cfg.Limits.SnapshotThreshold = 10_000, 10_000
		}
	})
	a := c.nodes["a"]
	c.makeLeader("a")
	f.part(f.raft, true, "a", "b", "c")
	f.part(f.calls, true, "a", "b", "c")
	for range 200 {
		a.node.Raft().Apply([]byte("never committed"), time.Second)
	}
	var leader *testNode
	c.eventually("b or c leads", func() error {
		for _, id := range []proto.NodeID{"b", "c"} {
			if m := c.nodes[id]; m.IsLeader() {
				leader = m
				return nil
			}
		}
		return errors.New("not yet")
	})
	for i := range 40 {
		if _, err := leader.Propose(c.ctx(), write("k", fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	c.eventually("the log is cut", func() error {
		if first, err := leader.log.FirstIndex(); err != nil || first <= uint64(a.Applied())+1 {
			return fmt.Errorf("the log begins at %d (%v)", first, err)
		}
		return nil
	})
	if dead, err := a.log.LastIndex(); err != nil || dead <= leader.node.Raft().LastIndex() {
		t.Fatalf("setup: a's log ends at %d, the leader's at %d (%v)", dead, leader.node.Raft().LastIndex(), err)
	}
	f.part(f.raft, false, "a", "b", "c")
	f.part(f.calls, false, "a", "b", "c")
	looped := false
	c.eventually("a catches up, or finds the loop", func() error {
		select {
		case err := <-a.fatal:
			looped = true
			if !errors.Is(err, ErrDeadEntries) {
				t.Fatal(err)
			}
			return nil
		default:
		}
		if end, err := a.log.LastIndex(); err != nil || end > leader.node.Raft().LastIndex() || a.Applied() < leader.Applied() {
			return fmt.Errorf("%d installs; applied %d of %d, the log ends at %d (%v)", a.Counters().SnapshotsInstalled, a.Applied(), leader.Applied(), end, err)
		}
		return nil
	})
	if !looped {
		return false
	}
	// What would have ended the process has returned here, so there may be more.
	must.OK(t, errors.Join(a.Store.Close(), a.rpc.Close(), a.host.Close()))
	a.Store = nil
	for len(a.fatal) > 0 {
		if err := <-a.fatal; !errors.Is(err, ErrDeadEntries) {
			t.Error(err)
		}
	}
	c.open(a)
	r, err := leader.Propose(c.ctx(), write("k", "after"))
	must.OK(t, err)
	if err := a.WaitApplied(c.ctx(), r.Revision); err != nil {
		t.Fatalf("after the restart: %v", err)
	}
	c.sameHash()
	return true
}

// A slow follower gets one snapshot after another, each newer: no loop.
func TestNewerSnapshotsAreNoLoop(t *testing.T) {
	source, sink := newTestFSM(t), newTestFSM(t)
	for i := range 4 * maxInstalls {
		write := write("k", fmt.Sprint(i))
		frame, err := proto.Encode(proto.KindWrite, write)
		must.OK(t, err)
		source.Apply(&raft.Log{Index: uint64(i + 1), Term: 1, Type: raft.LogCommand, Data: frame})
		var snapshot bytes.Buffer
		must.OK(t, source.sync())
		if _, err := source.db.WriteBackup(&snapshot, nil); err != nil {
			t.Fatal(err)
		}
		must.OK(t, sink.Restore(io.NopCloser(&snapshot)))
		if got := sink.hub.State().Applied(); got != proto.Revision(i+1) {
			t.Fatalf("restored %d, want %d", got, i+1)
		}
	}
	var same bytes.Buffer
	if _, err := source.db.WriteBackup(&same, nil); err != nil {
		t.Fatal(err)
	}
	sink.fatal = func(err error) {
		if !errors.Is(err, ErrInstallLoop) {
			t.Fatal(err)
		}
		sink.fatal = nil
	}
	for range maxInstalls + 1 {
		must.OK(t, sink.Restore(io.NopCloser(bytes.NewReader(same.Bytes()))))
	}
	if sink.fatal != nil {
		t.Error("the same snapshot again and again is no loop?")
	}
}

func newTestFSM(t *testing.T) *fsm {
	t.Helper()
	fatal := func(err error) { t.Error(err) }
	db, err := disk.Open(t.TempDir(), disk.Options{Fatal: fatal})
	must.OK(t, err)
	state, err := db.Load()
	must.OK(t, err)
	f := &fsm{
		db: db, hub: watch.New(state), waiters: &waiters{}, fatal: fatal, applied: func() {},
		snapshotConfiguration: func() (uint64, raft.Configuration) { return 0, raft.Configuration{} },
	}
	t.Cleanup(func() {
		f.hub.Close()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}
