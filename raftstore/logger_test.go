package raftstore

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/raftstore/replication"
)

// TestRaftLog: the Raft library's lines in our words and keys, with names of nodes, at the levels that they have here.
func TestRaftLog(t *testing.T) {
	var lines strings.Builder
	names := map[string]string{"id-3": "n3", "10.0.0.3:7443": "n3"}
	l := newRaftLogger(slog.New(slog.NewTextHandler(&lines, nil)), func(x string) string {
		if name, ok := names[x]; ok {
			return name
		}
		return x
	})
	peer := raft.Server{Suffrage: raft.Voter, ID: "id-3", Address: "10.0.0.3:7443"}
	reason := errors.New("a reason")
	for _, c := range []struct {
		log  func()
		want string // "": nothing
	}{
		{func() { l.Error("failed to get log", "index", 7, "error", reason) }, `level=ERROR msg="failed to get log" component=raft index=7 err="a reason"`},
		{func() { l.Error("failed to heartbeat to", "peer", peer.Address, "error", reason) }, `level=WARN msg="a node does not answer this one, which leads, retrying" component=raft node=n3 err="a reason"`},
		{func() { l.Warn("failed to contact", "server-id", peer.ID, "time", 7) }, ""}, // it says the same
		{func() {
			l.Error("failed to heartbeat to", "peer", raft.ServerAddress("10.0.0.2:7443"), "error", reason)
		}, `node=10.0.0.2:7443`},
		{func() { l.Error("failed to make requestVote RPC", "target", peer, "error", reason) }, `level=WARN msg="a node cannot be asked for its vote" component=raft node=n3`},
		{func() { l.Info("pipelining replication", "peer", peer) }, ""},
		{func() { l.Info("entering follower state", "leader-address", peer.Address, "leader-id", peer.ID) }, `level=INFO msg="this node is a follower" component=raft leader=n3`},
		{func() { l.Info("compacting logs", "from", uint64(1), "to", uint64(36)) }, `msg="compacting logs" component=raft from=1 to=36`},
		{func() {
			l.Warn("rejecting vote request since we have a leader", "from", peer.Address, "leader", peer.Address, "leader-id", "id-3")
		}, `component=raft node=n3 leader=n3` + "\n"},
		{func() { l.Error("failed to appendEntries to", "peer", peer, "error", replication.ErrFollowerFull) }, `level=WARN msg="a node takes no entries of this one, which leads, retrying" component=raft node=n3 err="the disk of the follower is full"`},
		{func() { l.Error("failed to take snapshot", "error", reason) }, `level=WARN msg="the log is not cut, no snapshot can be taken, retrying" component=raft err="a reason"`},
		{func() { l.Error("failed to take snapshot", "error", reason) }, ""},
		{func() { l.Error("failed to append to logs", "error", reason) }, `level=ERROR msg="entries of the leader cannot be written to the log" component=raft err="a reason"`},
		{func() { l.Error("failed to append to logs", "error", reason) }, ""},
		{func() { l.Warn("a line of the next release", "peer", peer) }, `level=WARN msg="a line of the next release" component=raft node=n3`},
	} {
		lines.Reset()
		c.log()
		if got := lines.String(); !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// TestRepeatedRaftLines: what comes at every try is said once, and again after a while without it, or with it.
func TestRepeatedRaftLines(t *testing.T) {
	s := slogSink{said: map[string]*said{}}
	at := time.Now()
	for _, c := range []struct {
		after time.Duration
		about string
		want  bool
	}{
		{0, "n3", true}, {time.Second, "n3", false}, {0, "n2", true}, {11 * time.Second, "n3", false},
		{31 * time.Second, "n3", true}, {5 * time.Second, "n3", false},
		{11 * time.Second, "n3", false}, {11 * time.Second, "n3", false}, {11 * time.Second, "n3", false}, {11 * time.Second, "n3", false},
		{11 * time.Second, "n3", false}, {11 * time.Second, "n3", true}, {0, "n3", false},
	} {
		at = at.Add(c.after)
		if got := s.again(c.about, at); got != c.want {
			t.Errorf("%s, %s later: %v", c.about, c.after, got)
		}
	}
}
