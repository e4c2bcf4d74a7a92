package check

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/quorate/quorate/test/judges/history"
)

// rules judges writes that were decided by rules while these changed: by real time, as
// clients see it, and by the order of the log, which is more than that.
func (j *judge) rules() {
	changes := map[string][]*history.Decision{} // acknowledged, by revision
	for i := range j.h.Decisions {
		if d := &j.h.Decisions[i]; d.Change && d.Outcome == history.OK {
			changes[d.Rule] = append(changes[d.Rule], d)
			j.v.Counts.Changed++
		}
	}
	for _, of := range changes {
		slices.SortFunc(of, func(a, b *history.Decision) int { return cmp.Compare(a.Revision, b.Revision) })
	}
	for i := range j.h.Decisions {
		d := &j.h.Decisions[i]
		if d.Change || d.Outcome != history.OK {
			continue
		}
		j.v.Counts.Decided++
		// The changes that the write was not decided by.
		of := changes[d.Rule]
		first, _ := slices.BinarySearchFunc(of, d.By+1, func(c *history.Decision, rev uint64) int { return cmp.Compare(c.Revision, rev) })
		for _, c := range of[first:] {
			if c.Return < d.Call {
				j.ruleViolation(RuleStale, d, c, "was acknowledged before it began")
				break
			}
		}
		if first < len(of) && of[first].Revision < d.Revision {
			j.ruleViolation(RuleOrder, d, of[first], "is before it in the log")
		}
	}
}

func (j *judge) ruleViolation(check string, d, c *history.Decision, how string) {
	j.v.add(Violation{Check: check, At: d.Call, Node: d.Node, Watch: -1, Text: fmt.Sprintf(
		"client %d wrote %s through %s, called at %v: decided by %s%s, but %s, written through %s, %s",
		d.Client, rev(d.Revision), d.Node, d.Call, d.Rule, rev(d.By), rev(c.Revision), c.Node, how)})
}
