package modes

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"text/tabwriter"

	"github.com/quorate/quorate/bench/measure"
	"github.com/quorate/quorate/bench/probe"
	"github.com/quorate/quorate/bench/report"
)

// WriteTable writes the report for a terminal.
func (r *Report) WriteTable(w io.Writer) error {
	fmt.Fprintf(w, "%s\n%s\n\n%s\n", r.Title(), r.Command, r.loadLine())
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
	if err := r.writeStaleness(w); err != nil {
		return err
	}
	if err := r.writeMonotonic(w); err != nil {
		return err
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

// staleCell is a cell with its staleness, at one of several loads.
type staleCell struct {
	load float64 // 0: the only one
	LoadCell
}

// staleness are the cells that may be stale, those of Any, at each load.
func (r *Report) staleness() (out []staleCell) {
	add := func(load float64, cells []LoadCell) {
		for _, c := range cells {
			if c.Mode == probe.Any {
				out = append(out, staleCell{load, c})
			}
		}
	}
	for _, l := range r.ByLoad {
		add(l.Load, l.Cells)
	}
	if len(r.ByLoad) == 0 {
		for _, c := range r.Cells {
			add(0, []LoadCell{{Mode: c.Mode, Verb: c.Verb, Node: c.Node, Role: c.Role, Latency: c.Latency, Staleness: c.Staleness}})
		}
	}
	return out
}

// stalenessHead is what cells of a line of staleness are.
var stalenessHead = []string{"node", "verb", "load", "reads", "stale", "ms p50", "p90", "p99", "p99.9", "max", "versions p50", "p90", "p99", "p99.9", "max"}

func (c *staleCell) line() []string {
	s, load := c.Staleness, ""
	if c.load > 0 {
		load = fmt.Sprintf("%g %%", c.load*100)
	}
	line := []string{fmt.Sprintf("%s %s", c.Role, c.Node), string(c.Verb), load, fmt.Sprint(c.Latency.Count), share(s)}
	for _, ms := range []float64{s.Age.P50Ms, s.Age.P90Ms, s.Age.P99Ms, s.Age.P999Ms, s.Age.MaxMs} {
		line = append(line, measure.Ms(ms))
	}
	for _, n := range []int64{s.Versions.P50, s.Versions.P90, s.Versions.P99, s.Versions.P999, s.Versions.Max} {
		line = append(line, fmt.Sprint(n))
	}
	return line
}

func (r *Report) writeStaleness(w io.Writer) error {
	var lines [][]string
	for _, c := range r.staleness() {
		lines = append(lines, c.line())
	}
	if len(lines) == 0 {
		return nil
	}
	fmt.Fprint(w, "\nhow stale the answers to Any are: since when the first write that they lack had been acknowledged, and how many they lack (of all reads; current answers are zero)\n\n")
	return report.WriteColumns(w, stalenessHead, lines)
}

// monotonicHead is what cells of a line of monotonic reads are.
var monotonicHead = []string{"mode", "from", "to", "load", "pairs", "went back", "share", "versions p99", "max"}

// monotonicLines are a line for each mode and load, and for each way of it.
func (r *Report) monotonicLines() (out [][]string) {
	add := func(load float64, all []Monotonic) {
		at := ""
		if load > 0 {
			at = fmt.Sprintf("%g %%", load*100)
		}
		part := func(older, pairs int64) string {
			if older == 0 {
				return "0" // none must not look like few
			}
			return fmt.Sprintf("%.2g %%", 100*float64(older)/float64(pairs))
		}
		for _, m := range all {
			out = append(out, []string{m.Mode.Title(), "any node", "another", at, fmt.Sprint(m.Pairs), fmt.Sprint(m.Older), part(m.Older, m.Pairs), fmt.Sprint(m.Versions.P99), fmt.Sprint(m.Versions.Max)})
			for _, x := range m.Ways {
				if m.Older > 0 {
					out = append(out, []string{"", string(x.From), string(x.To), "", fmt.Sprint(x.Pairs), fmt.Sprint(x.Older), part(x.Older, x.Pairs), "", ""})
				}
			}
		}
	}
	for _, l := range r.ByLoad {
		add(l.Load, l.Monotonic)
	}
	if len(r.ByLoad) == 0 {
		add(0, r.Monotonic)
	}
	return out
}

func (r *Report) writeMonotonic(w io.Writer) error {
	lines := r.monotonicLines()
	if len(lines) == 0 {
		return nil
	}
	fmt.Fprint(w, "\none object read at one node and then at another: how often the second answer was older than the first\n\n")
	return report.WriteColumns(w, monotonicHead, lines)
}

// WriteCSV writes a line for each cell at each load.
func (r *Report) WriteCSV(w io.Writer) error {
	out := bufio.NewWriter(w)
	fmt.Fprintln(out, "load,reads_per_second,role,node,verb,mode,reads,p50_ms,p90_ms,p99_ms,p999_ms,max_ms,stale_reads,stale_p50_ms,stale_p90_ms,stale_p99_ms,stale_p999_ms,stale_max_ms,versions_p50,versions_p90,versions_p99,versions_p999,versions_max")
	line := func(load, rate float64, c LoadCell) {
		l, a, v := c.Latency, c.Staleness.Age, c.Staleness.Versions
		fmt.Fprintf(out, "%g,%.1f,%s,%s,%s,%s,%d,%.3f,%.3f,%.3f,%.3f,%.3f,%d,%.3f,%.3f,%.3f,%.3f,%.3f,%d,%d,%d,%d,%d\n", load, rate, c.Role, c.Node, c.Verb, c.Mode,
			l.Count, l.P50Ms, l.P90Ms, l.P99Ms, l.P999Ms, l.MaxMs, c.Staleness.Stale, a.P50Ms, a.P90Ms, a.P99Ms, a.P999Ms, a.MaxMs, v.P50, v.P90, v.P99, v.P999, v.Max)
	}
	for _, l := range r.ByLoad {
		for _, c := range l.Cells {
			line(l.Load, l.RatePerCell, c)
		}
	}
	if len(r.ByLoad) == 0 {
		for _, c := range r.Cells {
			line(r.Options.Load, r.Options.RatePerCell, LoadCell{Mode: c.Mode, Verb: c.Verb, Node: c.Node, Role: c.Role, Latency: c.Latency, Staleness: c.Staleness})
		}
	}
	return out.Flush()
}

// WriteHistograms writes percentile files of HdrHistogram, in milliseconds: the latency of
// each cell, DIR/modes-VERB-MODE-NODE.hgrm, and the staleness of Any, DIR/modes-VERB-any-NODE-staleness.hgrm;
// of the last load if there are several. It returns the files.
func (r *Report) WriteHistograms(dir string) (files []string, err error) {
	for _, c := range r.Cells {
		name := filepath.Join(dir, fmt.Sprintf("modes-%s-%s-%s", c.Verb, c.Mode, c.Node))
		files = append(files, name+".hgrm")
		err = errors.Join(err, c.latency.WriteFile(name+".hgrm"))
		if c.Mode == probe.Any {
			files = append(files, name+"-staleness.hgrm")
			err = errors.Join(err, c.age.WriteFile(name+"-staleness.hgrm"))
		}
	}
	return files, err
}

// loadLine says what the cluster had to do meanwhile, and what it spent.
func (r *Report) loadLine() string {
	o := r.Options
	s := fmt.Sprintf("%d cells and %d clients of two nodes, %.1f reads/s each, for %g s; %g writes/s (p50 %s, p99 %s ms); %d objects of %d bytes", len(r.Cells), len(r.Monotonic), o.RatePerCell, o.DurationSeconds,
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
