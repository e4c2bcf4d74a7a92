package raftstore

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/disk"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// restored starts the only node of a cluster that is made of a backup.
func (c *cluster) restored(id proto.NodeID, backup []byte) *testNode {
	c.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(c.t, err)
	m := &testNode{id: id, addr: l.Addr().String(), dir: c.t.TempDir(), fatal: make(chan error, 16)}
	_, err = disk.RestoreBackup(m.dir, bytes.NewReader(backup), disk.RestoreOptions{
		Cluster:       proto.ClusterID("restored-" + id),
		Configuration: raft.Configuration{Servers: []raft.Server{{ID: raft.ServerID(id), Address: raft.ServerAddress(m.addr)}}},
	})
	must.OK(c.t, errors.Join(err, l.Close()))
	c.nodes = map[proto.NodeID]*testNode{id: m}
	c.open(m)
	c.t.Cleanup(func() { c.close(m) })
	c.leader()
	return m
}

// save is a backup of a node.
func save(t *testing.T, m *testNode) []byte {
	t.Helper()
	var b bytes.Buffer
	if _, err := m.SaveSnapshot(&b, nil); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestRestoresGiveNothingOutAgain makes clusters of backups one after the other: of the
// same backup, of an older one after a newer one, of backups of restored clusters. No
// revision that any of them has given out comes a second time, each is above all that
// came before, and a watch from before is told so.
func TestRestoresGiveNothingOutAgain(t *testing.T) {
	c := newCluster(t, 1, func(cfg *Config) {
		cfg.Timing = Timing{Heartbeat: 50 * time.Millisecond, Election: 50 * time.Millisecond, Lease: 50 * time.Millisecond, NoLeader: 10 * time.Second}
	})
	m := c.leader()
	given := map[proto.Revision]string{}
	newest := proto.Revision(0)
	work := func(name string) {
		t.Helper()
		for i := range 20 {
			r, err := m.Propose(c.ctx(), write(fmt.Sprintf("k%d", i%7), name))
			must.OK(t, err)
			if before := given[r.Revision]; before != "" || r.Revision <= newest {
				t.Fatalf("%s gives out revision %d (given out before by %q), newest was %d", name, r.Revision, before, newest)
			}
			given[r.Revision], newest = name, r.Revision
		}
	}
	work("the first cluster")
	backups := map[string][]byte{"first": save(t, m)}
	work("the first cluster")
	for i, step := range []struct{ of, save string }{
		{of: "first", save: "second"},
		{of: "first"},
		{of: "second", save: "third"},
		{of: "first"},
		{of: "third"},
		{of: "second"},
		{of: "third", save: "fourth"},
		{of: "fourth"},
		{of: "first"},
	} {
		c.close(m)
		m = c.restored(proto.NodeID(fmt.Sprintf("r%d", i)), backups[step.of])
		if floor := m.State().Floor(); floor <= newest {
			t.Fatalf("restore %d of %s: the floor is %d; %d was given out", i, step.of, floor, newest)
		}
		if w, err := m.Watch("t", newest, mvcc.Interest{}); !errors.Is(err, mvcc.ErrCompacted) {
			t.Fatalf("restore %d of %s: a watch from %d gets %v, %v", i, step.of, newest, w, err)
		}
		name := fmt.Sprintf("restore %d of %s", i, step.of)
		work(name)
		if step.save != "" {
			backups[step.save] = save(t, m)
			work(name)
		}
		if newest >= 1<<53 {
			t.Fatalf("revision %d is no exact number in JSON", newest)
		}
	}
}
