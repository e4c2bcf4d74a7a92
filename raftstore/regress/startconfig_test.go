package regress

import (
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/raftstore/disk"
	"github.com/quorate/quorate/raftstore/peer"
)

// startConfig is the configuration that raftstore started from.
func startConfig(id raft.ServerID, notify chan bool) *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = id
	c.HeartbeatTimeout, c.ElectionTimeout, c.LeaderLeaseTimeout = 2*time.Second, 2*time.Second, time.Second
	c.MaxAppendEntries, c.BatchApplyCh = 256, true
	c.TrailingLogs, c.SnapshotThreshold, c.SnapshotInterval = 50_000, 20_000, 30*time.Second
	c.NoSnapshotRestoreOnStart = true
	c.ShutdownOnRemove = false
	c.NoLegacyTelemetry = true
	c.NotifyCh = notify
	return c
}

// tcpLayer is a raft.StreamLayer of plain TCP.
type tcpLayer struct{ net.Listener }

func (tcpLayer) Dial(to raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	return net.DialTimeout("tcp", string(to), timeout)
}

// TestStartingConfiguration (cure) runs the pinned versions together, on real
// files and sockets: three nodes, one hundred writes, all nodes restarted from
// their logs.
func TestStartingConfiguration(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ids := []raft.ServerID{"n1", "n2", "n3"}
	fsms := map[raft.ServerID]*recorder{}
	addrs := map[raft.ServerID]raft.ServerAddress{}

	run := func(bootstrap bool, work func(leader *raft.Raft)) {
		t.Helper()
		transports := map[raft.ServerID]*peer.Transport{}
		for _, id := range ids {
			bind := "127.0.0.1:0"
			if !bootstrap {
				bind = string(addrs[id])
			}
			l, err := net.Listen("tcp", bind)
			must.OK(t, err)
			same := func(_ raft.ServerID, a raft.ServerAddress) raft.ServerAddress { return a }
			tr := peer.NewTransportOn(tcpLayer{l}, same, 10*time.Second, slog.New(slog.DiscardHandler), false)
			transports[id], addrs[id] = tr, tr.LocalAddr()
		}
		var members raft.Configuration
		for _, id := range ids {
			members.Servers = append(members.Servers, raft.Server{ID: id, Address: addrs[id]})
		}
		var nodes []*raft.Raft
		for _, id := range ids {
			conf := startConfig(id, make(chan bool, 16))
			conf.Logger = hclog.NewNullLogger()
			// The first election waits for one of them.
			conf.HeartbeatTimeout, conf.ElectionTimeout, conf.LeaderLeaseTimeout = 400*time.Millisecond, 400*time.Millisecond, 400*time.Millisecond
			conf.NoSnapshotRestoreOnStart = false // this state machine keeps nothing on disk
			logs, err := disk.OpenLog(filepath.Join(dir, string(id)+".log"), disk.LogOptions{})
			must.OK(t, err)
			defer logs.Close()
			snaps, err := raft.NewFileSnapshotStoreWithLogger(filepath.Join(dir, string(id)), 2, hclog.NewNullLogger())
			must.OK(t, err)
			if bootstrap {
				must.OK(t, raft.BootstrapCluster(conf, logs, logs, snaps, transports[id], members))
			}
			fsms[id] = &recorder{entries: map[uint64]string{}}
			r, err := raft.NewRaft(conf, fsms[id], logs, logs, snaps, transports[id])
			must.OK(t, err)
			defer transports[id].CloseStreams()
			defer func() {
				if err := r.Shutdown().Error(); err != nil {
					t.Error(err)
				}
			}()
			nodes = append(nodes, r)
		}
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			for _, r := range nodes {
				if r.State() == raft.Leader && r.Barrier(5*time.Second).Error() == nil {
					work(r)
					return
				}
			}
		}
		t.Fatal("no leader")
	}

	const writes = 100
	run(true, func(leader *raft.Raft) {
		var futures []raft.ApplyFuture
		for i := range writes {
			futures = append(futures, leader.Apply(fmt.Appendf(nil, "write %d", i), 0))
		}
		for i, f := range futures {
			if err := f.Error(); err != nil {
				t.Fatalf("write %d: %v", i, err)
			}
		}
	})
	run(false, func(*raft.Raft) {
		for id, fsm := range fsms {
			for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
				fsm.mu.Lock()
				n := len(fsm.entries)
				fsm.mu.Unlock()
				if n == writes {
					break
				}
				if time.Now().After(end) {
					t.Fatalf("%s has %d of %d writes after the restart", id, n, writes)
				}
			}
		}
	})
}
