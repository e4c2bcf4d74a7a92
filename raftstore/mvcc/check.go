package mvcc

import (
	"errors"
	"fmt"

	"github.com/quorate/quorate/proto"
)

// Check verifies the invariants of the whole state and returns everything that
// is broken. It must not run concurrently with the writer. Cost: every version.
func (s *State) Check() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	floor := s.Floor()
	var historyVersions, historyBytes int64
	for name, t := range s.Tables() {
		if t.dirty {
			fail("table %s: keys are not published", name)
		}
		if got, want := t.root.Load().Len(), t.keys.Len(); got != want {
			fail("table %s: readers see %d keys, the writer %d", name, got, want)
		}
		inHistory := map[*Version]bool{}
		var last proto.Revision
		for _, c := range t.hist.list() {
			for _, v := range c.versions[:c.n.Load()] {
				if v.Revision <= last {
					fail("table %s: history has %d after %d", name, v.Revision, last)
				}
				last = v.Revision
				if v.Revision > floor {
					inHistory[v] = true
					historyVersions++
					historyBytes += v.Size()
					if v.Prev() == nil && v.CreateRevision != v.Revision {
						fail("table %s: %s at %d has lost the version before it", name, v.Key, v.Revision)
					}
				} else if v.Prev() != nil {
					fail("table %s: %s at %d, below the floor, keeps older versions", name, v.Key, v.Revision)
				}
			}
		}
		if last > t.Latest() {
			fail("table %s: latest is %d, history ends at %d", name, t.Latest(), last)
		}
		var live, liveBytes, tombstones int64
		chained := 0
		t.keys.Scan(func(it *item) bool {
			newest := it.newest.Load()
			if newest.Deleted {
				tombstones++
			}
			if !newest.Deleted {
				live++
				liveBytes += newest.Size()
			} else if newest.Revision <= floor {
				fail("table %s: %s: tombstone %d outlived the floor", name, it.key, newest.Revision)
			}
			for v := newest; v != nil; v = v.Prev() {
				if v.Key != it.key {
					fail("table %s: %s has a version of %s", name, it.key, v.Key)
				}
				if p := v.Prev(); p != nil && p.Revision >= v.Revision {
					fail("table %s: %s: %d follows %d", name, it.key, v.Revision, p.Revision)
				}
				if v.Revision > floor {
					chained++
					if !inHistory[v] {
						fail("table %s: %s at %d is not in the history", name, it.key, v.Revision)
					}
				}
			}
			return true
		})
		if got := t.tombstones.Load(); got != tombstones {
			fail("table %s: counts %d tombstones, has %d", name, got, tombstones)
		}
		if chained != len(inHistory) {
			fail("table %s: %d versions above the floor in chains, %d in the history", name, chained, len(inHistory))
		}
		if gotLive, gotBytes := t.Live(); gotLive != live || gotBytes != liveBytes {
			fail("table %s: counts %d live keys of %d bytes, has %d of %d", name, gotLive, gotBytes, live, liveBytes)
		}
	}
	if v, b := s.History(); v != historyVersions || b != historyBytes {
		fail("history counts %d versions of %d bytes, has %d of %d", v, b, historyVersions, historyBytes)
	}
	for id, rev := range s.requests {
		if rev <= floor {
			fail("request %x at %d outlived the floor %d", id, rev, floor)
		}
	}
	errs = append(errs, s.checkLedger()...)
	return errors.Join(errs...)
}
