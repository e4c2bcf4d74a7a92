package raftstore

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
)

// TestLeaderOfNoName: a leader that does not know the cluster's id yet, because the first
// configuration came to it by the log, takes no writes before it does.
func TestLeaderOfNoName(t *testing.T) {
	var named atomic.Bool
	c := &cluster{t: t, ca: newTestCA(t), nodes: map[proto.NodeID]*testNode{}, config: func(cfg *Config) {
		cfg.Timing.NoLeader = 300 * time.Millisecond
		cfg.Cluster = func() proto.ClusterID {
			if named.Load() {
				return "test"
			}
			return ""
		}
	}}
	m := c.add("a")
	// Not by Bootstrap, which names the cluster.
	must.OK(t, m.node.Raft().BootstrapCluster(raft.Configuration{Servers: []raft.Server{{ID: raft.ServerID(m.id), Address: raft.ServerAddress(m.addr)}}}).Error())
	c.eventually("the first entry of the term", func() error {
		if m.Applied() < 2 {
			return errors.New("nothing is applied")
		}
		return nil
	})
	if _, err := m.Propose(c.ctx(), write("k", "v")); !errors.Is(err, ErrNoLeader) {
		t.Errorf("a write before the cluster has a name: %v", err)
	}
	named.Store(true)
	ctx, cancel := context.WithTimeout(c.ctx(), 20*time.Second)
	defer cancel()
	for {
		_, err := m.Propose(ctx, write("k", "v"))
		if err == nil {
			break
		}
		if !errors.Is(err, ErrNoLeader) {
			t.Fatal(err)
		}
	}
	if mark := m.State().Mark(); mark.Cluster != "test" || mark.Feature != newFeature {
		t.Errorf("the first write is in %+v", mark)
	}
}
