package storetest

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// A namespace never uses more than its limit, however many write at the same time; what is
// deleted is given back, and readers see what is used.
func limits(t *testing.T, e *env) {
	namespace := unique()
	limited := func(most int64) {
		w := e.put(namespace+"/limit", "l")
		w.Table += "/limits"
		w.Limits = []*proto.Limit{{Bounds: []*proto.Bound{{Name: "a", Max: most}, {Name: "keys", Max: most, Table: e.table}}}}
		e.apply(w)
	}
	charged := func(key string, amount int64) *proto.Write {
		w := e.put(namespace+"/"+key, key)
		w.Usage, w.EnforceLimits = &proto.Usage{Amounts: []*proto.Amount{{Name: "a", Value: amount}}}, true
		return w
	}
	used := func(want ...mvcc.BoundUse) {
		t.Helper()
		use, at := e.s.State().Usage(e.table+"/limits", namespace+"/limit")
		if !slices.Equal(use, want) || at > e.s.State().Applied() {
			t.Errorf("used as of %d: %v, want %v", at, use, want)
		}
	}
	e.apply(charged("first", 3))
	used()
	limited(10)
	used(mvcc.BoundUse{Name: "a", Used: 3, Max: 10}, mvcc.BoundUse{Name: "keys", Used: 1, Max: 10})

	var wg sync.WaitGroup
	var got, refused atomic.Int64
	for i := range 20 {
		wg.Go(func() {
			r, err := e.s.Propose(e.ctx, charged(fmt.Sprint("k", i), 2))
			switch {
			case err != nil:
				t.Errorf("propose: %v", err)
			case r.Outcome == applied:
				got.Add(1)
			case r.Outcome == limitExceeded:
				refused.Add(1)
			}
		})
	}
	wg.Wait()
	if got.Load() != 3 || refused.Load() != 17 {
		t.Errorf("%d got in, %d did not; there was room for 3", got.Load(), refused.Load())
	}
	used(mvcc.BoundUse{Name: "a", Used: 9, Max: 10}, mvcc.BoundUse{Name: "keys", Used: 4, Max: 10})
	// The refusal says why, also to those who do not lead.
	r := e.do(charged("late", 2), limitExceeded)
	x := r.Exceeded
	if x.GetTable() != e.table+"/limits" || x.Key != namespace+"/limit" || len(x.Bounds) != 1 ||
		x.Bounds[0].Name != "a" || x.Bounds[0].Requested != 2 || x.Bounds[0].Used != 9 || x.Bounds[0].Max != 10 {
		t.Errorf("refused by %v", x)
	}
	e.apply(charged("late", 1))
	e.apply(e.del(namespace + "/first"))
	e.apply(charged("later", 3))
	limited(1)
	used(mvcc.BoundUse{Name: "a", Used: 10, Max: 1}, mvcc.BoundUse{Name: "keys", Used: 5, Max: 1})
	e.do(charged("later", 4), limitExceeded)
	e.apply(charged("later", 3))
	gone := e.del(namespace + "/limit")
	gone.Table += "/limits"
	e.apply(gone)
	used()
	e.apply(charged("later", 99))
}
