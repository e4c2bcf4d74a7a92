package modes

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/quorate/quorate/bench/measure"
)

// WriteTable writes the report for a terminal.
func (r *Report) WriteTable(w io.Writer) error {
	fmt.Fprintf(w, "%s\n%s\n\n%s\n", r.title(), r.Command, r.loadLine())
	for _, verb := range []Verb{Get, List} {
		fmt.Fprintf(w, "\n%s: latency in ms from when the read was due; what its answer lacked of what had been acknowledged when it was sent\n\n", verb)
		t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(t, "node\tmode\treads\tp50\tp99\tp99.9\tmax\t+p50 over Any\t+p99 over Any\tstale reads\tversions p99\tmax\tms stale p99\tmax\theader said\t")
		node := ""
		for _, c := range r.Cells {
			if c.Verb != verb {
				continue
			}
			if node != "" && node != c.Node {
				fmt.Fprintln(t, "\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t")
			}
			node = c.Node
			c.row(t)
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	fmt.Fprintf(w, "\nwhat Most Recent costs beside Any (means, ms)\n\n")
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "node\tMost Recent − Any, get\twait for the index\twait for the log\treads\tquestions for an index\tms each\tquorum rounds\tpeer round trip\t")
	for _, c := range r.Costs {
		fmt.Fprintf(t, "%s %s\t%s\t%s\t%s\t%d\t%d\t%s\t%d\t%s\t\n", c.Role, c.Node, measure.Ms(c.OverAnyMs), measure.Ms(c.WaitIndexMs), measure.Ms(c.WaitLogMs), c.Reads, c.IndexCalls, measure.Ms(c.IndexMs), c.QuorumAsks, measure.Ms(c.RoundTripMs))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	for _, v := range r.Verdicts {
		fmt.Fprintf(w, "%-7s %s: %s\n", v.Word(), v.Name, v.Measured)
	}
	for _, v := range r.Violations {
		fmt.Fprintf(w, "        %s\n", v)
	}
	return nil
}

// loadLine says what the cluster had to do meanwhile, and what it spent.
func (r *Report) loadLine() string {
	o := r.Options
	s := fmt.Sprintf("%d cells, %.1f reads/s each, for %g s; %g writes/s (p50 %s, p99 %s ms); %d objects of %d bytes", len(r.Cells), o.RatePerCell, o.DurationSeconds,
		o.WritesPerSecond, measure.Ms(r.Writes.Latency.P50Ms), measure.Ms(r.Writes.Latency.P99Ms), o.Objects, o.Size)
	if r.Saturation != nil {
		s += fmt.Sprintf("; %.0f %% of the %.0f reads/s that %d readers without pauses get", o.Load*100, r.Saturation.ReadsPerSecond, r.Saturation.Workers)
	}
	s += "\ncores used:"
	for _, n := range r.Nodes {
		s += fmt.Sprintf(" %s (%s) %.2f,", n.Name, n.Role, n.Cores)
	}
	return s + fmt.Sprintf(" this program %.2f, of %d; load average before %.1f", r.Generator.Cores, r.CPUs, r.LoadAvg)
}

func (c *CellReport) row(w io.Writer) {
	l, s := c.Latency, c.Staleness
	over50, over99, said := "", "", ""
	if c.OverAny != nil {
		over50, over99 = signed(c.OverAny.P50Ms), signed(c.OverAny.P99Ms)
	}
	if s.Said != nil {
		said = fmt.Sprintf("≤ %.0f", s.Said.MaxMs)
	}
	fmt.Fprintf(w, "%s %s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\t%s\t\n", c.Role, c.Node, c.Mode.Title(), l.Count, measure.Ms(l.P50Ms), measure.Ms(l.P99Ms), measure.Ms(l.P999Ms), measure.Ms(l.MaxMs),
		over50, over99, share(s), s.VersionsP99, s.VersionsMax, measure.Ms(s.Age.P99Ms), measure.Ms(s.Age.MaxMs), said)
}

func signed(f float64) string {
	if f >= 0 {
		return "+" + measure.Ms(f)
	}
	return measure.Ms(f)
}

// share prints how many reads were stale: none must not look like few.
func share(s Staleness) string {
	if s.Stale == 0 {
		return "0"
	}
	return fmt.Sprintf("%d (%.2f %%)", s.Stale, s.Share*100)
}
