package raftstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/disk"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// What is kept of a log beside a snapshot at 100 of term 3. A log is written as its
// runs, "FROM-TO/TERM".
func TestDropDead(t *testing.T) {
	const at, term = 100, 3
	for _, tt := range []struct {
		name         string
		log          string
		installed    string // what is left when the snapshot has just been installed
		errInstalled error
		start        string // what is left after a start
		errStart     error
	}{
		{"nothing", "", "", nil, "", nil},
		{"the snapshot's entry is there", "1-120/3", "1-120/3", nil, "1-120/3", nil},
		{"it is the last", "50-100/3", "50-100/3", nil, "50-100/3", nil},
		{"the log begins behind the snapshot", "101-140/3", "101-140/3", nil, "101-140/3", nil},
		{"the log begins further back than the terms change", "1-40/1 41-99/2 100-110/3", "1-40/1 41-99/2 100-110/3", nil, "1-40/1 41-99/2 100-110/3", nil},
		{"the log ends below", "1-60/2", "", nil, "", nil},
		{"the log ends right below", "1-99/3", "", nil, "", nil},
		{"another term, at the log's end", "1-100/2", "1-100/2", ErrDeadEntries, "", nil},
		{"another term, and entries behind it", "1-40/1 41-150/2", "1-40/1 41-150/2", ErrDeadEntries, "", nil},
		{"a hole up to the snapshot", "1-60/2 101-110/3", "1-60/2 101-110/3", ErrDeadEntries, "101-110/3", nil},
		{"a hole below the snapshot, which the log agrees with", "1-60/2 81-110/3", "1-60/2 81-110/3", nil, "81-110/3", nil},
		{"two holes", "1-20/1 30-60/2 101-104/3", "1-20/1 30-60/2 101-104/3", ErrDeadEntries, "101-104/3", nil},
		{"a hole that no snapshot covers", "1-110/3 120-130/3", "1-110/3 120-130/3", nil, "1-110/3 120-130/3", disk.ErrDamaged},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, start := range []bool{false, true} {
				dir := t.TempDir()
				fatal := func(err error) { t.Error(err) }
				db, err := disk.Open(dir, disk.Options{Fatal: fatal})
				must.OK(t, err)
				_, err = db.Load()
				must.OK(t, err)
				snapshots, err := disk.NewSnapshotStore(db, dir)
				must.OK(t, err)
				sink, err := snapshots.Create(1, at, term, raft.Configuration{}, 1, nil)
				must.OK(t, err)
				must.OK(t, sink.Close())
				log, err := disk.OpenLog(dir, disk.LogOptions{Fatal: fatal})
				must.OK(t, err)
				for run := range strings.FieldsSeq(tt.log) {
					var from, to, term uint64
					_, err := fmt.Sscanf(run, "%d-%d/%d", &from, &to, &term)
					must.OK(t, err)
					for i := from; i <= to; i++ {
						must.OK(t, log.StoreLog(&raft.Log{Index: i, Term: term}))
					}
				}
				want, wantErr := tt.installed, tt.errInstalled
				if start {
					must.OK(t, log.Close())
					log, err = disk.OpenLog(dir, disk.LogOptions{Fatal: fatal})
					must.OK(t, err)
					want, wantErr = tt.start, tt.errStart
					s := &Store{log: log, cfg: Config{Logger: slog.New(slog.DiscardHandler)}}
					err = s.dropDeadAtStart(snapshots, mvcc.Mark{Applied: 90, Term: 2})
				} else {
					err = dropDead(log, snapshots, mvcc.Mark{Applied: 90, Term: 2})
				}
				if !errors.Is(err, wantErr) {
					t.Errorf("start %v: %v, want %v", start, err, wantErr)
				}
				if got := runs(t, log); got != want {
					t.Errorf("start %v: %s is left, want %s", start, got, want)
				}
				must.OK(t, log.Close())
				must.OK(t, db.Close())
			}
		})
	}
}

// A state that has applied what the cluster did not commit does not go on without the log
// that proves it.
func TestWronglyApplied(t *testing.T) {
	log, err := disk.OpenLog(t.TempDir(), disk.LogOptions{})
	must.OK(t, err)
	defer log.Close()
	for i := uint64(1); i <= 120; i++ {
		must.OK(t, log.StoreLog(&raft.Log{Index: i, Term: 2}))
	}
	for _, tt := range []struct {
		applied, term uint64
		wrong         bool
	}{
		{99, 2, false},  // what is below the snapshot may be right
		{100, 2, true},  //
		{120, 2, true},  //
		{110, 3, false}, // it came with the snapshot
		{121, 2, false}, // and so did this
	} {
		err := wronglyApplied(log, 100, mvcc.Mark{Applied: proto.Revision(tt.applied), Term: proto.Term(tt.term)})
		if errors.Is(err, ErrDiverged) != tt.wrong {
			t.Errorf("applied %d of term %d: %v", tt.applied, tt.term, err)
		}
	}
}

// runs writes a log as TestDropDead does.
func runs(t *testing.T, log *disk.Log) string {
	t.Helper()
	first, last, err := bounds(log)
	must.OK(t, err)
	var out []string
	var from, to, term uint64
	end := func() {
		if from > 0 {
			out = append(out, fmt.Sprintf("%d-%d/%d", from, to, term))
		}
		from = 0
	}
	for i := first; i <= last && last > 0; i++ {
		var l raft.Log
		if err := log.GetLog(i, &l); errors.Is(err, raft.ErrLogNotFound) {
			end()
			continue
		}
		if l.Term != term {
			end()
		}
		if from == 0 {
			from, term = i, l.Term
		}
		to = i
	}
	end()
	return strings.Join(out, " ")
}

// The scenario that regress/TestDeadEntriesBelowSnapshot plays with the bare library,
// on our store, with small batches and with the default ones: a leader is cut off with
// writes in flight, comes back by a snapshot, leads again, and a fresh node joins. What
// the fresh node applies was committed. When the next leader's log reaches further
// back, what it has applied stays what the others have.
func TestDeadEntriesAreDropped(t *testing.T) {
	for _, tt := range []struct {
		name                       string
		batch, trailing, threshold int
		dead                       int // more than a batch, so that one can end among them
	}{
		{"small batches", 8, 128, 64, 2 * 8},
		{"default batches", 256, 1024, 512, 256 + 44},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFaults()
			ledger := newLedger()
			c := newCluster(t, 3, func(cfg *Config) {
				f.install(cfg)
				silent(cfg)
				cfg.Limits.MaxAppendEntries = tt.batch
				cfg.Limits.TrailingLogs, cfg.Limits.SnapshotThreshold = uint64(tt.trailing), uint64(tt.threshold)
				cfg.Timing.SnapshotInterval = 20 * time.Millisecond
				switch cfg.Node {
				case "a": // stands for a pause, or for load, during the lease
					cfg.Timing.Heartbeat, cfg.Timing.Election, cfg.Timing.Lease = 5*time.Second, 5*time.Second, 5*time.Second
				case "b":
					cfg.Timing.SnapshotInterval = time.Hour // its log reaches back to the beginning
				}
				cfg.TestHooks.Applied = ledger.of(cfg.Node)
			})
			a, b, l := c.nodes["a"], c.nodes["b"], c.nodes["c"]
			c.lead(a)
			for i := range 4 {
				_, err := a.Propose(c.ctx(), write("k", fmt.Sprint("kept", i)))
				must.OK(t, err)
			}
			end := c.cutOffWithDeadEntries(f, a, tt.dead)
			c.lead(l)
			c.eventually("the leader's log is cut behind a's end", func() error {
				var some sync.WaitGroup
				for w := range 20 {
					some.Go(func() { _, _ = l.Propose(c.ctx(), write(fmt.Sprint("k", w), "new")) })
				}
				some.Wait()
				if first, err := l.log.FirstIndex(); err != nil || first <= end+1 {
					return fmt.Errorf("it begins at %d: %w", first, err)
				}
				return nil
			})
			f.heal("a", "b", "c")
			c.eventually("a catches up by a snapshot", func() error {
				if a.Applied() < l.Applied() || a.fsm.restored.Load() == 0 {
					return fmt.Errorf("%d of %d, %d restored", a.Applied(), l.Applied(), a.fsm.restored.Load())
				}
				return nil
			})
			var gone raft.Log
			for i := end - uint64(tt.dead) + 1; i <= end; i++ {
				if err := a.log.GetLog(i, &gone); !errors.Is(err, raft.ErrLogNotFound) {
					t.Fatalf("entry %d is still in a's log: term %d, %v", i, gone.Term, err)
				}
			}

			c.lead(a)
			n := c.add("n")
			must.OK(t, a.AddNonvoter(c.ctx(), n.id, n.addr, 0))
			c.eventually("n catches up", func() error { return n.WaitApplied(c.ctx(), a.Applied()) })
			c.lead(b)
			r, err := b.Propose(c.ctx(), write("k", "last"))
			must.OK(t, err)
			for _, m := range c.nodes {
				must.OK(t, m.WaitApplied(c.ctx(), r.Revision))
			}
			c.sameHash()
			ledger.compare(t)
		})
	}
}

// A node whose log has nothing up to a snapshot, and dead entries right behind it, is
// asked for the snapshot's own entry. It knows that one.
func TestDeadEntriesBehindASnapshot(t *testing.T) {
	f := newFaults()
	c := newCluster(t, 3, func(cfg *Config) {
		f.install(cfg)
		silent(cfg)
		cfg.Limits.TrailingLogs, cfg.Limits.SnapshotThreshold = 4, 100_000 // snapshots are taken by hand
		if cfg.Node == "a" {
			cfg.Timing.Heartbeat, cfg.Timing.Election, cfg.Timing.Lease = 4*time.Second, 4*time.Second, 4*time.Second
		}
	})
	a, l := c.nodes["a"], c.nodes["c"]
	c.lead(a)
	n := c.add("n")
	must.OK(t, a.AddNonvoter(c.ctx(), n.id, n.addr, 0))
	c.eventually("n follows", func() error { return n.WaitApplied(c.ctx(), a.Applied()) })
	c.close(n)
	for i := range 40 {
		_, err := a.Propose(c.ctx(), write("k", fmt.Sprint("without n ", i)))
		must.OK(t, err)
	}
	for _, id := range []proto.NodeID{"a", "b", "c"} {
		m := c.nodes[id]
		must.OK(t, m.WaitApplied(c.ctx(), a.Applied()))
		c.eventually("a snapshot at the end of the log", func() error { return m.node.Raft().Snapshot().Error() })
	}
	c.open(n)
	c.eventually("n has the snapshot", func() error {
		if n.fsm.restored.Load() == 0 || n.Applied() < a.Applied() {
			return errors.New("not yet")
		}
		return nil
	})
	from := n.node.Raft().LastIndex()
	end := c.cutOffWithDeadEntries(f, a, 8) // from the voters, not from n
	c.eventually("n has dead entries", func() error {
		if got := n.node.Raft().LastIndex(); got < end {
			return fmt.Errorf("its log ends at %d, of %d", got, end)
		}
		return nil
	})
	c.lead(l)
	f.heal("a", "b", "c")
	r, err := l.Propose(c.ctx(), write("k", "new"))
	must.OK(t, err)
	c.eventually("n catches up", func() error {
		select {
		case err := <-n.fatal:
			t.Fatalf("n has ended: %v", err)
		default:
		}
		if n.Applied() < r.Revision {
			return fmt.Errorf("%d of %d, %d installs", n.Applied(), r.Revision, n.fsm.restored.Load())
		}
		return nil
	})
	if got := n.fsm.restored.Load(); got != 1 {
		t.Errorf("n got %d snapshots; its log went from %d on", got, from)
	}
	c.sameHash()
}

// A snapshot that arrives when its receiver has gone on, by a configuration, does not take
// it back to the members of before (regress/TestLateInstallForgetsMembers).
func TestLateSnapshot(t *testing.T) {
	c := newCluster(t, 3, nil)
	l := c.leader()
	b := c.other(l)
	_, err := l.Propose(c.ctx(), write("k", "x"))
	must.OK(t, err)
	must.OK(t, l.node.Raft().Snapshot().Error())
	must.OK(t, l.AddNonvoter(c.ctx(), "n", "127.0.0.1:1", 0))
	c.eventually("b knows four members", func() error {
		if b.members(t) != 4 {
			return errors.New("not yet")
		}
		return nil
	})
	if err := c.sendSnapshot(l, b, l.node.Raft().CurrentTerm()); err == nil {
		t.Error("the snapshot was taken")
	}
	r, err := l.Propose(c.ctx(), write("k", "z"))
	must.OK(t, err)
	must.OK(t, b.WaitApplied(c.ctx(), r.Revision))
	if n := b.members(t); n != 4 {
		t.Errorf("b knows %d members now", n)
	}
}

// sendSnapshot sends a node's newest snapshot as its replication does.
func (c *cluster) sendSnapshot(from, to *testNode, term uint64) error {
	list, err := from.snapshots.List()
	must.OK(c.t, err)
	meta, data, err := from.snapshots.Open(list[0].ID)
	must.OK(c.t, err)
	defer data.Close()
	var resp raft.InstallSnapshotResponse
	err = from.rpc.InstallSnapshot(raft.ServerID(to.id), raft.ServerAddress(to.addr), &raft.InstallSnapshotRequest{
		RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(from.id), Addr: from.rpc.EncodePeer(raft.ServerID(from.id), raft.ServerAddress(from.addr))},
		Term:      term, SnapshotVersion: meta.Version, LastLogIndex: meta.Index, LastLogTerm: meta.Term,
		Configuration: raft.EncodeConfiguration(meta.Configuration), ConfigurationIndex: meta.ConfigurationIndex, Size: meta.Size,
	}, &resp, data)
	if err == nil && !resp.Success {
		err = errors.New("no success")
	}
	return err
}

func (m *testNode) members(t *testing.T) int {
	t.Helper()
	_, servers := m.Members()
	return len(servers)
}

// The second copy of a snapshot that is installed, when a configuration has followed it:
// the log does not hold the snapshot's last entry then.
func TestSecondCopyOfASnapshot(t *testing.T) {
	c := newCluster(t, 1, func(cfg *Config) { cfg.Limits.TrailingLogs, cfg.Limits.SnapshotThreshold = 1, 1_000_000 })
	l := c.leader()
	for range 2 { // the second one cuts the log: a new node needs it
		for i := range 10 {
			_, err := l.Propose(c.ctx(), write("k", fmt.Sprint(i)))
			must.OK(t, err)
		}
		must.OK(t, l.node.Raft().Snapshot().Error())
	}
	x := c.add("x")
	must.OK(t, l.AddNonvoter(c.ctx(), x.id, x.addr, 0))
	c.eventually("x has the snapshot and the configuration", func() error {
		if at := x.snapshots.Index(); at == 0 || x.members(t) != 2 {
			return fmt.Errorf("snapshot at %d", at)
		}
		return nil
	})
	if err := c.sendSnapshot(l, x, l.node.Raft().CurrentTerm()); err == nil {
		t.Error("the second copy was installed")
	}
	if n := x.members(t); n != 2 {
		t.Errorf("x knows %d members", n)
	}
}

// The first entries of all, when they come late, do not go below a snapshot.
func TestLateFirstEntries(t *testing.T) {
	c := newCluster(t, 1, nil)
	l := c.leader()
	for i := range 10 {
		_, err := l.Propose(c.ctx(), write("k", fmt.Sprint(i)))
		must.OK(t, err)
	}
	var entries []*raft.Log
	for i := uint64(1); i <= 5; i++ {
		e := new(raft.Log)
		must.OK(t, l.log.GetLog(i, e))
		entries = append(entries, e)
	}
	x := c.add("x")
	must.OK(t, l.AddNonvoter(c.ctx(), "n", "127.0.0.1:1", 0)) // x is not a member: nobody sends it anything
	must.OK(t, l.node.Raft().Snapshot().Error())
	must.OK(t, c.sendSnapshot(l, x, l.node.Raft().CurrentTerm()))
	before := x.members(t)
	var resp raft.AppendEntriesResponse
	must.OK(t, l.rpc.AppendEntries(raft.ServerID(x.id), raft.ServerAddress(x.addr), &raft.AppendEntriesRequest{
		RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(l.id), Addr: l.rpc.EncodePeer(raft.ServerID(l.id), raft.ServerAddress(l.addr))},
		Term:      l.node.Raft().CurrentTerm(), Entries: entries, LeaderCommitIndex: 5,
	}, &resp))
	// The snapshot has them, so the answer may be yes.
	if got := runs(t, x.log); x.members(t) != before || got != "" {
		t.Errorf("success %v, log %s, %d members, before %d", resp.Success, got, x.members(t), before)
	}
}

// A snapshot's data may be of a later term than its message: it is what the sender has
// applied by then. The receiver has lost nothing.
func TestSnapshotOfALaterTerm(t *testing.T) {
	c := newCluster(t, 2, nil)
	l := c.leader()
	_, err := l.Propose(c.ctx(), write("k", "v"))
	must.OK(t, err)
	must.OK(t, l.node.Raft().Snapshot().Error())
	old := l.node.Raft().CurrentTerm()
	c.eventually("the next term", func() error {
		if l.node.Raft().CurrentTerm() == old {
			// On a busy machine it does not end within the election timeout.
			if err := l.TransferLeadership(c.ctx(), ""); err != nil {
				return err
			}
		}
		if _, err := c.leader().Propose(c.ctx(), write("k", "later")); err != nil {
			return err
		}
		if uint64(l.State().Mark().Term) <= old {
			return errors.New("not yet")
		}
		return l.fsm.sync()
	})
	x := c.add("x")
	must.OK(t, c.sendSnapshot(l, x, old))
	if x.node.Raft().CurrentTerm() != old || uint64(x.State().Mark().Term) <= old {
		t.Fatalf("setup: term %d, state %+v", x.node.Raft().CurrentTerm(), x.State().Mark())
	}
	c.close(x)
	c.open(x)
}

// cutOffWithDeadEntries takes the other voters from a leader and gives it entries that
// are never committed. It returns the index of the last one.
func (c *cluster) cutOffWithDeadEntries(f *faults, a *testNode, dead int) uint64 {
	c.t.Helper()
	f.part(f.raft, true, a.id, "b", "c")
	f.part(f.calls, true, a.id, "b", "c")
	end := a.node.Raft().LastIndex() + uint64(dead)
	ctx, cancel := context.WithCancel(context.Background())
	var writers sync.WaitGroup
	c.t.Cleanup(writers.Wait)
	c.t.Cleanup(cancel)
	for i := range dead {
		writers.Go(func() { _, _ = a.Propose(ctx, write(fmt.Sprint("dead", i), "dead")) })
	}
	c.eventually("dead entries", func() error {
		if got := a.node.Raft().LastIndex(); got != end {
			return fmt.Errorf("the log ends at %d, not %d", got, end)
		}
		return nil
	})
	return end
}

// lead makes a node the leader.
func (c *cluster) lead(m *testNode) {
	c.t.Helper()
	c.eventually(string(m.id)+" leads", func() error {
		if m.IsLeader() {
			return nil
		}
		for _, x := range c.nodes {
			if x.Store == nil || !x.IsLeader() {
				continue
			}
			if m.Applied() < x.Applied() {
				return fmt.Errorf("it has %d of %d", m.Applied(), x.Applied())
			}
			if err := x.TransferLeadership(c.ctx(), m.id); err != nil {
				return err
			}
		}
		return errors.New("not yet")
	})
}

func (f *faults) heal(one proto.NodeID, others ...proto.NodeID) {
	f.part(f.raft, false, one, others...)
	f.part(f.calls, false, one, others...)
}

// ledger is what each state machine was given, by index.
type ledger struct {
	mu      sync.Mutex
	applied map[proto.NodeID]map[uint64]string
}

func newLedger() *ledger { return &ledger{applied: map[proto.NodeID]map[uint64]string{}} }

func (d *ledger) of(id proto.NodeID) func(*raft.Log, mvcc.Result) {
	return func(l *raft.Log, _ mvcc.Result) {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.applied[id] == nil {
			d.applied[id] = map[uint64]string{}
		}
		d.applied[id][l.Index] = fmt.Sprintf("term %d: %.60q", l.Term, l.Data)
	}
}

// compare fails if two state machines were given different entries at one index.
func (d *ledger) compare(t *testing.T) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	first := map[uint64]proto.NodeID{}
	for _, id := range slices.Sorted(maps.Keys(d.applied)) {
		for index, entry := range d.applied[id] {
			if other, ok := first[index]; ok && d.applied[other][index] != entry {
				t.Errorf("index %d: %s applied %s, %s applied %s", index, id, entry, other, d.applied[other][index])
			}
			first[index] = id
		}
	}
}

// TestSkipBelow: a message that begins where this node has cut its log off begins at its snapshot, and any other
// stays as it is.
func TestSkipBelow(t *testing.T) {
	c := newCluster(t, 1, nil)
	m := c.leader()
	for i := range 20 {
		_, err := m.Propose(c.ctx(), write("k", fmt.Sprint(i)))
		must.OK(t, err)
	}
	must.OK(t, m.node.Raft().Snapshot().Error())
	at, term, _ := m.snapshots.Newest()
	_, err := m.Propose(c.ctx(), write("k", "last"))
	must.OK(t, err)
	message := func(prev, last uint64) *raft.AppendEntriesRequest {
		r := &raft.AppendEntriesRequest{Term: term, PrevLogEntry: prev, PrevLogTerm: term, LeaderCommitIndex: 1}
		for i := prev + 1; i <= last; i++ {
			r.Entries = append(r.Entries, &raft.Log{Index: i, Term: term})
		}
		return r
	}
	same := message(at-3, at+2)
	m.skipBelow(same)
	if same.PrevLogEntry != at-3 || len(same.Entries) != 5 {
		t.Errorf("what the log has was skipped: %+v", same)
	}
	must.OK(t, m.log.Drop(1, at-1))
	other := message(at-3, at+2)
	other.Entries[2].Term--
	old := message(at-3, at+2)
	old.Term = term - 1
	for _, row := range []struct {
		name    string
		r       *raft.AppendEntriesRequest
		prev    uint64
		entries int
	}{
		{"that goes on behind it", message(at-3, at+2), at, 2},
		{"from the first entry", message(0, at+2), at, 2},
		{"that ends at it", message(at-3, at), at, 0},
		{"that ends before it", message(at-5, at-3), at, 0},
		{"without entries", message(at-3, at-3), at, 0},
		{"behind it", message(at, at+2), at, 2},
		{"with another entry there", other, at - 3, 5},
		{"of an earlier term", old, at - 3, 5},
		{"a heartbeat", &raft.AppendEntriesRequest{Term: term}, 0, 0},
	} {
		m.skipBelow(row.r)
		if row.r.PrevLogEntry != row.prev || len(row.r.Entries) != row.entries || row.entries > 0 && row.r.Entries[0].Index != row.prev+1 {
			t.Errorf("a message %s: behind %d with %d entries, want behind %d with %d", row.name, row.r.PrevLogEntry, len(row.r.Entries), row.prev, row.entries)
		}
	}
}
