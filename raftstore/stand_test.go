package raftstore

import (
	"testing"
	"time"
)

// With timeouts far above what is allowed here, a leader whose process is gone
// is replaced at once: by the voters that see its port refuse them, not by
// silence.
func TestDeadLeaderIsReplacedAtOnce(t *testing.T) {
	c := newCluster(t, 3, func(cfg *Config) {
		cfg.Timing.Heartbeat, cfg.Timing.Election, cfg.Timing.Lease = 5*time.Second, 5*time.Second, 2*time.Second
	})
	for range 3 {
		leader := c.leader()
		survivor := c.other(leader)
		if _, err := survivor.Propose(c.ctx(), write("k", "v")); err != nil {
			t.Fatal(err)
		}
		c.close(leader)
		began := time.Now()
		if _, err := survivor.Propose(c.ctx(), write("k", "w")); err != nil {
			t.Fatal(err)
		}
		took := time.Since(began)
		t.Logf("the first write after the loss took %s", took)
		if took > 2*time.Second {
			t.Errorf("the first write after the loss took %s: only silence replaced the leader", took)
		}
		c.open(leader)
		if err := leader.WaitApplied(c.ctx(), survivor.Applied()); err != nil {
			t.Fatal(err)
		}
	}
}
