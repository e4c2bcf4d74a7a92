package regress

import (
	"io"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/quorate/quorate/internal/must"
)

// A follower takes over the configuration and the index of every snapshot that a leader
// of its term sends, also of one that is below its own log. The Raft paper (figure 13,
// rule 6) keeps everything then. So a message that comes late, from the buffers of a
// stream that its sender has given up, takes the follower back to members that are no
// more: it asks these for votes, and turns others away that have joined since.
//
// Scenario: leader a takes a snapshot, a member joins, and everybody has that. Then b
// gets the snapshot.
func TestLateInstallForgetsMembers(t *testing.T) {
	virtual(t, func(t *testing.T) {
		c := start(t, setup{late: "n"}, "a", "b", "c", "n")
		defer c.stop()
		a, b, n := c.lead("a"), c.nodes["b"], c.nodes["n"]
		c.write(a, "x")
		future := a.raft.Snapshot()
		must.OK(t, future.Error())
		meta, data, err := future.Open()
		must.OK(t, err)
		defer data.Close()
		must.OK(t, a.raft.AddVoter("n", n.addr, 0, time.Second).Error())
		c.write(a, "y")
		//sleep: in virtual time: the helper opens the bubble
		time.Sleep(time.Second)
		members := func() int {
			f := b.raft.GetConfiguration()
			must.OK(t, f.Error())
			return len(f.Configuration().Servers)
		}
		if members() != 4 || b.raft.LastIndex() <= meta.Index {
			t.Fatalf("setup: b knows %d members, its log ends at %d, the snapshot at %d", members(), b.raft.LastIndex(), meta.Index)
		}
		var resp raft.InstallSnapshotResponse
		must.OK(t, a.net.InstallSnapshot("b", b.addr, &raft.InstallSnapshotRequest{
			RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte("a"), Addr: a.net.EncodePeer("a", a.addr)},
			Term:      a.raft.CurrentTerm(), SnapshotVersion: meta.Version, LastLogIndex: meta.Index, LastLogTerm: meta.Term,
			Configuration: raft.EncodeConfiguration(meta.Configuration), ConfigurationIndex: meta.ConfigurationIndex, Size: meta.Size,
		}, &resp, io.LimitReader(data, meta.Size)))
		c.write(a, "z")
		//sleep: in virtual time: the helper opens the bubble
		time.Sleep(10 * time.Second) // the leader and its entries do not mend it
		pitfall(t, members() == 3, "b knows %d members after a late snapshot", members())
	})
}
