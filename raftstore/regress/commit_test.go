package regress

import (
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/quorate/quorate/internal/must"
)

// TestCommitBeyondMessage: a follower commits up to the commit index of a message or
// the end of its own log, whichever is less, and not only up to the last entry that
// the message confirms. With a goroutine that outlived its leadership (see
// TestStaleReplication) that is not safe: it sends a few entries of the old term with
// the commit index of now, and what the follower has behind them was replaced since.
//
// Scenario: a led term 2 and gave f entries 2 to 6; 5 and 6 reached nobody else, and
// are others in the cluster's log. a leads again, and says 2 and 3 once more under
// term 2, with a commit index of 20.
//
// Cure: peer.Transport bounds the commit index, sending and receiving (its
// TestCommitIsBounded).
func TestCommitBeyondMessage(t *testing.T) {
	virtual(t, func(t *testing.T) {
		commit := commitOf(t)
		pitfall(t, commit > 3, "a message that ends at 3 let its receiver commit %d", commit)
	})
}

func commitOf(t *testing.T) uint64 {
	addr, trans := raft.NewInmemTransport("f")
	_, from := raft.NewInmemTransport("a")
	from.Connect(addr, trans)
	conf := raft.DefaultConfig()
	conf.LocalID, conf.LogLevel = "f", "OFF"
	conf.HeartbeatTimeout, conf.ElectionTimeout, conf.LeaderLeaseTimeout = time.Minute, time.Minute, time.Minute
	logs, snaps := raft.NewInmemStore(), raft.NewInmemSnapshotStore()
	var servers []raft.Server
	for _, id := range []string{"a", "b", "c", "d", "f"} {
		servers = append(servers, raft.Server{ID: raft.ServerID(id), Address: raft.ServerAddress(id)})
	}
	must.OK(t, raft.BootstrapCluster(conf, logs, logs, snaps, trans, raft.Configuration{Servers: servers}))
	f, err := raft.NewRaft(conf, &recorder{entries: map[uint64]string{}}, logs, logs, snaps, trans)
	must.OK(t, err)
	defer func() {
		if err := f.Shutdown().Error(); err != nil {
			t.Error(err)
		}
	}()
	send := func(commit uint64, indexes ...uint64) {
		t.Helper()
		req := &raft.AppendEntriesRequest{
			RPCHeader: raft.RPCHeader{ProtocolVersion: 3, ID: []byte("a"), Addr: []byte("a")},
			Term:      2, PrevLogEntry: 1, PrevLogTerm: 1, LeaderCommitIndex: commit,
		}
		for _, i := range indexes {
			req.Entries = append(req.Entries, &raft.Log{Index: i, Term: 2, Type: raft.LogCommand, Data: fmt.Append(nil, "x", i)})
		}
		var resp raft.AppendEntriesResponse
		if err := from.AppendEntries("f", addr, req, &resp); err != nil || !resp.Success {
			t.Fatal(err, resp)
		}
	}
	send(1, 2, 3, 4, 5, 6)
	send(20, 2, 3)
	return f.CommitIndex()
}
