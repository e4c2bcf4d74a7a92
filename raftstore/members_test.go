package raftstore

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// The index of the configuration is what changes are compared and set with.
func TestMembersIndex(t *testing.T) {
	c := newCluster(t, 3, func(cfg *Config) {
		cfg.Limits.TrailingLogs, cfg.Limits.SnapshotThreshold = 8, 16
		cfg.Timing.SnapshotInterval = 20 * time.Millisecond
	})
	l := c.leader()
	first, _, err := l.Members()
	if err != nil || first == 0 {
		t.Fatalf("the first configuration is at %d (%v)", first, err)
	}
	if err := l.AddNonvoter(c.ctx(), "x", "127.0.0.1:1", first); err != nil {
		t.Fatal(err)
	}
	second, servers, err := l.Members()
	if err != nil || second <= first || len(servers) != 4 {
		t.Fatalf("after a change the configuration of %d is at %d, before it at %d (%v)", len(servers), second, first, err)
	}
	if err := l.RemoveServer(c.ctx(), "x", first); !errors.Is(err, ErrConfigurationChanged) {
		t.Errorf("a change of the configuration before: %v, want %v", err, ErrConfigurationChanged)
	}
	// A restart finds it in the snapshot when the log does not hold it any more.
	away := c.other(l)
	for i := range 100 {
		if _, err := l.Propose(c.ctx(), write("k", fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	c.eventually("the log is cut", func() error {
		if first, err := away.log.FirstIndex(); err != nil || first <= second {
			return fmt.Errorf("the log begins at %d: %w", first, err)
		}
		return nil
	})
	c.close(away)
	c.open(away)
	if got, _, err := away.Members(); err != nil || got != second {
		t.Errorf("after a restart the configuration is at %d, want %d (%v)", got, second, err)
	}
}
