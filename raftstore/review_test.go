package raftstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/proto"
)

// Raft drops committed batches that wait for the state machine when it shuts
// down, and never answers their futures. Neither Close nor a caller may hang on
// one.
func TestCloseUnderLoad(t *testing.T) {
	for round := range 3 {
		c := newCluster(t, 1, func(cfg *Config) { cfg.Limits.MaxAppendEntries = 2 })
		m := c.leader()
		// A state machine that lags, so that batches wait for it.
		applied := m.fsm.applied
		m.fsm.applied = func() { time.Sleep(2 * time.Millisecond); applied() }
		var writers sync.WaitGroup
		ctx, cancel := context.WithCancel(context.Background())
		for w := range 32 {
			writers.Add(1)
			go func() {
				defer writers.Done()
				ctx := ctx
				if w%2 == 0 {
					ctx = context.Background()
				}
				for i := 0; ; i++ {
					if _, err := m.store.Load().Propose(ctx, write(fmt.Sprint(w), fmt.Sprint(i))); err != nil {
						if !errors.Is(err, ErrClosed) && !errors.Is(err, ErrUnknownOutcome) && !errors.Is(err, ErrNoLeader) && ctx.Err() == nil {
							t.Errorf("a proposal at Close: %v", err)
						}
						return
					}
				}
			}()
		}
		c.eventually("load", func() error {
			if m.Applied() < 20 {
				return errors.New("not yet")
			}
			return nil
		})
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.close(m)
			writers.Wait()
		}()
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			t.Fatalf("round %d: Close or a caller hangs on a proposal that Raft never answers", round)
		}
		cancel()
	}
}

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

// However fast the history grows beyond its bytes, the floor stays behind what
// was applied a period ago: request ids are forgotten with the history.
func TestFloorStaysBehindRetries(t *testing.T) {
	const period, window = 10 * time.Second, 5 * time.Minute
	for _, tooMany := range []bool{false, true} {
		var marks []mark
		var floor proto.Revision
		for i := range 100 {
			at := time.Unix(0, 0).Add(time.Duration(i) * period)
			marks, floor = trimMarks(append(marks, mark{at, proto.Revision(1000 * (i + 1))}), window, tooMany)
			if i > 0 && floor > proto.Revision(1000*i) {
				t.Fatalf("tick %d, too many bytes: %v: the floor is at %d, a period ago %d were applied", i, tooMany, floor, 1000*i)
			}
			if want := 1000 * (i + 1 - int(window/period)); !tooMany && int(floor) != max(0, want) {
				t.Fatalf("tick %d: the floor is at %d, want %d", i, floor, want)
			}
			if tooMany && i > 2 && floor == 0 {
				t.Fatalf("tick %d: too many bytes, and the floor does not move", i)
			}
		}
	}
}
