package raftstore

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// TestFirstFeature: what all members of a new cluster support is spoken from its first write
// on, through every node; what one of them does not, is not.
func TestFirstFeature(t *testing.T) {
	for name, c := range map[string]struct{ known, supports, want uint32 }{
		"all support the newest":        {known: mvcc.FeatureVersion, want: mvcc.FeatureVersion},
		"one supports less":             {known: 2, want: 2},
		"this node supports less":       {known: mvcc.FeatureVersion, supports: 2, want: 2},
		"this node was not told by all": {want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			c3 := newCluster(t, 3, func(cfg *Config) {
				cfg.FirstFeature = func() uint32 { return c.known }
				cfg.TestHooks.Supports = c.supports
			})
			for id, m := range c3.nodes {
				w := write("ns/"+string(id), "v")
				w.Limits = []*proto.Limit{{Bounds: []*proto.Bound{{Name: "a", Max: 1}}}}
				r, err := m.Propose(c3.ctx(), w)
				if err != nil {
					t.Fatalf("%s: %v", id, err)
				}
				if got, _ := m.Features(); got != c.want {
					t.Errorf("%s speaks %d after its first write, want %d", id, got, c.want)
				}
				if c.supports == 0 && r.Version.Charged() != (c.want >= mvcc.FeatureOfLimits) {
					t.Errorf("%s: the first write is charged: %v", id, r.Version.Charged())
				}
			}
		})
	}
}

// TestLeaderOfNoName: a leader that does not know the cluster's id yet, because the first
// configuration came to it by the log, takes no writes before it does.
func TestLeaderOfNoName(t *testing.T) {
	var named atomic.Bool
	c := &cluster{t: t, ca: newTestCA(t), nodes: map[proto.NodeID]*testNode{}, config: func(cfg *Config) {
		cfg.Timing.NoLeader = 300 * time.Millisecond
		cfg.FirstFeature = func() uint32 { return mvcc.FeatureVersion }
		cfg.Cluster = func() proto.ClusterID {
			if named.Load() {
				return "test"
			}
			return ""
		}
	}}
	m := c.add("a")
	// Not by Bootstrap, which names the cluster.
	noError(t, m.raft.BootstrapCluster(raft.Configuration{Servers: []raft.Server{{ID: raft.ServerID(m.id), Address: raft.ServerAddress(m.addr)}}}).Error())
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
	if mark := m.State().Mark(); mark.Cluster != "test" || mark.Feature != mvcc.FeatureVersion {
		t.Errorf("the first write is in %+v", mark)
	}
}
