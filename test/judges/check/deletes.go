package check

import (
	"slices"
	"sort"
	"time"

	"github.com/quorate/quorate/test/judges/history"
)

// settleDeletes finds the deletions behind the log's: of those whose answer was
// lost, or did not tell its revision. A version at revision R was written after
// the last call of a known write up to R, and before anybody saw R or more.
func (j *judge) settleDeletes() {
	lower, upper := j.written()
	candidates := map[string][]int{}
	for i := range j.h.Ops {
		o := &j.h.Ops[i]
		if isDelete(o.Kind) && !j.done[i] && o.Revision == 0 && o.Outcome != history.Refused {
			candidates[o.Key] = append(candidates[o.Key], i)
		}
	}
	for key, ops := range candidates {
		// The one that had to end first comes first: that leaves most for the others.
		sort.SliceStable(ops, func(a, b int) bool { return j.h.Ops[ops[a]].Return < j.h.Ops[ops[b]].Return })
		before := j.base[key].Revision
		for _, at := range j.keys[key] {
			v := &j.log[at]
			if v.deleted && v.writer < 0 {
				n := slices.IndexFunc(ops, func(i int) bool {
					o := &j.h.Ops[i]
					return !j.done[i] && o.Call <= upper(at) && o.Return >= lower(at) &&
						(o.Kind == history.Delete || o.Precondition == before)
				})
				if n >= 0 {
					i := ops[n]
					v.writer, j.done[i], j.rev[i] = i, true, v.rev
				}
			}
			before = v.rev
		}
	}
	if !j.complete {
		return
	}
	for i := range j.h.Ops {
		o := &j.h.Ops[i]
		if isDelete(o.Kind) && o.Outcome == history.OK && o.Revision == 0 && !j.done[i] {
			j.v.Counts.LostWrites++
			j.opViolation(LogAcknowledged, i, "acknowledged, but the log has no deletion of %s at that time", o.Key)
		}
	}
}

// written returns when the version at a position of the log can have been
// written: not before lower, not after upper.
func (j *judge) written() (lower, upper func(at int32) time.Duration) {
	calls := make([]time.Duration, len(j.log))
	last := time.Duration(0)
	for i := range j.log {
		if w := j.log[i].writer; w >= 0 {
			last = max(last, j.h.Ops[w].Call)
		}
		calls[i] = last
	}
	return func(at int32) time.Duration { return calls[at] },
		func(at int32) time.Duration {
			i, _ := slices.BinarySearchFunc(j.seen, j.log[at].rev, func(s seen, rev uint64) int {
				if s.rev < rev {
					return -1
				}
				return 1
			})
			if i == len(j.seen) {
				return history.Forever
			}
			return j.seen[i].at
		}
}
