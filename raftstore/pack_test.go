package raftstore

import (
	"testing"
	"time"

	"github.com/quorate/quorate/proto"
)

// TestPackingIsDue: under load what is superseded waits for less than what is not; at rest both are packed at
// once, but for what has been written since.
func TestPackingIsDue(t *testing.T) {
	p := packing{old: 5 * time.Second, fresh: 30 * time.Second, rest: time.Second}
	begin := time.Now()
	var was []mark
	allocated := uint64(restAllocated - 1)
	at := func(second int, applied proto.Revision) {
		was = append(was, mark{at: begin.Add(time.Duration(second) * time.Second), applied: applied})
	}
	due := func(second int, applied, old, fresh proto.Revision, share time.Duration) {
		t.Helper()
		at(second, applied)
		gotOld, gotFresh, gotShare := p.due(was, begin.Add(time.Duration(second)*time.Second), applied, allocated)
		if gotOld != old || gotFresh != fresh || gotShare != share {
			t.Errorf("after %d s: superseded up to %d, newest up to %d, a core in %d parts; want %d, %d, %d", second, gotOld, gotFresh, gotShare, old, fresh, share)
		}
	}
	due(0, 1000, 0, 0, packShare) // nobody knows how old that is
	for second := 1; second < 5; second++ {
		due(second, proto.Revision(1000+1000*second), 0, 0, packShare)
	}
	for second := 5; second < 30; second++ {
		due(second, proto.Revision(1000+1000*second), proto.Revision(1000*(second-4)), 0, packShare)
	}
	for second := 30; second < 40; second++ {
		due(second, proto.Revision(1000+1000*second), proto.Revision(1000*(second-4)), proto.Revision(1000*(second-29)), packShare)
	}
	due(40, 40_000+restWrites, 36_000, 11_000, packShare)
	due(41, 40_000+restWrites, 40_000+restWrites, 40_000+restWrites, restShare)
	due(42, 40_000+2*restWrites-1, 40_000+restWrites, 40_000+restWrites, restShare)
	allocated = restAllocated
	due(43, 40_000+2*restWrites-1, 39_000, 14_000, packShare) // somebody reads
	allocated = 0
	due(44, 90_000, 40_000, 15_000, packShare)
}
