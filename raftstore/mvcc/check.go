package mvcc

import (
	"errors"
	"fmt"
	"maps"

	"github.com/quorate/quorate/proto"
)

// checkedPerBatch is how many versions CheckSome looks at for each batch, on average.
const checkedPerBatch = 256

// CheckSome is Check for who calls it after every batch: a state of up to checkedPerBatch versions
// is checked each time, a larger one so seldom that the checks of n batches look at some
// n * checkedPerBatch versions. Otherwise a test that writes n keys would look at n * n. What is
// broken stays broken in nearly all cases, so a later check finds it; the batch that broke it
// is one of those since the last check. For the writer only.
func (s *State) CheckSome() error {
	versions := int(s.historyVersions.Load())
	for _, t := range s.Tables() {
		versions += t.keys.Len()
	}
	s.unchecked++
	if s.unchecked*checkedPerBatch < versions {
		return nil
	}
	s.unchecked = 0
	return s.Check()
}

// Check verifies the invariants of the whole state and returns everything that
// is broken. It must not run concurrently with the writer. Cost: every version.
func (s *State) Check() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	floor := s.Floor()
	var historyVersions, historyBytes int64
	for _, t := range s.Tables() {
		inHistory := t.checkHistory(floor, fail)
		for v := range inHistory {
			historyVersions++
			historyBytes += v.Size()
		}
		t.checkKeys(floor, inHistory, fail)
	}
	errs = append(errs, s.checkSpace()...)
	if v, b := s.History(); v != historyVersions || b != historyBytes {
		fail("history counts %d versions of %d bytes, has %d of %d", v, b, historyVersions, historyBytes)
	}
	for id, rev := range s.requests {
		if rev <= floor {
			fail("request %x at %d outlived the floor %d", id, rev, floor)
		}
	}
	return errors.Join(append(errs, s.checkLedger()...)...)
}

// checkHistory checks the history of a table, and returns its versions above the floor.
func (t *Table) checkHistory(floor proto.Revision, fail func(format string, args ...any)) map[*Version]bool {
	inHistory := map[*Version]bool{}
	var last proto.Revision
	for _, c := range t.hist.list() {
		for i, v := range c.versions[:c.n.Load()] {
			if turn := c.turns[i/64].Load()>>(i%64)&1 == 1; turn != (v.Created() || v.Deleted) {
				fail("table %s: %s at %d: that its life turned is %v", t.name, v.Key, v.Revision, turn)
			}
			if v.Revision <= last {
				fail("table %s: history has %d after %d", t.name, v.Revision, last)
			}
			last = v.Revision
			if v.Revision > floor {
				inHistory[v] = true
				if v.Prev() == nil && v.CreateRevision != v.Revision {
					fail("table %s: %s at %d has lost the version before it", t.name, v.Key, v.Revision)
				}
			} else if v.Prev() != nil {
				fail("table %s: %s at %d, below the floor, keeps older versions", t.name, v.Key, v.Revision)
			}
		}
	}
	if last > t.Latest() {
		fail("table %s: latest is %d, history ends at %d", t.name, t.Latest(), last)
	}
	return inHistory
}

// checkKeys checks the keys of a table, and their versions against its history.
func (t *Table) checkKeys(floor proto.Revision, inHistory map[*Version]bool, fail func(format string, args ...any)) {
	if t.keys.Len() == 0 || t.gone.Load() {
		fail("table %s: has no key, and is not dropped", t.name)
	}
	if t.keysDirty || t.deadDirty {
		fail("table %s: keys are not published", t.name)
	}
	shown := t.shown.Load()
	if got, want := shown.keys.Len(), t.keys.Len(); got != want {
		fail("table %s: readers see %d keys, the writer %d", t.name, got, want)
	}
	if got, want := shown.dead.Len(), t.dead.Len(); got != want {
		fail("table %s: readers see %d dead keys, the writer %d", t.name, got, want)
	}
	var live, liveBytes int64
	chained, tombstones := 0, 0
	t.keys.Scan(func(it *item) bool {
		newest := it.newest.Load()
		if newest.Deleted {
			tombstones++
			if at, ok := t.dead.Get(it); !ok || at != it {
				fail("table %s: %s is not among the dead", t.name, it.key)
			}
		}
		if !newest.Deleted {
			live++
			liveBytes += newest.stored()
		} else if newest.Revision <= floor {
			fail("table %s: %s: tombstone %d outlived the floor", t.name, it.key, newest.Revision)
		}
		for v := newest; v != nil; v = v.Prev() {
			if v.Key != it.key {
				fail("table %s: %s has a version of %s", t.name, it.key, v.Key)
			}
			if p := v.Prev(); p != nil && p.Revision >= v.Revision {
				fail("table %s: %s: %d follows %d", t.name, it.key, v.Revision, p.Revision)
			}
			if v.Revision > floor {
				chained++
				if !inHistory[v] {
					fail("table %s: %s at %d is not in the history", t.name, it.key, v.Revision)
				}
			}
		}
		return true
	})
	if got := t.dead.Len(); got != tombstones {
		fail("table %s: has %d dead keys, should have %d", t.name, got, tombstones)
	}
	if chained != len(inHistory) {
		fail("table %s: %d versions above the floor in chains, %d in the history", t.name, chained, len(inHistory))
	}
	if gotLive, gotBytes := t.Live(); gotLive != live || gotBytes != liveBytes {
		fail("table %s: counts %d live keys of %d bytes, has %d of %d", t.name, gotLive, gotBytes, live, liveBytes)
	}
}

// checkSpace counts again what keys take.
func (s *State) checkSpace() (errs []error) {
	used, of, needed := int64(0), map[string]int64{}, map[string]int64{}
	for _, t := range s.Tables() {
		t.keys.Scan(func(it *item) bool {
			if v := it.newest.Load(); !v.Deleted {
				used += v.stored()
				of[namespaceOf(v.Key)] += v.stored()
				needed[namespaceOf(v.Key)] += needs(t.name, v)
			}
			return true
		})
	}
	if got := s.Used(); got != used {
		errs = append(errs, fmt.Errorf("the keys count for %d bytes, and take %d", got, used))
	}
	if got := s.Namespaces(); !maps.Equal(got, of) {
		errs = append(errs, fmt.Errorf("the namespaces count for %v, and take %v", got, of))
	}
	for namespace, want := range needed {
		if got := s.space.needsOf(namespace); got != want {
			errs = append(errs, fmt.Errorf("namespace %s: leases and what is being deleted count for %d bytes, and take %d", namespace, got, want))
		}
	}
	return errs
}
