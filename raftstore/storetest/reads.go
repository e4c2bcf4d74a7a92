package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// An index from ReadIndex includes every write that was acknowledged before.
func readIndex(t *testing.T, e *env) {
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for range 10 {
				r, err := e.s.Propose(e.ctx, e.put(fmt.Sprint("k", g), "v"))
				if err != nil {
					t.Errorf("propose: %v", err)
					return
				}
				index, err := e.s.ReadIndex(e.ctx)
				if err != nil || index < r.Revision {
					t.Errorf("read index %d, %v after a write at %d", index, err, r.Revision)
					return
				}
				if err := e.s.WaitApplied(e.ctx, index); err != nil || e.s.State().Applied() < index {
					t.Errorf("wait for %d: %v, applied %d", index, err, e.s.State().Applied())
					return
				}
			}
		})
	}
	wg.Wait()
	e.promptly("read index", func(ctx context.Context) error {
		<-ctx.Done()
		_, err := e.s.ReadIndex(ctx)
		return err
	})
}

func waitApplied(t *testing.T, e *env) {
	r := e.apply(e.put("a", "1"))
	if err := e.s.WaitApplied(e.ctx, r.Revision); err != nil {
		t.Errorf("wait for what is applied: %v", err)
	}
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			target := r.Revision + 1 + proto.Revision(i%5)
			if err := e.s.WaitApplied(e.ctx, target); err != nil || e.s.State().Applied() < target {
				t.Errorf("wait for %d: %v, applied %d", target, err, e.s.State().Applied())
			}
		})
	}
	for range 5 {
		e.apply(e.put("a", "2"))
	}
	wg.Wait()
	far := e.s.State().Applied() + 1_000_000
	e.promptly("wait for an index", func(ctx context.Context) error { return e.s.WaitApplied(ctx, far) })
	ctx, cancel := context.WithTimeout(e.ctx, 10*time.Millisecond)
	defer cancel()
	if err := e.s.WaitApplied(ctx, far); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a wait past its deadline: %v", err)
	}
}

// While eight writers write, each watcher gets each event once and in order,
// wherever it began.
func watchWhileWriting(t *testing.T, e *env) {
	const writers = 8
	each := 40
	if testing.Short() {
		each = 20
	}
	start := e.apply(e.put("start", "1")).Revision
	var mu sync.Mutex
	acknowledged := map[proto.Revision]string{}

	sawEnd := func(all []event) bool { return len(all) > 0 && all[len(all)-1].key == "end" }
	results := make([][]event, 4)
	var watchers sync.WaitGroup
	for i := range results {
		w := e.watch(start, mvcc.Interest{})
		watchers.Go(func() {
			all, err := e.follow(w, sawEnd)
			if err != nil {
				t.Errorf("watcher %d: %v", i, err)
			}
			results[i] = all
		})
	}
	var wg sync.WaitGroup
	for g := range writers {
		wg.Go(func() {
			for i := range each {
				w := e.put(fmt.Sprint("k", g), fmt.Sprint(i))
				if i%10 == 9 {
					w = e.del(fmt.Sprint("k", g))
				}
				r, err := e.s.Propose(e.ctx, w)
				if err != nil || r.Outcome != applied {
					t.Errorf("propose: %v, %v", r.Outcome, err)
					return
				}
				mu.Lock()
				acknowledged[r.Revision] = w.Key
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	end := e.apply(e.put("end", "1")).Revision
	acknowledged[end] = "end"
	watchers.Wait()

	late, err := e.follow(e.watch(start, mvcc.Interest{}), sawEnd)
	if err != nil {
		t.Errorf("a watcher that began afterwards: %v", err)
	}
	for i, all := range append(results, late) {
		if len(all) != len(acknowledged) {
			t.Errorf("watcher %d saw %d events of %d", i, len(all), len(acknowledged))
		}
		for _, ev := range all {
			if acknowledged[ev.rev] != ev.key {
				t.Errorf("watcher %d saw %s at %d, which was %q", i, ev.key, ev.rev, acknowledged[ev.rev])
			}
		}
	}
}

// Wake is sent when a write of the table is visible, and Next waits for nothing.
func watchWakes(t *testing.T, e *env) {
	w := e.watch(e.s.State().Applied(), mvcc.Interest{})
	buf := make([]*mvcc.Version, 4)
	if n, _, err := w.Next(buf); n != 0 || err != nil {
		t.Fatalf("an empty history: %d events, %v", n, err)
	}
	for i := range 20 {
		r := e.apply(e.put("a", fmt.Sprint(i)))
		for n := 0; n == 0; {
			select {
			case <-w.Wake():
			case <-e.ctx.Done():
				t.Fatalf("write %d woke nobody", i)
			}
			var err error
			var progress proto.Revision
			if n, progress, err = w.Next(buf); err != nil || n > 1 || (n == 1 && (buf[0].Revision != r.Revision || progress < r.Revision)) {
				t.Fatalf("write %d: %d events up to %d, %v", i, n, progress, err)
			}
		}
	}
	// Other tables move the progress on.
	other := e.put("b", "1")
	other.Table += "/other"
	r := e.apply(other)
	if n, progress, err := w.Next(buf); n != 0 || err != nil || progress < r.Revision {
		t.Errorf("after a write elsewhere at %d: %d events up to %d, %v", r.Revision, n, progress, err)
	}
	w.Close()
	w.Close()
}

// A watch begins behind any revision above the floor.
func watchFromThePast(t *testing.T, e *env) {
	var revs []proto.Revision
	for i := range 20 {
		revs = append(revs, e.apply(e.put(fmt.Sprint("k", i%3), fmt.Sprint(i))).Revision)
	}
	for i, rev := range revs[:len(revs)-1] {
		all, err := e.follow(e.watch(rev, mvcc.Interest{}), func(all []event) bool { return len(all) == len(revs)-i-1 })
		if err != nil {
			t.Fatalf("from %d: %v", rev, err)
		}
		for j, ev := range all {
			if ev.rev != revs[i+1+j] {
				t.Errorf("from %d: event %d is %d, want %d", rev, j, ev.rev, revs[i+1+j])
			}
		}
	}
	// A revision that does not exist yet: nothing at or below it is sent.
	ahead := e.s.State().Applied() + 3
	w := e.watch(ahead, mvcc.Interest{})
	for e.s.State().Applied() <= ahead {
		e.apply(e.put("k0", "later"))
	}
	last := e.apply(e.put("k0", "last")).Revision
	all, err := e.follow(w, func(all []event) bool { return len(all) > 0 && all[len(all)-1].rev == last })
	if err != nil || all[0].rev <= ahead {
		t.Errorf("from %d, before it existed: %v, %v", ahead, all, err)
	}
}

// A watcher of one key reads what concerns that key and nothing else, and its progress
// passes the rest.
func watchOneKey(t *testing.T, e *env) {
	w := e.watch(e.s.State().Applied(), mvcc.Interest{Key: "ns/a"})
	var want []proto.Revision
	for i := range 10 {
		want = append(want, e.apply(e.put("ns/a", fmt.Sprint(i))).Revision)
		e.apply(e.put("ns/b", fmt.Sprint(i)))
	}
	want = append(want, e.apply(e.del("ns/a")).Revision)
	all, err := e.follow(w, func(all []event) bool { return len(all) >= len(want) })
	if err != nil {
		t.Fatal(err)
	}
	for i, ev := range all {
		if ev.key != "ns/a" || ev.rev != want[i] || ev.deleted != (i == len(want)-1) {
			t.Errorf("event %d is %+v, want revision %d", i, ev, want[i])
		}
	}
	rest := e.apply(e.put("ns/b", "last")).Revision
	if n, progress, err := w.Next(make([]*mvcc.Version, 1)); n != 0 || err != nil || progress < rest {
		t.Errorf("after another key's write at %d: %d events up to %d, %v", rest, n, progress, err)
	}
}

// Below the floor reads and watches are refused, above it nothing is missing.
func compaction(t *testing.T, e *env) {
	c, ok := e.s.(Compactor)
	if !ok {
		t.Log("the store has no Compact: only its contract without one is tested")
		return
	}
	first := e.apply(e.put("a", "1")).Revision
	lagging := e.watch(first-1, mvcc.Interest{})
	second := e.apply(e.put("a", "2")).Revision
	gone := e.apply(e.put("b", "1"))
	e.apply(e.del("b"))
	floor := e.s.State().Applied()
	third := e.apply(e.put("a", "3")).Revision
	if err := c.Compact(e.ctx, floor); err != nil {
		t.Fatal(err)
	}
	if got := e.s.State().Floor(); got < floor {
		t.Fatalf("the floor is %d after a compaction to %d", got, floor)
	}
	table := e.s.State().Table(e.table)
	if _, err := table.Get("a", second-1); !errors.Is(err, mvcc.ErrCompacted) {
		t.Errorf("get below the floor: %v", err)
	}
	if _, err := table.Range(mvcc.Query{At: floor - 1}); !errors.Is(err, mvcc.ErrCompacted) {
		t.Errorf("range below the floor: %v", err)
	}
	if _, err := e.s.Watch(e.table, floor-1, mvcc.Interest{}); !errors.Is(err, mvcc.ErrCompacted) {
		t.Errorf("watch below the floor: %v", err)
	}
	if _, err := e.s.Watch(e.table+"/never", floor-1, mvcc.Interest{}); !errors.Is(err, mvcc.ErrCompacted) {
		t.Errorf("watch of an unknown table below the floor: %v", err)
	}
	if _, _, err := lagging.Next(make([]*mvcc.Version, 4)); !errors.Is(err, mvcc.ErrCompacted) {
		t.Errorf("a watcher that the floor has passed: %v", err)
	}
	if v, err := table.Get("a", floor); err != nil || v == nil || v.Revision != second {
		t.Errorf("get at the floor: %+v, %v", v, err)
	}
	if v, err := table.Get("b", floor); err != nil || v != nil {
		t.Errorf("a deleted key at the floor: %+v, %v (%+v)", v, err, gone)
	}
	if all, err := e.follow(e.watch(floor, mvcc.Interest{}), func(all []event) bool { return len(all) == 1 }); err != nil || all[0].rev != third {
		t.Errorf("watch at the floor: %v, %v", all, err)
	}
	// The floor does not go back.
	if err := c.Compact(e.ctx, 1); err != nil || e.s.State().Floor() < floor {
		t.Errorf("compact to 1: %v, floor %d", err, e.s.State().Floor())
	}
}

// Pages read at one revision are one consistent list while writes go on.
func pagesAtOneRevision(t *testing.T, e *env) {
	const keys = 60
	for i := range keys {
		e.apply(e.put(fmt.Sprintf("k%03d", i), "1"))
	}
	ctx, cancel := context.WithCancel(e.ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			key := fmt.Sprintf("k%03d", i*7%(keys+20))
			w := e.put(key, "2")
			if i%3 == 0 {
				w = e.del(key)
			}
			if _, err := e.s.Propose(ctx, w); err != nil && ctx.Err() == nil {
				t.Errorf("propose: %v", err)
				return
			}
		}
	})
	defer wg.Wait()
	defer cancel()
	for range 30 {
		state := e.s.State()
		at, table := state.Applied(), state.Table(e.table)
		whole, err := table.Range(mvcc.Query{At: at})
		if err != nil {
			t.Fatalf("range: %v", err)
		}
		var paged []*mvcc.Version
		for q := (mvcc.Query{At: at, Limit: 7}); ; {
			page, err := table.Range(q)
			if err != nil {
				t.Fatalf("page: %v", err)
			}
			paged = append(paged, page.Versions...)
			if want := int64(len(whole.Versions) - len(paged)); page.Remaining != want || page.More != (want > 0) {
				t.Fatalf("page says remaining %d, more %t; want %d", page.Remaining, page.More, want)
			}
			if !page.More {
				break
			}
			q.From = page.Next
		}
		for i, v := range whole.Versions {
			if paged[i] != v || v.Revision > at {
				t.Fatalf("at %d: item %d is %s at %d in pages, %s at %d in one", at, i, paged[i].Key, paged[i].Revision, v.Key, v.Revision)
			}
		}
	}
}

// role awaits a settled role: a store may take its leader for lost, and campaign, on a
// machine that stands still for a second.
func role(t *testing.T, e *env) {
	settled := func() bool {
		switch e.s.Role() {
		case "leader", "follower", "nonvoter":
			return true
		}
		return false
	}
	for !settled() {
		select {
		case <-e.ctx.Done():
			t.Fatalf("role %q on a node that accepts writes: %v", e.s.Role(), context.Cause(e.ctx))
		case <-time.After(10 * time.Millisecond):
		}
	}
	if s := e.s.Staleness(); s < 0 || s > time.Minute {
		t.Errorf("staleness %v on a node that accepts writes", s)
	}
}
