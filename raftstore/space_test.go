package raftstore

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
)

// TestStorageLimit: what would exceed the limit is refused on every node, and is not written to the log;
// deletions and what makes nothing larger go on; and room that was made is there at once, on all nodes.
func TestStorageLimit(t *testing.T) {
	c := newCluster(t, 3, nil)
	leader := c.leader()
	follower := c.other(leader)
	members := func() uint64 {
		index, _ := leader.Members()
		return index
	}
	limit := func(bytes int64) {
		t.Helper()
		must.OK(t, leader.LimitStorage(c.ctx(), bytes, members()))
		must.OK(t, follower.WaitApplied(c.ctx(), leader.Applied()))
	}
	if err := follower.LimitStorage(c.ctx(), 1<<20, members()); !errors.Is(err, ErrNotLeader) {
		t.Errorf("through a follower: %v", err)
	}
	if err := leader.LimitStorage(c.ctx(), 1<<20, members()+1); !errors.Is(err, ErrConfigurationChanged) {
		t.Errorf("in another configuration: %v", err)
	}
	limit(1 << 20)
	for _, m := range []*testNode{leader, follower} {
		if got := m.HistoryLimit(); got != leastHistory {
			t.Errorf("%s: the history may take %d bytes", m.id, got)
		}
	}
	value := strings.Repeat("x", 100<<10)
	propose := func(m *testNode, w *proto.Write, want proto.Outcome) {
		t.Helper()
		r, err := m.Propose(c.ctx(), w)
		if err != nil || r.Outcome != want {
			t.Fatalf("%s through %s: %v, %v, want %v", w.Key, m.id, r.Outcome, err, want)
		}
		if full := want == proto.Outcome_OUTCOME_NO_SPACE; full != (r.Exceeded != nil) || full && r.Exceeded.Bounds[0].Max != 1<<20 {
			t.Fatalf("%s through %s: refused by %v", w.Key, m.id, r.Exceeded)
		}
	}
	const applied, full = proto.Outcome_OUTCOME_APPLIED, proto.Outcome_OUTCOME_NO_SPACE
	for i := range 10 {
		propose(follower, write(fmt.Sprint("k", i), value), applied)
	}
	// Entries of Raft's own may come; the refused writes do not.
	before := leader.node.Raft().LastIndex()
	for range 100 {
		propose(follower, write("late", value), full)
		propose(leader, write("late", value), full)
	}
	if grown := leader.node.Raft().LastIndex() - before; grown > 50 {
		t.Errorf("the log has grown by %d entries for 200 writes that were refused", grown)
	}
	propose(follower, write("k1", value+"y"), applied) // small
	propose(follower, write("k1", value+value), full)
	propose(follower, write("k1", value), applied)
	gone := func(key string) *proto.Write { return &proto.Write{Table: "t", Key: key, Op: proto.Op_OP_DELETE} }
	propose(leader, gone("k0"), applied)
	propose(follower, write("late", value), applied)
	propose(leader, write("later", value), full)

	// A limit below what is stored: everything can become smaller.
	limit(100 << 10)
	propose(follower, gone("k1"), applied)
	propose(follower, write("k2", "short"), applied)
	if r, err := follower.Propose(c.ctx(), write("new", "")); err != nil || r.Outcome != full {
		t.Errorf("a new key far above the limit: %v, %v", r.Outcome, err)
	}
	// The cluster's own tables are not bounded.
	own := write("m", "v")
	own.Table = proto.ClusterTables + "members"
	propose(follower, own, applied)

	// The limit is part of the state.
	used, _ := follower.Storage()
	c.close(follower)
	c.open(follower)
	must.OK(t, follower.WaitApplied(c.ctx(), leader.Applied()))
	if again, most := follower.Storage(); again != used || most != 100<<10 {
		t.Errorf("%d bytes of %d after a start, %d before", again, most, used)
	}
}
