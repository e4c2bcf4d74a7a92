package raftstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/quorate/quorate/proto"
)

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
	//wall: time that passed before the question is the least that is right, not a bound
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
