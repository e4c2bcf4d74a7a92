package raftstore

import (
	"errors"
	"testing"
	"time"

	"github.com/quorate/quorate/proto"
)

// TestQuorumIsLost: what needs a leader does not wait for one when none can be elected.
func TestQuorumIsLost(t *testing.T) {
	c := &cluster{t: t, ca: newTestCA(t), nodes: map[proto.NodeID]*testNode{}, config: func(cfg *Config) {
		cfg.Timing.NoLeader = time.Hour
		cfg.QuorumIsLost = func() bool { return true }
	}}
	m := c.add("a") // it has no configuration, and so no leader
	if _, err := m.Propose(c.ctx(), write("k", "v")); !errors.Is(err, ErrNoLeader) {
		t.Errorf("a write: %v", err)
	}
	if _, err := m.ReadIndex(c.ctx()); !errors.Is(err, ErrNoLeader) {
		t.Errorf("a read: %v", err)
	}
}
