package raftstore

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
)

// The index of the configuration is what changes are compared and set with.
func TestMembersIndex(t *testing.T) {
	c := newCluster(t, 3, func(cfg *Config) {
		cfg.Limits.TrailingLogs, cfg.Limits.SnapshotThreshold = 8, 16
		cfg.Timing.SnapshotInterval = 20 * time.Millisecond
	})
	l := c.leader()
	first, _ := l.Members()
	if first == 0 {
		t.Fatal("the first configuration is at 0")
	}
	must.OK(t, l.AddNonvoter(c.ctx(), "x", "127.0.0.1:1", first))
	second, servers := l.Members()
	if second <= first || len(servers) != 4 {
		t.Fatalf("after a change the configuration of %d is at %d, before it at %d", len(servers), second, first)
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
	if got, _ := away.Members(); got != second {
		t.Errorf("after a restart the configuration is at %d, want %d", got, second)
	}
}
