package raftstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/quorate/quorate/proto"
)

// A voter that was away for long enough that raft has lost patience with it has
// everything within a moment of its return, and makes a quorum.
func TestReturnIsNoticed(t *testing.T) {
	c := newCluster(t, 3, nil)
	leader := c.leader()
	away := c.other(leader)
	var third *testNode
	for _, m := range c.nodes {
		if m != leader && m != away {
			third = m
		}
	}
	c.close(away)
	// Nine attempts of raft's own would have failed by now, and the next one would
	// be more than two seconds away.
	<-time.After(6 * time.Second)
	var last proto.Revision
	for i := range 10 {
		r, err := leader.Propose(c.ctx(), write(fmt.Sprint("k", i), "v"))
		if err != nil {
			t.Fatal(err)
		}
		last = r.Revision
	}
	c.open(away)
	back := time.Now()
	c.close(third)
	if _, err := leader.Propose(c.ctx(), write("after", "v")); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(back); took > 1500*time.Millisecond {
		t.Errorf("a write had no quorum for %s after a voter was back", took)
	}
	if err := away.WaitApplied(c.ctx(), last); err != nil {
		t.Error(err)
	}
}
