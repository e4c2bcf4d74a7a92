package raftstore

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/internal/must"
)

// slowLog makes each write of the log's entries take so much longer.
func slowLog(by time.Duration) func(*Config) {
	return func(cfg *Config) {
		cfg.TestHooks.Commit = func(file string, commit func() error) error {
			err := commit()
			if filepath.Dir(file) == "raft-log" {
				//sleep: a slow disk is what is tested
				time.Sleep(by)
			}
			return err
		}
	}
}

// TestWritesGoAhead: a lone write waits for the slower of two disks, not for one behind the
// other.
func TestWritesGoAhead(t *testing.T) {
	t.Parallel()
	const disk = 100 * time.Millisecond
	c := newCluster(t, 3, slowLog(disk))
	leader := c.leader()
	fastest := time.Hour
	for i := range 8 {
		// Everything before has been acknowledged by both.
		for _, m := range c.nodes {
			must.OK(t, m.WaitApplied(c.ctx(), leader.Applied()))
		}
		began := time.Now()
		_, err := leader.Propose(c.ctx(), write(fmt.Sprint("k", i), "v"))
		must.OK(t, err)
		fastest = min(fastest, time.Since(began))
	}
	t.Logf("a write took %s where a disk takes %s; %d messages went ahead", fastest, disk, leader.transport.WentAhead())
	if fastest < disk || fastest >= 2*disk {
		t.Errorf("the fastest write took %s, want less than two syncs of %s", fastest, disk)
	}
	if leader.transport.WentAhead() == 0 {
		t.Error("nothing went ahead")
	}
}

// TestNothingGoesAheadToOthers: a node that was removed had acknowledged everything until
// then. It gets nothing more.
func TestNothingGoesAheadToOthers(t *testing.T) {
	c := newCluster(t, 3, slowLog(20*time.Millisecond))
	leader := c.leader()
	removed := c.other(leader)
	for i := range 4 {
		_, err := leader.Propose(c.ctx(), write(fmt.Sprint("k", i), "v"))
		must.OK(t, err)
	}
	index, _ := leader.Members()
	must.OK(t, leader.RemoveServer(c.ctx(), removed.id, index))
	at := leader.node.Raft().LastIndex()
	acked := func() uint64 { return leader.transport.Progress(raft.ServerID(removed.id)).Acked }
	c.eventually("the removed node knows that it is", func() error {
		if n := acked(); n < at {
			return fmt.Errorf("it has %d of %d", n, at)
		}
		return nil
	})
	before := leader.transport.WentAhead()
	for i := range 4 {
		_, err := leader.Propose(c.ctx(), write(fmt.Sprint("later", i), "v"))
		must.OK(t, err)
	}
	c.eventually("something goes ahead to the other one", func() error {
		if leader.transport.WentAhead() == before {
			return fmt.Errorf("nothing since %d", before)
		}
		return nil
	})
	if n := acked(); n > at {
		t.Errorf("the removed node has entry %d, and was removed with %d", n, at)
	}
}
