package raftstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/disk"
	"github.com/quorate/quorate/raftstore/watch"
)

// Raft drops committed batches that wait for the state machine when it shuts
// down, and never answers their futures. Neither Close nor a caller may hang on
// one.
func TestCloseUnderLoad(t *testing.T) {
	for round := range 3 {
		c := newCluster(t, 1, func(cfg *Config) { cfg.Limits.MaxAppendEntries = 2 })
		m := c.leader()
		// A state machine that lags, so that batches wait for it.
		applied := m.fsm.applied
		m.fsm.applied = func() { time.Sleep(2 * time.Millisecond); applied() }
		var writers sync.WaitGroup
		ctx, cancel := context.WithCancel(context.Background())
		for w := range 32 {
			writers.Add(1)
			go func() {
				defer writers.Done()
				ctx := ctx
				if w%2 == 0 {
					ctx = context.Background()
				}
				for i := 0; ; i++ {
					if _, err := m.store.Load().Propose(ctx, write(fmt.Sprint(w), fmt.Sprint(i))); err != nil {
						if !errors.Is(err, ErrClosed) && !errors.Is(err, ErrUnknownOutcome) && !errors.Is(err, ErrNoLeader) && ctx.Err() == nil {
							t.Errorf("a proposal at Close: %v", err)
						}
						return
					}
				}
			}()
		}
		c.eventually("load", func() error {
			if m.Applied() < 20 {
				return errors.New("not yet")
			}
			return nil
		})
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.close(m)
			writers.Wait()
		}()
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			t.Fatalf("round %d: Close or a caller hangs on a proposal that Raft never answers", round)
		}
		cancel()
	}
}

// The index of the configuration is what changes are compared and set with.
func TestMembersIndex(t *testing.T) {
	c := newCluster(t, 3, func(cfg *Config) {
		cfg.Limits.TrailingLogs, cfg.Limits.SnapshotThreshold = 8, 16
		cfg.Timing.SnapshotInterval = 20 * time.Millisecond
	})
	l := c.leader()
	first, _, err := l.Members()
	if err != nil || first == 0 {
		t.Fatalf("the first configuration is at %d (%v)", first, err)
	}
	if err := l.AddNonvoter(c.ctx(), "x", "127.0.0.1:1", first); err != nil {
		t.Fatal(err)
	}
	second, servers, err := l.Members()
	if err != nil || second <= first || len(servers) != 4 {
		t.Fatalf("after a change the configuration of %d is at %d, before it at %d (%v)", len(servers), second, first, err)
	}
	if err := l.RemoveServer(c.ctx(), "x", first); !errors.Is(err, ErrConfigurationChanged) {
		t.Errorf("a change of the configuration before: %v, want %v", err, ErrConfigurationChanged)
	}
	// A restart finds it in the snapshot when the log does not hold it any more.
	away := c.other(l)
	for i := range 100 {
		if _, err := l.Propose(c.ctx(), write("k", fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	c.eventually("the log is cut", func() error {
		if first, err := away.log.FirstIndex(); err != nil || first <= second {
			return fmt.Errorf("the log begins at %d: %w", first, err)
		}
		return nil
	})
	c.close(away)
	c.open(away)
	if got, _, err := away.Members(); err != nil || got != second {
		t.Errorf("after a restart the configuration is at %d, want %d (%v)", got, second, err)
	}
}

// A node that was never confirmed to be current may be stale by any time.
func TestStalenessBeforeTheFirstConfirmation(t *testing.T) {
	f := newFaults()
	c := newCluster(t, 3, func(cfg *Config) { f.install(cfg); cfg.Timing.NoLeader = 300 * time.Millisecond })
	l := c.leader()
	away := c.other(l)
	var others []proto.NodeID
	for id := range c.nodes {
		if id != away.id {
			others = append(others, id)
		}
	}
	c.close(away)
	f.part(f.raft, true, away.id, others...)
	f.part(f.calls, true, away.id, others...)
	if _, err := l.Propose(c.ctx(), write("k", "missed")); err != nil {
		t.Fatal(err)
	}
	written := time.Now()
	c.open(away)
	if s := away.Staleness(); s < time.Since(written) {
		t.Errorf("a node that was just started alone, and lacks a write, says that it is %s stale at most", s)
	}
	f.part(f.raft, false, away.id, others...)
	f.part(f.calls, false, away.id, others...)
	c.eventually("the bound comes down", func() error {
		if s := away.Staleness(); s > 5*time.Second {
			return fmt.Errorf("%s", s)
		}
		return nil
	})
}

// raft#697 on our store: the loop is found, the process ends, and the next one
// starts without the log and catches up. (Package regress shows the loop itself.)
func TestInstallLoopIsLeft(t *testing.T) {
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
		cfg.Timing.SnapshotInterval = 20 * time.Millisecond
		cfg.Limits.TrailingLogs, cfg.Limits.SnapshotThreshold = 1, 8
		if cfg.Node == "a" {
			cfg.Timing.Heartbeat, cfg.Timing.Election, cfg.Timing.Lease = time.Minute, time.Minute, time.Minute
			cfg.Limits.TrailingLogs, cfg.Limits.SnapshotThreshold = 10_000, 10_000
		}
	})
	a := c.nodes["a"]
	if l := c.leader(); l != a {
		if err := l.TransferLeadership(c.ctx(), "a"); err != nil {
			t.Fatal(err)
		}
	}
	c.eventually("a leads", func() error {
		if !a.IsLeader() {
			return errors.New("not yet")
		}
		return nil
	})
	f.part(f.raft, true, "a", "b", "c")
	f.part(f.calls, true, "a", "b", "c")
	for range 200 {
		a.raft.Apply([]byte("never committed"), time.Second)
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
			return fmt.Errorf("the log begins at %d: %w", first, err)
		}
		return nil
	})
	if dead, err := a.log.LastIndex(); err != nil || dead <= leader.raft.LastIndex() {
		t.Fatalf("setup: a's log ends at %d, the leader's at %d (%v)", dead, leader.raft.LastIndex(), err)
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
		if end, err := a.log.LastIndex(); err != nil || end > leader.raft.LastIndex() || a.Applied() < leader.Applied() {
			return fmt.Errorf("%d installs; applied %d of %d, the log ends at %d: %w", a.Counters().SnapshotsInstalled, a.Applied(), leader.Applied(), end, err)
		}
		return nil
	})
	if !looped {
		return false
	}
	// What would have ended the process has returned here, so there may be more.
	if err := errors.Join(a.Store.Close(), a.rpc.Close(), a.host.Close()); err != nil {
		t.Fatal(err)
	}
	a.Store = nil
	for len(a.fatal) > 0 {
		if err := <-a.fatal; !errors.Is(err, ErrDeadEntries) {
			t.Error(err)
		}
	}
	c.open(a)
	r, err := leader.Propose(c.ctx(), write("k", "after"))
	if err != nil {
		t.Fatal(err)
	}
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
		if err != nil {
			t.Fatal(err)
		}
		source.Apply(&raft.Log{Index: uint64(i + 1), Term: 1, Type: raft.LogCommand, Data: frame})
		var snapshot bytes.Buffer
		if err := source.db.Sync(); err != nil {
			t.Fatal(err)
		}
		if _, err := source.db.WriteBackup(&snapshot, nil); err != nil {
			t.Fatal(err)
		}
		if err := sink.Restore(io.NopCloser(&snapshot)); err != nil {
			t.Fatal(err)
		}
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
		if err := sink.Restore(io.NopCloser(bytes.NewReader(same.Bytes()))); err != nil {
			t.Fatal(err)
		}
	}
	if sink.fatal != nil {
		t.Error("the same snapshot again and again is no loop?")
	}
}

func newTestFSM(t *testing.T) *fsm {
	t.Helper()
	fatal := func(err error) { t.Error(err) }
	db, err := disk.Open(t.TempDir(), disk.Options{Fatal: fatal})
	if err != nil {
		t.Fatal(err)
	}
	state, err := db.Load()
	if err != nil {
		t.Fatal(err)
	}
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

// A proposal for a node that cannot be reached is in no log: that is not an
// unknown outcome.
func TestUnreachableIsNotAsked(t *testing.T) {
	c := newCluster(t, 1, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	var call peerCall
	if err := c.leader().streams.send(c.ctx(), "z", l.Addr().String(), &call); !errors.Is(err, errCallNotSent) {
		t.Errorf("a call to nobody: %v, want %v", err, errCallNotSent)
	}
}

// A peer that stopped where the log no longer reaches is not nudged again and
// again.
func TestNudgeGivesUp(t *testing.T) {
	c := newCluster(t, 1, nil)
	m := c.leader()
	// It acknowledged what is beyond any log, and does not know its commit.
	p := &peerProgress{term: m.leader.term.Load(), acked: 1 << 40}
	m.transport.mu.Lock()
	m.transport.peers["z"] = p
	m.transport.mu.Unlock()
	first, err := m.log.FirstIndex()
	if err != nil {
		t.Fatal(err)
	}
	if err := m.log.Drop(first, m.raft.CommitIndex()); err != nil {
		t.Fatal(err)
	}
	m.transport.wakeUp()
	c.eventually("the peer counts as told", func() error {
		m.transport.mu.Lock()
		defer m.transport.mu.Unlock()
		if p.busy || p.commit < m.raft.CommitIndex() {
			return fmt.Errorf("told %d of %d", p.commit, m.raft.CommitIndex())
		}
		return nil
	})
}

// Raft receives a snapshot on its main loop and looks at nothing else until it
// has it all. Close does not wait for that.
func TestCloseWhileReceiving(t *testing.T) {
	c := newCluster(t, 1, nil)
	m, z := c.leader(), c.add("z")
	data, stop := io.Pipe()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		var resp raft.InstallSnapshotResponse
		// It ends with the stream, or with the test.
		_ = z.rpc.InstallSnapshot("a", raft.ServerAddress(m.addr), &raft.InstallSnapshotRequest{
			RPCHeader:       raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte("z"), Addr: []byte(z.addr)},
			SnapshotVersion: 1, Term: 100, LastLogIndex: 1000, LastLogTerm: 99, Size: 1 << 20,
			Configuration: raft.EncodeConfiguration(raft.Configuration{Servers: []raft.Server{{ID: "a", Address: raft.ServerAddress(m.addr)}}}),
		}, &resp, data)
	}()
	c.eventually("the snapshot begins", func() error {
		if m.raft.CurrentTerm() < 100 {
			return errors.New("not yet")
		}
		return nil
	})
	began := time.Now()
	c.close(m)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("Close took %s", took)
	}
	stop.Close()
	<-sent
}

// A state that holds another entry at its index than the committed log has is
// found as soon as the log reaches it.
func TestDivergedStateIsFatal(t *testing.T) {
	c := newCluster(t, 1, nil)
	l := c.leader()
	if _, err := l.Propose(c.ctx(), write("k", "v")); err != nil {
		t.Fatal(err)
	}
	mark := l.State().Mark()
	f := &fsm{hub: l.hub, fatal: func(err error) { l.fatal <- err }}
	f.ApplyBatch([]*raft.Log{{Index: uint64(mark.Applied), Term: uint64(mark.Term), Type: raft.LogCommand}})
	select {
	case err := <-l.fatal:
		t.Fatalf("the entry that was applied: %v", err)
	default:
	}
	f.ApplyBatch([]*raft.Log{{Index: uint64(mark.Applied), Term: uint64(mark.Term) + 1, Type: raft.LogCommand}})
	select {
	case err := <-l.fatal:
		if !errors.Is(err, ErrDiverged) {
			t.Errorf("got %v, want %v", err, ErrDiverged)
		}
	default:
		t.Error("another entry at the applied index passed")
	}
}
