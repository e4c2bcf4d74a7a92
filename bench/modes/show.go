package modes

import (
	"bufio"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/quorate/quorate/bench/client"
	"github.com/quorate/quorate/bench/measure"
	"github.com/quorate/quorate/bench/plot"
	"github.com/quorate/quorate/bench/probe"
	"github.com/quorate/quorate/bench/report"
)

// Doc is the report for people.
func (r *Report) Doc() *report.Doc {
	any, recent := r.of(probe.Any), r.of(probe.MostRecent)
	var modes, nodes []report.Colour
	var cards []report.Card
	for _, m := range AllModes {
		if cells := r.of(m); len(cells) > 0 {
			modes, cards = append(modes, report.Colour{Class: modeClass(m), Name: m.Title()}), append(cards, card(m, cells))
		}
	}
	var ranges, curves, tails, lines []report.Figure
	for _, verb := range []Verb{Get, List} {
		for _, n := range r.measured() {
			name := fmt.Sprintf("%s %s", n.Role, n.Name)
			mine := r.times(func(c *CellReport) bool { return c.Node == n.Name && c.Verb == verb })
			curves = append(curves, report.Figure{Title: fmt.Sprintf("%s, %s", name, verb), Figure: report.Percentiles(fmt.Sprintf("%s on %s", verb, n.Name), mine, r.times(nil))})
			if verb == Get {
				ranges = append(ranges, report.Figure{Title: name, Figure: r.ranges(n)})
				nodes = append(nodes, report.Colour{Class: "c-" + string(n.Role), Name: name})
			}
		}
		if len(any) > 0 {
			tails = append(tails, report.Figure{Title: string(verb), Figure: r.tails(verb).Draw()})
		}
	}
	if len(any) > 0 {
		lines = append(lines, report.Figure{Title: "Staleness of Any", Figure: r.timeline(any, func(s Slot) float64 { return s.MaxAgeMs }).Draw()})
	}
	if len(recent) > 0 {
		lines = append(lines, report.Figure{Title: "Latency of Most Recent", Figure: r.timeline(recent, func(s Slot) float64 { return s.MaxLatencyMs }).Draw()})
	}
	d := &report.Doc{
		Name: "read modes", Heading: "What each read mode costs, and how fresh its answers are", Head: &r.Head, Lines: strings.Split(r.loadLine(), "\n"), Report: r,
		Blocks: []report.Block{
			{Cards: cards}, {Verdicts: r.Verdicts, Details: r.Violations},
			{
				Title: "Latency", Page: true, Legend: modes, Figures: ranges, Columns: "three",
				Note: "From when a read was due, not from when it was sent. Dot: median. Thick: up to the 99th percentile. Thin: up to the slowest. Dashed: the median of Any, the floor.",
			},
			{Title: "Latency by percentile", Page: true, Note: "Each nine has the same width: the right half of a figure is the slowest tenth of its reads.", Legend: modes, Figures: curves, Columns: "three"},
		},
		Method: fmt.Sprintf("Every mode, verb and node is a client of its own with a connection of its own; all run at once. Reads are due at random times drawn beforehand, whatever the servers do (an open loop), so that a server that stalls is charged for every read that it made wait. %d probe objects are patched all the time through all nodes; each acknowledged write is known with its time, and each answer is compared with what had been acknowledged when it was asked for. N is the newest acknowledged resourceVersion at that moment. If client and servers share the machine, the generator's own delay is part of every latency, and is shown above.", r.Options.Probes),
	}
	if len(any) > 0 && len(recent) > 0 && slices.ContainsFunc(any, func(c CellReport) bool { return c.Verb == Get }) {
		d.Blocks = append(d.Blocks, report.Block{
			Title: "What Most Recent costs beside Any", Note: "A get, in means, ms. The latencies are the client's; what the node waited for is from its own histograms. The line across a bar is where it would end if the index cost exactly one bare round trip between leader and voter.",
			Legend: []report.Colour{{Class: "c-any", Name: "Any: the floor"}, {Class: "c-index", Name: "wait for the read index"}, {Class: "c-log", Name: "wait for the log"}, {Class: "c-rest", Name: "the rest"}, {Class: "c-mark", Name: "one peer round trip"}},
			Table:  r.costTable(), Figures: []report.Figure{{Figure: r.costs()}},
		})
	}
	if len(any) > 0 {
		d.Blocks = append(d.Blocks, report.Block{
			Title: "Staleness of Any", Page: true, Note: "How many answers lacked a write that had been acknowledged, by any node, longer before they were asked for than a given time.", Legend: nodes, Figures: tails, Columns: "two",
		}, report.Block{Heading: "How stale the answers to Any are", Note: "By percentile, of all reads: milliseconds since the first acknowledged write that an answer lacks, and how many it lacks. Current answers are zero.", Table: r.stalenessTable()})
	}
	if len(r.Monotonic) > 0 {
		d.Blocks = append(d.Blocks, report.Block{
			Title: "Going back from node to node", Table: r.monotonicTable(),
			Note: "A client reads an object at one node and, when it has the answer, at another. How often the second answer was older than the first. With Not older than, the client asks for what it has seen. Any promises nothing here; the others promise zero.",
		})
	}
	d.Blocks = append(d.Blocks,
		report.Block{Title: "Over the run", Page: true, Note: "The largest value in each eightieth of the measurement, get and list together; where there was no read, there is no line. A stall shows in all nodes at once.", Legend: nodes, Figures: lines, Columns: "two"},
		report.Block{Title: "All figures", Note: "Milliseconds from when the read was due. Staleness: acknowledged writes that answers lacked when they were asked for, and the time since the first of them was acknowledged.", Table: r.table()})
	return d
}

func modeClass(m probe.Mode) string { return "c-" + string(m) }

// measured are the nodes whose reads were measured, in the order of the cells.
func (r *Report) measured() (out []NodeReport) {
	for _, c := range r.Cells {
		known := func(n NodeReport) bool { return n.Name == c.Node }
		if i := slices.IndexFunc(r.Nodes, known); i >= 0 && !slices.ContainsFunc(out, known) {
			out = append(out, r.Nodes[i])
		}
	}
	return out
}

// times are the latencies of some cells, or of all.
func (r *Report) times(pick func(*CellReport) bool) (out []report.Timed) {
	for i := range r.Cells {
		if c := &r.Cells[i]; pick == nil || pick(c) {
			out = append(out, report.Timed{Name: c.Mode.Title(), Class: modeClass(c.Mode), Latency: c.Latency})
		}
	}
	return out
}

// card sums a mode up in a sentence, with the latencies of a get where there is one, of a follower
// where one was measured.
func card(m probe.Mode, cells []CellReport) report.Card {
	shown := cells[0]
	for _, c := range cells[1:] {
		if better := c.Role == client.Follower && shown.Role != client.Follower; c.Verb == Get && shown.Verb != Get || c.Verb == shown.Verb && better {
			shown = c
		}
	}
	out := report.Card{Class: modeClass(m), Title: m.Title(), P50: measure.Ms(shown.Latency.P50Ms), P99: measure.Ms(shown.Latency.P99Ms)}
	if shown.Verb == List {
		out.Title += ", lists" // the other cards are of gets
	}
	out.Text = fmt.Sprintf("%s on the %s. ", shown.Verb, shown.Role)
	if o := shown.OverAny; o != nil {
		word := "over"
		if o.P50Ms < 0 {
			word = "under"
		}
		out.Text += fmt.Sprintf("%s ms %s the %s of Any there (p50). ", measure.Ms(math.Abs(o.P50Ms)), word, shown.Verb)
	}
	var reads, stale, versions int64
	worst := 0.0
	for _, c := range cells {
		reads, stale = reads+c.Latency.Count, stale+c.Staleness.Stale
		versions, worst = max(versions, c.Staleness.VersionsMax), max(worst, c.Staleness.Age.MaxMs)
	}
	if stale == 0 {
		out.Text += fmt.Sprintf("Never stale in %s on all nodes.", report.Count(reads, "read"))
	} else {
		out.Text += fmt.Sprintf("%.2g %% of %s on all nodes were stale, by at most %s and %s ms.", 100*float64(stale)/float64(reads), report.Count(reads, "read"), report.Count(versions, "version"), measure.Ms(worst))
	}
	return out
}

// ranges shows each mode's median, p99 and maximum on one node. All nodes have the same axis.
func (r *Report) ranges(node NodeReport) template.HTML {
	var rows []plot.Range
	var bounds []float64
	for _, c := range r.Cells {
		if c.Latency.Count > 0 {
			bounds = append(bounds, c.Latency.P50Ms, c.Latency.MaxMs)
		}
	}
	for _, verb := range []Verb{Get, List} {
		mine := r.times(func(c *CellReport) bool { return c.Node == node.Name && c.Verb == verb })
		if len(mine) == 0 {
			continue
		}
		group := plot.Range{Name: string(verb), Group: true}
		if floor := r.cell(probe.Any, verb, node.Name); floor != nil {
			group.Floor = floor.Latency.P50Ms
		}
		rows = append(rows, group)
		for _, t := range mine {
			rows = append(rows, t.Range())
		}
	}
	return plot.Ranges("latency of each mode on "+node.Name, "ms", 360, 108, rows, bounds...)
}

// tails shows how many Any answers lacked something acknowledged longer ago than each age. Of a node that
// was never stale there is nothing to draw: it is said.
func (r *Report) tails(verb Verb) plot.Chart {
	c := plot.Chart{
		Title: "staleness of Any " + string(verb), Width: 550, Height: 232,
		X: plot.Scale{Title: "staler than … ms", Max: 1}, Y: plot.Scale{Title: "% of reads", Log: true, Max: 100},
	}
	for _, x := range r.of(probe.Any) {
		who, count := fmt.Sprintf("%s %s", x.Role, x.Node), float64(x.Latency.Count)
		switch {
		case x.Verb != verb || count == 0:
			continue
		case x.Staleness.Stale == 0:
			c.Notes = append(c.Notes, fmt.Sprintf("%s: never stale in %s", who, report.Count(x.Latency.Count, "read")))
			continue
		}
		line := plot.Line{Class: "c-" + string(x.Role)}
		add := func(ms, share float64, format string, args ...any) {
			line.Values = append(line.Values, plot.Value{X: ms, Y: share, Tip: who + ": " + fmt.Sprintf(format, args...)})
		}
		share := x.Staleness.Share * 100
		add(0, share, "%.2f %% of reads were stale", share)
		for _, p := range x.Staleness.Age.Curve {
			if rest := 100 - p.Percentile; p.Ms > 0 && rest > 0 && rest < share {
				add(p.Ms, rest, "%.3g %% of reads were more than %s ms stale", rest, measure.Ms(p.Ms))
			}
		}
		add(x.Staleness.Age.MaxMs, 100/count, "the stalest, %s ms", measure.Ms(x.Staleness.Age.MaxMs))
		c.Lines = append(c.Lines, line)
	}
	return c
}

// timeline shows the largest value of each part of the run, for get and list together, one line per
// node. A part without a read is a gap.
func (r *Report) timeline(cells []CellReport, value func(Slot) float64) plot.Chart {
	c := plot.Chart{Title: "over the run", Width: 550, Height: 212, X: plot.Scale{Title: "seconds", End: max(r.Options.DurationSeconds, 1)}, Y: plot.Scale{Title: "ms, largest"}}
	for _, n := range r.measured() {
		line := plot.Line{Class: "fine c-" + string(n.Role)}
		for _, x := range cells {
			if x.Node != n.Name {
				continue
			}
			for i, s := range x.Slots {
				if len(line.Values) <= i {
					line.Values = append(line.Values, plot.Value{X: s.AtSeconds, Y: math.NaN()})
				}
				if v := &line.Values[i]; s.Reads > 0 && !(v.Y > value(s)) {
					v.Y = value(s)
				}
			}
		}
		c.Lines = append(c.Lines, line)
	}
	return c
}

// costs shows what a Most Recent get is made of on each node.
func (r *Report) costs() template.HTML {
	const left, right, row = 116.0, 780.0, 44.0
	d := plot.New(880, float64(len(r.Costs))*row+50, "what a Most Recent get is made of")
	high := 0.0
	for _, c := range r.Costs {
		if floor := r.cell(probe.Any, Get, c.Node); floor != nil {
			high = max(high, floor.Latency.MeanMs+max(c.OverAnyMs, c.WaitIndexMs+c.WaitLogMs))
		}
	}
	x := plot.LinearAxis(high, left, right)
	d.XAxis(x, 4, float64(len(r.Costs))*row+8, "ms (means)")
	for i, c := range r.Costs {
		floor := r.cell(probe.Any, Get, c.Node)
		if floor == nil {
			continue
		}
		y, at := 10+float64(i)*row, 0.0
		d.Text(4, y+19, "row", fmt.Sprintf("%s %s", c.Role, c.Node))
		for _, part := range []struct {
			class, name string
			ms          float64
		}{
			{"c-any", "Any: the floor", floor.Latency.MeanMs}, {"c-index", "wait for the index", c.WaitIndexMs},
			{"c-log", "wait for the log", c.WaitLogMs}, {"c-rest", "the rest", c.OverAnyMs - c.WaitIndexMs - c.WaitLogMs},
		} {
			if part.ms <= 0 {
				continue
			}
			d.Add(`<rect x="%.1f" y="%.1f" width="%.1f" height="26" class="bar %s"><title>%s: %s ms</title></rect>`, x.At(at), y, max(x.At(at+part.ms)-x.At(at)-1, 0.5), part.class, part.name, measure.Ms(part.ms))
			if w := x.At(at+part.ms) - x.At(at); w > 40 && part.class != "c-rest" {
				d.Text(x.At(at)+6, y+17, "in-bar", measure.Ms(part.ms))
			}
			at += part.ms
		}
		d.Text(x.At(at)+8, y+17, "tick", report.Signed(c.OverAnyMs, measure.Ms)+" over Any")
		// The round trip, from the floor on: what the index should cost.
		if c.RoundTripMs > 0 {
			d.Line(x.At(floor.Latency.MeanMs+c.RoundTripMs), y-4, x.At(floor.Latency.MeanMs+c.RoundTripMs), y+30, "mark")
		}
	}
	return d.Done()
}

func (r *Report) costTable() report.Table {
	t := report.Table{Head: []string{"node", "Most Recent − Any, get", "wait for the index", "wait for the log", "reads", "questions for an index", "ms each", "quorum rounds", "peer round trip"}}
	for _, c := range r.Costs {
		t.Rows = append(t.Rows, report.Row{Cells: []string{
			fmt.Sprintf("%s %s", c.Role, c.Node), measure.Ms(c.OverAnyMs), measure.Ms(c.WaitIndexMs), measure.Ms(c.WaitLogMs), fmt.Sprint(c.Reads), fmt.Sprint(c.IndexCalls), measure.Ms(c.IndexMs), fmt.Sprint(c.QuorumAsks), measure.Ms(c.RoundTripMs),
		}})
	}
	return t
}

// loads are the figures of each load; of the only one its Load is zero.
func (r *Report) loads() []LoadReport {
	if len(r.ByLoad) > 0 {
		return r.ByLoad
	}
	return []LoadReport{r.only()}
}

func loadName(load float64) string {
	if load == 0 {
		return ""
	}
	return fmt.Sprintf("%g %%", load*100)
}

func (r *Report) stalenessTable() report.Table {
	t := report.Table{Left: 3, Head: []string{"node", "verb", "load", "reads", "stale", "ms p50", "p90", "p99", "p99.9", "max", "versions p50", "p90", "p99", "p99.9", "max"}}
	for _, l := range r.loads() {
		for _, c := range l.Cells {
			if c.Mode != probe.Any {
				continue
			}
			load := ""
			if len(r.ByLoad) > 0 {
				load = loadName(l.Load)
			}
			row := report.Row{Cells: append([]string{fmt.Sprintf("%s %s", c.Role, c.Node), string(c.Verb), load, fmt.Sprint(c.Latency.Count), share(c.Staleness)}, report.Times(c.Staleness.Age)...)}
			v := c.Staleness.Versions
			for _, n := range []int64{v.P50, v.P90, v.P99, v.P999, v.Max} {
				row.Cells = append(row.Cells, fmt.Sprint(n))
			}
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}

// monotonicTable has a row for each mode and load, and for each way of it.
func (r *Report) monotonicTable() report.Table {
	t := report.Table{Left: 3, Head: []string{"mode", "from", "to", "load", "pairs", "went back", "share", "versions p99", "max"}}
	part := func(older, pairs int64) string {
		if older == 0 {
			return "0" // none must not look like few
		}
		return fmt.Sprintf("%.2g %%", 100*float64(older)/float64(pairs))
	}
	for _, l := range r.loads() {
		at := ""
		if len(r.ByLoad) > 0 {
			at = loadName(l.Load)
		}
		for _, m := range l.Monotonic {
			t.Rows = append(t.Rows, report.Row{Cells: []string{m.Mode.Title(), "any node", "another", at, fmt.Sprint(m.Pairs), fmt.Sprint(m.Older), part(m.Older, m.Pairs), fmt.Sprint(m.Versions.P99), fmt.Sprint(m.Versions.Max)}})
			for _, x := range m.Ways {
				if m.Older > 0 {
					t.Rows = append(t.Rows, report.Row{Sub: true, Cells: []string{"", string(x.From), string(x.To), "", fmt.Sprint(x.Pairs), fmt.Sprint(x.Older), part(x.Older, x.Pairs), "", ""}})
				}
			}
		}
	}
	return t
}

// table has all cells.
func (r *Report) table() report.Table {
	t := report.Table{Left: 3, Head: []string{"node", "verb", "mode", "reads", "p50", "p99", "p99.9", "max", "p50 over Any", "p99 over Any", "stale reads", "versions p99", "max", "ms stale p99", "max", "header said"}}
	for i, c := range r.Cells {
		l, s := c.Latency, c.Staleness
		over50, over99, said := "", "", ""
		if c.OverAny != nil {
			over50, over99 = report.Signed(c.OverAny.P50Ms, measure.Ms), report.Signed(c.OverAny.P99Ms, measure.Ms)
		}
		if s.Said != nil {
			said = fmt.Sprintf("≤ %.0f", s.Said.MaxMs)
		}
		t.Rows = append(t.Rows, report.Row{
			First: i == 0 || r.Cells[i-1].Node != c.Node || r.Cells[i-1].Verb != c.Verb, Class: modeClass(c.Mode), Marked: 2,
			Cells: []string{
				fmt.Sprintf("%s %s", c.Role, c.Node), string(c.Verb), c.Mode.Title(), fmt.Sprint(l.Count), measure.Ms(l.P50Ms), measure.Ms(l.P99Ms), measure.Ms(l.P999Ms), measure.Ms(l.MaxMs), over50, over99,
				share(s), fmt.Sprint(s.VersionsP99), fmt.Sprint(s.VersionsMax), measure.Ms(s.Age.P99Ms), measure.Ms(s.Age.MaxMs), said,
			},
		})
	}
	return t
}

// share prints how many reads were stale: none must not look like few.
func share(s Staleness) string {
	if s.Stale == 0 {
		return "0"
	}
	return fmt.Sprintf("%d (%.2f %%)", s.Stale, s.Share*100)
}

// WriteCSV writes a line for each cell at each load.
func (r *Report) WriteCSV(w io.Writer) error {
	out := bufio.NewWriter(w)
	fmt.Fprintln(out, "load,reads_per_second,role,node,verb,mode,reads,p50_ms,p90_ms,p99_ms,p999_ms,max_ms,stale_reads,stale_p50_ms,stale_p90_ms,stale_p99_ms,stale_p999_ms,stale_max_ms,versions_p50,versions_p90,versions_p99,versions_p999,versions_max")
	for _, at := range r.loads() {
		for _, c := range at.Cells {
			l, a, v := c.Latency, c.Staleness.Age, c.Staleness.Versions
			fmt.Fprintf(out, "%g,%.1f,%s,%s,%s,%s,%d,%.3f,%.3f,%.3f,%.3f,%.3f,%d,%.3f,%.3f,%.3f,%.3f,%.3f,%d,%d,%d,%d,%d\n", at.Load, at.RatePerCell, c.Role, c.Node, c.Verb, c.Mode,
				l.Count, l.P50Ms, l.P90Ms, l.P99Ms, l.P999Ms, l.MaxMs, c.Staleness.Stale, a.P50Ms, a.P90Ms, a.P99Ms, a.P999Ms, a.MaxMs, v.P50, v.P90, v.P99, v.P999, v.Max)
		}
	}
	return out.Flush()
}

// Histograms are the latency of each cell, VERB-MODE-NODE, and the staleness of Any, VERB-any-NODE-staleness; of
// the last load if there are several.
func (r *Report) Histograms() (out []measure.Named) {
	for _, c := range r.Cells {
		name := fmt.Sprintf("%s-%s-%s", c.Verb, c.Mode, c.Node)
		out = append(out, measure.Named{Name: name, Histogram: c.latency})
		if c.Mode == probe.Any {
			out = append(out, measure.Named{Name: name + "-staleness", Histogram: c.age})
		}
	}
	return out
}

// loadLine says what the cluster had to do meanwhile, and what it spent.
func (r *Report) loadLine() string {
	o := r.Options
	s := fmt.Sprintf("%s and %s of two nodes, %.1f reads/s each, for %g s; %g writes/s (p50 %s, p99 %s ms); %s of %d bytes", report.Count(len(r.Cells), "cell"), report.Count(len(r.Monotonic), "client"), o.RatePerCell, o.DurationSeconds,
		o.WritesPerSecond, measure.Ms(r.Writes.Latency.P50Ms), measure.Ms(r.Writes.Latency.P99Ms), report.Count(o.Objects, "object"), o.Size)
	if r.Saturation != nil {
		s += fmt.Sprintf("; %.0f %% of the %.0f reads/s that %d readers without pauses get", o.Load*100, r.Saturation.ReadsPerSecond, r.Saturation.Workers)
	}
	s += "\ncores used:"
	for _, n := range r.Nodes {
		if n.Cores > 0 {
			s += fmt.Sprintf(" %s (%s) %.2f,", n.Name, n.Role, n.Cores)
		}
	}
	return s + fmt.Sprintf(" this program %.2f, of %d; load average before %.1f", r.Generator.Cores, r.CPUs, r.LoadAvg)
}
