package raftstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/disk"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// membersAt is a configuration that says where it is from.
func membersAt(index uint64) raft.Configuration {
	return raft.Configuration{Servers: []raft.Server{{ID: raft.ServerID(fmt.Sprint(index)), Address: "a"}}}
}

// TestBeginAtState: where Raft begins, and with whom as members, for a log of the entries 1 to 80 of term 2
// and 81 to 120 of term 3, with configurations at 1, 60 and 100, and a snapshot at 40 or none.
func TestBeginAtState(t *testing.T) {
	for _, tt := range []struct {
		name                 string
		snapshot             uint64
		applied, term        uint64
		begins, members, his uint64 // where Raft begins, its members' index, and whose they are
	}{
		{"no state", 0, 0, 0, 0, 0, 0},
		{"no snapshot yet", 0, 59, 2, 59, 1, 1},
		{"at the snapshot", 40, 40, 2, 40, 1, 1},
		{"behind the snapshot", 40, 39, 2, 40, 1, 1},
		{"before the next configuration", 40, 59, 2, 59, 1, 1},
		{"at it", 40, 60, 2, 60, 60, 60},
		{"behind it", 40, 99, 3, 99, 60, 60},
		{"the newest entry", 40, 120, 3, 120, 100, 100},
		{"the log does not reach there", 40, 121, 3, 40, 1, 1},
		{"the log has another entry there", 40, 90, 2, 40, 1, 1},
		{"the same without a snapshot", 0, 90, 4, 0, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			fatal := func(err error) { t.Error(err) }
			db, err := disk.Open(dir, disk.Options{Fatal: fatal})
			must.OK(t, err)
			defer db.Close()
			snapshots, err := disk.NewSnapshotStore(db, dir)
			must.OK(t, err)
			if tt.snapshot > 0 {
				sink, err := snapshots.Create(1, tt.snapshot, 2, membersAt(1), 1, nil)
				must.OK(t, err)
				must.OK(t, sink.Close())
			}
			log, err := disk.OpenLog(dir, disk.LogOptions{Fatal: fatal})
			must.OK(t, err)
			var entries []*raft.Log
			for i := uint64(1); i <= 120; i++ {
				l := &raft.Log{Index: i, Term: 2}
				if i > 80 {
					l.Term = 3
				}
				if i == 1 || i == 60 || i == 100 {
					l.Type, l.Data = raft.LogConfiguration, raft.EncodeConfiguration(membersAt(i))
				}
				entries = append(entries, l)
			}
			must.OK(t, log.StoreLogs(entries))
			must.OK(t, log.Close())
			log, err = disk.OpenLog(dir, disk.LogOptions{Fatal: fatal})
			must.OK(t, err)
			defer log.Close()

			s := &Store{log: log, snapshots: snapshots}
			must.OK(t, s.beginAtState(mvcc.Mark{Applied: proto.Revision(tt.applied), Term: proto.Term(tt.term)}))
			if got := snapshots.Index(); got != tt.begins {
				t.Errorf("Raft begins at %d, want %d", got, tt.begins)
			}
			index, members := newestConfiguration(snapshots)
			if index != tt.members || index > 0 && members.Servers[0].ID != membersAt(tt.his).Servers[0].ID {
				t.Errorf("with the members of %d, %v; want those of %d", index, members, tt.members)
			}
			if _, term, _ := snapshots.Newest(); tt.begins > tt.snapshot && term != tt.term {
				t.Errorf("in term %d, want %d", term, tt.term)
			}
			if got := snapshots.Written(); got != tt.snapshot {
				t.Errorf("the snapshot that is written is at %d, want %d", got, tt.snapshot)
			}
		})
	}
}

// TestBeginAtStateBelowWhatWasReceived: a snapshot that was received and not restored is restored at the start,
// though the log has the state's newest entry and that is behind the snapshot's index.
func TestBeginAtStateBelowWhatWasReceived(t *testing.T) {
	source := newTestFSM(t)
	for i := range uint64(50) {
		frame, err := proto.Encode(proto.KindWrite, write("k", fmt.Sprint(i)))
		must.OK(t, err)
		source.Apply(&raft.Log{Index: i + 1, Term: 2, Type: raft.LogCommand, Data: frame})
	}
	must.OK(t, source.sync())

	dir := t.TempDir()
	fatal := func(err error) { t.Error(err) }
	db, err := disk.Open(dir, disk.Options{Fatal: fatal})
	must.OK(t, err)
	defer db.Close()
	snapshots, err := disk.NewSnapshotStore(db, dir)
	must.OK(t, err)
	sink, err := snapshots.Create(1, 40, 2, membersAt(1), 1, nil)
	must.OK(t, err)
	_, err = source.db.WriteBackup(sink, nil)
	must.OK(t, err)
	must.OK(t, sink.Close())
	log, err := disk.OpenLog(dir, disk.LogOptions{Fatal: fatal})
	must.OK(t, err)
	defer log.Close()
	var entries []*raft.Log
	for i := range uint64(60) {
		entries = append(entries, &raft.Log{Index: i + 1, Term: 2})
	}
	must.OK(t, log.StoreLogs(entries))

	s := &Store{log: log, snapshots: snapshots}
	for applied, want := range map[proto.Revision]uint64{39: 40, 40: 40, 45: 40, 49: 40} {
		must.OK(t, s.beginAtState(mvcc.Mark{Applied: applied, Term: 2}))
		if got := snapshots.Index(); got != want {
			t.Fatalf("at %d Raft begins at %d, want %d", applied, got, want)
		}
		if need, err := snapshots.NeedsRestore(); err != nil || !need {
			t.Fatalf("at %d it is restored: %v, %v", applied, need, err)
		}
	}
	must.OK(t, s.beginAtState(mvcc.Mark{Applied: 55, Term: 2}))
	if got := snapshots.Index(); got != 55 {
		t.Errorf("at 55 Raft begins at %d", got)
	}
}

// TestSnapshotInMemoryCutsNoLog: to cut what the state has applied is fatal, though Raft began there: no snapshot is on disk.
func TestSnapshotInMemoryCutsNoLog(t *testing.T) {
	c := newCluster(t, 1, nil)
	a := c.leader()
	for i := range 20 {
		_, err := a.Propose(c.ctx(), write("k", fmt.Sprint(i)))
		must.OK(t, err)
	}
	applied := uint64(a.Applied())
	c.close(a)
	db, err := disk.Open(a.dir, disk.Options{})
	must.OK(t, err)
	state, err := db.Load()
	must.OK(t, err)
	var fatal error
	s := &Store{fsm: &fsm{}}
	s.log, err = disk.OpenLog(a.dir, disk.LogOptions{
		Fatal: func(err error) { fatal = err }, Applied: s.fsm.fromLog.Load, Snapshot: s.snapshotWritten,
	})
	must.OK(t, err)
	s.snapshots, err = disk.NewSnapshotStore(db, a.dir)
	must.OK(t, err)
	must.OK(t, s.beginAtState(state.Mark()))
	s.fsm.follow(s.log, s.snapshots, state.Mark())
	last, err := s.log.LastIndex()
	must.OK(t, err)
	if s.snapshots.Index() != applied || applied != last {
		t.Fatalf("setup: Raft begins at %d, applied %d, the log ends at %d", s.snapshots.Index(), applied, last)
	}
	if err := s.log.DeleteRange(1, last); !errors.Is(err, disk.ErrAppliedCut) || !errors.Is(fatal, disk.ErrAppliedCut) {
		t.Errorf("the log was cut: %v, fatal: %v", err, fatal)
	}
	must.OK(t, s.log.Close())
	must.OK(t, db.Close())
	c.open(a)
}

// TestStartDoesNotReplay: a node that is started again has nothing applied that its state has, and
// has its members; what is on disk stays as it was, so that a start behind a power loss finds the log from the
// snapshot on that is there. Then it takes part: it applies what comes, sends its state to a node that needs
// it, and takes a snapshot without waiting for an interval, behind which its log is cut.
func TestStartDoesNotReplay(t *testing.T) {
	const threshold = 200
	c := newCluster(t, 1, func(cfg *Config) {
		cfg.Limits.TrailingLogs, cfg.Limits.SnapshotThreshold = 8, threshold
		cfg.Timing.SnapshotInterval = time.Hour
	})
	a := c.leader()
	writes := func(n int) {
		t.Helper()
		for i := range n {
			if _, err := a.Propose(c.ctx(), write("k", fmt.Sprint(i))); err != nil {
				t.Fatal(err)
			}
		}
	}
	first, _ := a.Members()
	must.OK(t, a.AddNonvoter(c.ctx(), "x", "127.0.0.1:1", first))
	members, _ := a.Members()
	writes(threshold / 2)

	applied := a.Applied()
	c.close(a)
	c.open(a)
	if got := a.snapshots.Index(); got != uint64(applied) {
		t.Fatalf("Raft began at %d, the state is at %d", got, applied)
	}
	if got, servers := a.Members(); got != members || len(servers) != 2 {
		t.Fatalf("the configuration of %d is at %d, want %d", len(servers), got, members)
	}
	c.leader()
	writes(threshold)
	if _, err := os.Stat(filepath.Join(a.dir, "snapshot.meta")); !os.IsNotExist(err) {
		t.Fatalf("there is a snapshot on disk, or: %v", err)
	}
	if first, err := a.log.FirstIndex(); err != nil || first != 1 {
		t.Fatalf("the log begins at %d (%v), and no snapshot covers what was cut", first, err)
	}

	applied = a.Applied()
	c.close(a)
	c.open(a)
	c.leader()
	writes(1)
	c.eventually("a snapshot is written, and the log is cut", func() error {
		if at := a.snapshots.Written(); at <= uint64(applied) {
			return fmt.Errorf("the newest is at %d", at)
		}
		if first, err := a.log.FirstIndex(); err != nil || first <= members {
			return fmt.Errorf("the log begins at %d: %w", first, err)
		}
		return nil
	})

	c.close(a)
	c.open(a)
	c.leader()
	at, _ := a.Members()
	if at != members {
		t.Fatalf("the configuration is at %d, want %d", at, members)
	}
	b := c.add("b")
	must.OK(t, a.AddNonvoter(c.ctx(), b.id, b.addr, at))
	writes(1)
	ctx, cancel := context.WithTimeout(c.ctx(), 10*time.Second)
	defer cancel()
	must.OK(t, b.WaitApplied(ctx, a.Applied()))
}

// TestSnapshotBelowWhereRaftBegan: a leader that does not know how far a node is sends it a snapshot from
// before the node's start. The node takes it, loses nothing, and goes on.
func TestSnapshotBelowWhereRaftBegan(t *testing.T) {
	c := newCluster(t, 3, func(cfg *Config) { cfg.Timing.SnapshotInterval = time.Hour })
	leader := c.leader()
	m := c.other(leader)
	propose := func() proto.Revision {
		t.Helper()
		r, err := leader.Propose(c.ctx(), write("k", "v"))
		must.OK(t, err)
		must.OK(t, m.WaitApplied(c.ctx(), r.Revision))
		return r.Revision
	}
	propose()
	future := leader.node.Raft().Snapshot()
	must.OK(t, future.Error())
	meta, data, err := future.Open()
	must.OK(t, err)
	defer data.Close()
	applied := propose()
	c.close(m)
	c.open(m)
	if at := m.snapshots.Index(); at < uint64(applied) || m.snapshots.Written() >= meta.Index || leader.node.Raft().State() != raft.Leader {
		t.Fatalf("setup: Raft began at %d, the leader's snapshot is at %d", at, meta.Index)
	}
	var resp raft.InstallSnapshotResponse
	must.OK(t, leader.transport.InstallSnapshot(raft.ServerID(m.id), raft.ServerAddress(m.addr), &raft.InstallSnapshotRequest{
		RPCHeader: leader.transport.Header(), Term: leader.node.Raft().CurrentTerm(), SnapshotVersion: meta.Version,
		LastLogIndex: meta.Index, LastLogTerm: meta.Term, Size: meta.Size,
		Configuration: raft.EncodeConfiguration(meta.Configuration), ConfigurationIndex: meta.ConfigurationIndex,
	}, &resp, io.LimitReader(data, meta.Size)))
	if !resp.Success || m.Applied() < applied {
		t.Fatalf("the snapshot was refused, or the state, at %d, went back to %d", applied, m.Applied())
	}
	propose()
	c.sameHash()
}
