package judges

import (
	"cmp"
	"fmt"
	"strings"
)

// Counts are what a judge was told, and what it could not be.
type Counts struct {
	Runs, Operations, Watches, Events int
	// Silent operations say nothing of the state. Paged ones are pages of lists.
	Silent, Paged int
	// Selected watches have a label selector; Cut ones ended within their initial events,
	// Unmarked ones have initial events whose end nothing marks.
	Selected, Cut, Unmarked int
}

// Add adds the counts of another run.
func (c *Counts) Add(o Counts) {
	c.Runs += o.Runs
	c.Operations += o.Operations
	c.Watches += o.Watches
	c.Events += o.Events
	c.Silent += o.Silent
	c.Paged += o.Paged
	c.Selected += o.Selected
	c.Cut += o.Cut
	c.Unmarked += o.Unmarked
}

// String is the counts in a line.
func (c Counts) String() string {
	var left []string
	for _, l := range []struct {
		n    int
		what string
	}{
		{c.Silent, "operations that say nothing"},
		{c.Paged, "pages of lists"},
		{c.Selected, "watches with a selector"},
		{c.Cut, "watches cut within their initial events"},
		{c.Unmarked, "watches whose initial events nothing ends"},
	} {
		if l.n > 0 {
			left = append(left, fmt.Sprintf("%d %s", l.n, l.what))
		}
	}
	return fmt.Sprintf("%d runs, %d operations, %d watches with %d events; left out: %s",
		c.Runs, c.Operations, c.Watches, c.Events, cmp.Or(strings.Join(left, ", "), "nothing"))
}
