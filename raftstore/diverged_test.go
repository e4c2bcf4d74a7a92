package raftstore

import (
	"errors"
	"testing"

	"github.com/hashicorp/raft"
)

// A state that holds another entry at its index than the committed log has is
// found as soon as the log reaches it.
func TestDivergedStateIsFatal(t *testing.T) {
	c := newCluster(t, 1, nil)
	l := c.leader()
	if _, err := l.Propose(c.ctx(), write("k", "v")); err != nil {
		t.Fatal(err)
	}
	mark := l.State().Mark()
	f := &fsm{hub: l.hub, fatal: func(err error) { l.fatal <- err }}
	f.ApplyBatch([]*raft.Log{{Index: uint64(mark.Applied), Term: uint64(mark.Term), Type: raft.LogCommand}})
	select {
	case err := <-l.fatal:
		t.Fatalf("the entry that was applied: %v", err)
	default:
	}
	f.ApplyBatch([]*raft.Log{{Index: uint64(mark.Applied), Term: uint64(mark.Term) + 1, Type: raft.LogCommand}})
	select {
	case err := <-l.fatal:
		if !errors.Is(err, ErrDiverged) {
			t.Errorf("got %v, want %v", err, ErrDiverged)
		}
	default:
		t.Error("another entry at the applied index passed")
	}
}
