package check

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/test/judges/history"
)

// All runs every check. It does not change the history, and may run beside others.
func All(h *history.History) *Verdict {
	began := time.Now()
	j := &judge{facts: newFacts(h), v: &Verdict{Name: h.Name, Seed: h.Seed}}
	j.wellFormed()
	j.readLog()
	j.settle()
	points := j.points()
	if j.deletesOpen() {
		j.sweep(points, false)
		j.settleDeletes()
	}
	j.phantoms()
	j.conditions()
	bounds := j.sweep(points, true)
	j.linearizable()
	j.watches(bounds)
	j.rules()
	j.states()
	j.count()
	slices.SortStableFunc(j.v.Violations, func(a, b Violation) int {
		return cmp.Or(rank(a.Check)-rank(b.Check), cmp.Compare(a.At, b.At), cmp.Compare(a.Check, b.Check), cmp.Compare(a.Text, b.Text))
	})
	j.v.Elapsed = time.Since(began)
	return j.v
}

// rank puts first what may explain the rest: a record that is wrong, then a log
// that is not what was acknowledged.
func rank(check string) int {
	switch {
	case check == Malformed:
		return 0
	case strings.HasPrefix(check, "log/"):
		return 1
	}
	return 2
}

// deletesOpen reports whether there are deletes whose revision nobody told.
func (j *judge) deletesOpen() bool {
	return slices.ContainsFunc(j.h.Ops, func(o history.Op) bool {
		return isDelete(o.Kind) && o.Revision == 0 && o.Outcome != history.Refused
	})
}

// states compares the nodes at the end of the run.
func (j *judge) states() {
	for i, a := range j.h.States {
		for _, b := range j.h.States[:i] {
			if a.Revision != b.Revision {
				continue
			}
			if a.Hash != b.Hash {
				j.v.add(Violation{Check: StateHash, Node: a.Node, Watch: -1, Text: a.Node + " and " + b.Node + " differ at " + rev(a.Revision) + ": " + a.Hash + ", " + b.Hash})
			}
			if a.Floor != b.Floor {
				j.v.add(Violation{Check: StateHash, Node: a.Node, Watch: -1, Text: a.Node + " and " + b.Node + " have different floors at " + rev(a.Revision) + ": " + rev(a.Floor) + ", " + rev(b.Floor)})
			}
		}
	}
}

// count fills in what the checks have not counted.
func (j *judge) count() {
	c := &j.v.Counts
	c.Runs, c.Relists, c.Overtaken, c.Watches = 1, j.h.Relists, j.h.Overtaken, len(j.h.Watches)
	for i := range j.h.Ops {
		o := &j.h.Ops[i]
		c.countOp(o.Kind, o.Outcome, 1)
		switch {
		case isWrite(o.Kind) && o.Outcome == history.Unknown:
			c.Unknown++
			if j.done[i] {
				c.Happened++
			}
		case !isWrite(o.Kind) && o.Outcome == history.OK:
			c.countRead(o.Mode, 1)
		}
	}
	for i := range j.h.Faults {
		c.countFault(j.h.Faults[i].Kind, 1)
	}
	for i := range j.h.Watches {
		for e := range j.h.Watches[i].Events {
			switch j.h.Watches[i].Events[e].Type {
			case history.Bookmark:
				c.Bookmarks++
			case history.Error:
			default:
				c.Events++
			}
		}
	}
}
