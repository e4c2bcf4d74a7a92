package load

import (
	"bufio"
	"fmt"
	"html/template"
	"io"
	"strings"

	"github.com/quorate/quorate/bench/measure"
	"github.com/quorate/quorate/bench/plot"
	"github.com/quorate/quorate/bench/report"
)

// Doc is the report for people.
func (r *Report) Doc() *report.Doc {
	d := &report.Doc{Name: "load", Heading: "What operations cost, and how long they take", Head: &r.Head, Lines: []string{r.loadLine()}, Report: r, Method: r.method()}
	all := r.times()
	var curves []report.Figure
	for _, t := range all {
		curves = append(curves, report.Figure{Title: t.Name, Figure: report.Percentiles(t.Name, []report.Timed{t}, all)})
	}
	if r.Goals {
		d.Blocks = append(d.Blocks, r.goals())
	}
	d.Blocks = append(d.Blocks, report.Block{Failures: r.failures()})
	for i, s := range r.sweeps() {
		b := s.block()
		if len(r.Runs) > 1 {
			b.Title = fmt.Sprintf("%s (%d)", b.Title, i+1)
		}
		d.Blocks = append(d.Blocks, b)
	}
	if len(r.Rows) > 0 {
		note := "Milliseconds; CPU in microseconds of all server processes per operation, and of each."
		if len(r.Nodes) == 0 {
			note = "Milliseconds. The servers' processes are not known: nothing is said about CPU. --pids names them."
		}
		d.Blocks = append(d.Blocks,
			report.Block{Title: "Latency", Page: true, Note: "Dot: median. Thick: up to the 99th percentile. Thin: up to the slowest.", Figures: []report.Figure{{Figure: r.latencies()}}},
			report.Block{Title: "Latency by percentile", Page: true, Note: "Each nine has the same width: the right half of a figure is the slowest tenth.", Figures: curves, Columns: "three"},
			report.Block{Title: "All figures", Note: note, Table: r.table(), Page: r.Goals})
	}
	memory := report.Block{Table: report.Table{Head: []string{"memory of all servers", "MiB"}}, Page: r.Goals}
	for _, m := range r.lines() {
		if m.bytes > 0 {
			memory.Table.Rows = append(memory.Table.Rows, report.Row{Cells: []string{m.title, fmt.Sprint(m.bytes >> 20)}})
		}
	}
	if len(memory.Table.Rows) > 0 {
		d.Blocks = append(d.Blocks, memory)
	}
	return d
}

// method says how it was measured.
func (r *Report) method() string {
	text := "Each worker sends its next operation when the last one is answered (a closed loop): this finds the peak, and the latencies are those at the peak. A closed loop asks less while a server stalls; give a rate to see what clients would have seen."
	switch {
	case len(r.sweeps()) > 0:
		text = "Operations are due at random times, whatever the servers do (an open loop), and their latency counts from when they were due. The rate is doubled until a bound is broken twice, then the stretch before is halved three times."
	case r.Options.Rate > 0:
		text = "Operations are due at random times, whatever the servers do (an open loop), and their latency counts from when they were due: a server that stalls is charged for every operation that it made wait."
	}
	return fmt.Sprintf("%s %d ConfigMaps with a value of %d bytes. If client and servers share a machine, the client takes its share of the processors.", text, r.Options.Objects, r.Options.Size)
}

// failures are what did not go as it should.
func (r *Report) failures() (out []string) {
	for _, x := range r.Rows {
		if x.Errors > 0 {
			out = append(out, fmt.Sprintf("%s: %s, the first: %s", x.Name, report.Count(x.Errors, "error"), x.Error))
		}
		if x.Unsent > 0 {
			out = append(out, fmt.Sprintf("%s: due and not sent: %s; too many were under way", x.Name, report.Count(x.Unsent, "operation")))
		}
	}
	if r.Stopped {
		out = append(out, "It was stopped before its end: this is what was measured until then.")
	}
	return out
}

// times are the latencies of all rows and parts.
func (r *Report) times() (all []report.Timed) {
	for _, x := range r.Rows {
		all = append(all, report.Timed{Name: x.Title, Class: "c-most-recent", Latency: x.Latency})
		for _, p := range x.Parts {
			all = append(all, report.Timed{Name: partName + p.Verb, Class: "c-not-older", Latency: p.Latency})
		}
	}
	return all
}

const partName = "of them "

func (r *Report) latencies() template.HTML {
	var rows []plot.Range
	for _, t := range r.times() {
		one := t.Range()
		if strings.HasPrefix(t.Name, partName) {
			one.Indent = 14
		}
		rows = append(rows, one)
	}
	return plot.Ranges("latency of each row", "ms", 880, 250, rows)
}

// table has all rows, and their parts.
func (r *Report) table() report.Table {
	t := report.Table{Head: []string{"row", "operations", "ops/s", "p50 ms", "p90", "p99", "p99.9", "max", "errors", "sent late p99", "CPU µs/op", strings.Join(r.Nodes, "+"), "allocs/op", "KiB/op"}}
	line := func(name, perSecond string, l measure.Latency, errors int64, costs ...string) report.Row {
		return report.Row{Cells: append(append(append([]string{name, fmt.Sprint(l.Count), perSecond}, report.Times(l)...), fmt.Sprint(errors)), costs...)}
	}
	for _, x := range r.Rows {
		name, late := x.Title, ""
		if x.Cut {
			name += " (cut short)"
		}
		if x.Late != nil {
			late = measure.Ms(x.Late.P99Ms)
		}
		t.Rows = append(t.Rows, line(name, number(x.PerSecond), x.Latency, x.Errors, late, number(x.CPU), strings.Join(numbers(x.ByNode), "+"), number(x.Allocs), number(x.AllocatedBytes/1024)))
		for _, p := range x.Parts {
			row := line(partName+p.Verb, "", p.Latency, p.Errors, "", "", "", "", "")
			row.Sub = true
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}

// goals are the rows beside the goals of this project.
func (r *Report) goals() report.Block {
	b := report.Block{Terminal: true, Table: report.Table{Head: []string{"scenario", "ops/s", "p50 ms", "p99 ms", "CPU µs/op", strings.Join(r.Nodes, "+"), "adjusted", "goal", "limit", "peer 1+1", "peer 3+3", "verdict"}}}
	if bare := r.bare(); len(bare) > 0 {
		b.Note = fmt.Sprintf("A bare Go HTTPS server needs %s µs of CPU per object here, %s µs on the peer's machine: \"adjusted\" is CPU ÷ %.2f.", strings.Join(numbers(bare), " and "), number(peerBare), r.slower())
	}
	for _, x := range r.Rows {
		peer := figures{}
		if x.Peer != nil {
			peer = *x.Peer
		}
		b.Table.Rows = append(b.Table.Rows, report.Row{Cells: []string{
			x.Title, number(x.PerSecond), fmt.Sprintf("%.1f", x.Latency.P50Ms), fmt.Sprintf("%.1f", x.Latency.P99Ms),
			number(x.CPU), strings.Join(numbers(x.ByNode), "+"), number(x.CPU / r.slower()), number(peer.Goal), number(peer.Limit), number(peer.One), number(peer.Three), x.verdict(r.slower()),
		}})
	}
	for i, m := range r.lines() {
		if m.bytes == 0 {
			continue
		}
		row := append(make([]string, 0, 12), m.title, "", "", "", fmt.Sprint(m.bytes>>20), "", "", "", "", "", "", "")
		if i == 0 {
			row[9], row[10] = fmt.Sprint(peerMemoryOne), fmt.Sprint(peerMemoryThree)
		}
		b.Table.Rows = append(b.Table.Rows, report.Row{Cells: row})
	}
	return b
}

// against is a row beside the peer's of the same name.
type against struct{ ours, peer Row }

// share is what an operation costs, in percent of what it costs the peer.
func (a against) share() float64 { return 100 * a.ours.CPU / a.peer.CPU }

// verdict goes by the share: the goal is a fifth, the limit a half.
func (a against) verdict() string {
	switch share := a.share(); {
	case a.ours.Errors > 0 || a.ours.Ops == 0:
		return wordErrors
	case share > 50:
		return wordAbove
	case share > 20:
		return wordWithin
	}
	return wordGoal
}

// beside pairs the rows that two reports have.
func (r *Report) beside(peer *Report) (pairs []against) {
	for _, row := range r.Rows {
		for _, other := range peer.Rows {
			if other.Name == row.Name {
				pairs = append(pairs, against{row, other})
			}
		}
	}
	return pairs
}

// WriteAgainst prints the rows beside those of another report of the same machine, a
// peer's. Nothing is adjusted: both were measured here.
func (r *Report) WriteAgainst(w io.Writer, peer *Report) error {
	b := report.Block{
		Note:  fmt.Sprintf("The peer (%s), just before, with the same load; CPU is not adjusted.", peer.Date.Format("15:04:05")),
		Table: report.Table{Head: []string{"scenario", "peer ops/s", "ops/s", "peer p99 ms", "p99 ms", "peer CPU µs/op", "CPU µs/op", "share", "verdict"}},
	}
	if len(peer.bare()) > 0 {
		b.Note += fmt.Sprintf(" Its factor was %.2f.", peer.slower())
	}
	add := func(cells ...string) { b.Table.Rows = append(b.Table.Rows, report.Row{Cells: cells}) }
	for _, a := range r.beside(peer) {
		add(a.ours.Title, number(a.peer.PerSecond), number(a.ours.PerSecond), fmt.Sprintf("%.1f", a.peer.Latency.P99Ms), fmt.Sprintf("%.1f", a.ours.Latency.P99Ms), number(a.peer.CPU), number(a.ours.CPU), fmt.Sprintf("%.0f %%", a.share()), a.verdict())
	}
	others := peer.lines()
	for i, m := range r.lines() {
		if other := others[i].bytes; m.bytes > 0 && other > 0 {
			add(m.title, "", "", "", "", fmt.Sprint(other>>20), fmt.Sprint(m.bytes>>20), fmt.Sprintf("%.0f %%", 100*float64(m.bytes)/float64(other)), "")
		}
	}
	for _, row := range peer.Rows {
		if row.Errors > 0 {
			b.Failures = append(b.Failures, fmt.Sprintf("the peer's %s: %s, the first: %s", row.Name, report.Count(row.Errors, "error"), row.Error))
		}
	}
	return b.WriteText(w)
}

// memoryLine is a figure of memory, and what it is.
type memoryLine struct {
	title string
	bytes int64
}

// lines are all figures, zero where one is not known; resident memory behind the last row is the first.
func (m *Memory) lines() []memoryLine {
	return []memoryLine{
		{"resident memory, MiB", m.ResidentBytes}, {"shared pages once, MiB", m.ProportionalBytes}, {"without files, MiB", m.AnonymousBytes},
		{fmt.Sprintf("resident %s later, MiB", atRest), m.RestBytes}, {"shared pages once, MiB", m.RestProportionalBytes}, {"without files, MiB", m.RestAnonymousBytes},
	}
}

func (s *Sweep) block() report.Block {
	b := report.Block{
		Title: s.Title + ": rising rates", Note: s.conclusion(), Columns: "two",
		Figures: []report.Figure{{Title: "Throughput: what was done, and what was due (grey)", Figure: s.throughput()}, {Title: "Latency from when operations were due. Dashed: the bound of the 99th percentile", Figure: s.latency()}},
		Table:   report.Table{Head: []string{"rate", "ops/s", "p50 ms", "p99", "p99.9", "max", "errors", "sent late p99", "CPU µs/op", ""}},
	}
	for _, p := range sweepLines {
		b.Legend = append(b.Legend, report.Colour{Class: p.class, Name: p.name})
	}
	for _, p := range s.Points {
		mark := p.Broken
		if p.Rate == s.Knee {
			mark = "← the knee"
		}
		b.Table.Rows = append(b.Table.Rows, report.Row{Cells: []string{
			number(p.Rate), number(p.PerSecond), measure.Ms(p.Latency.P50Ms), measure.Ms(p.Latency.P99Ms), measure.Ms(p.Latency.P999Ms), measure.Ms(p.Latency.MaxMs), fmt.Sprint(p.Errors), measure.Ms(p.LateP99Ms), number(p.CPU), mark,
		}})
	}
	return b
}

// conclusion is where the knee is, in a sentence.
func (s *Sweep) conclusion() string {
	switch {
	case s.Cut:
		return "It was stopped before the knee was found."
	case s.Knee == 0:
		return fmt.Sprintf("The first rate broke a bound already: %s. Begin lower, with --rate.", s.Why)
	case s.Why == "":
		return fmt.Sprintf("No bound was broken up to %.0f/s.", s.Knee)
	}
	return fmt.Sprintf("The knee is at %.0f/s; at %s.", s.Knee, s.Why)
}

// chart is one of the rates, with the knee.
func (s *Sweep) chart(title, unit string, lines ...plot.Line) plot.Chart {
	c := plot.Chart{Title: title + " by rate: " + s.Title, Width: 550, Height: 252, X: plot.Scale{Title: "operations due per second", Log: true}, Y: plot.Scale{Title: unit, Log: true}, Lines: lines}
	if s.Knee > 0 {
		c.Mark = plot.Tick{At: s.Knee, Label: fmt.Sprintf("knee %.0f/s", s.Knee)}
	}
	return c
}

// throughput shows what was done of what was due.
func (s *Sweep) throughput() template.HTML {
	due, done := plot.Line{Class: "fine c-any"}, plot.Line{Class: "c-most-recent"}
	for _, p := range s.Points {
		due.Values = append(due.Values, plot.Value{X: p.Rate, Y: p.Rate})
		done.Values = append(done.Values, plot.Value{X: p.Rate, Y: p.PerSecond, Tip: fmt.Sprintf("%.0f of %.0f/s, %s", p.PerSecond, p.Rate, report.Count(p.Errors, "error"))})
	}
	return s.chart("throughput", "per s", due, done).Draw()
}

// sweepLines are the percentiles that are drawn.
var sweepLines = []struct {
	name, class string
	of          func(measure.Latency) float64
}{
	{"p50", "c-not-older", func(l measure.Latency) float64 { return l.P50Ms }},
	{"p99", "c-most-recent", func(l measure.Latency) float64 { return l.P99Ms }},
	{"p99.9", "c-exact", func(l measure.Latency) float64 { return l.P999Ms }},
}

// latency shows the percentiles, and the bound.
func (s *Sweep) latency() template.HTML {
	var lines []plot.Line
	for _, c := range sweepLines {
		line := plot.Line{Class: c.class}
		for _, p := range s.Points {
			line.Values = append(line.Values, plot.Value{X: p.Rate, Y: c.of(p.Latency), Tip: fmt.Sprintf("%s %s ms at %.0f/s", c.name, measure.Ms(c.of(p.Latency)), p.Rate)})
		}
		lines = append(lines, line)
	}
	c := s.chart("latency", "ms", lines...)
	c.Y.Min, c.Y.Max, c.Across = s.P99Ms, s.P99Ms, s.P99Ms
	return c.Draw()
}

// WriteSVG writes the figure of all latencies, or that of the first sweep, as a file of its own.
func (r *Report) WriteSVG(w io.Writer) error {
	if all := r.sweeps(); len(all) > 0 {
		return plot.WriteSVG(w, all[0].latency())
	}
	return plot.WriteSVG(w, r.latencies())
}

// WriteCSV writes a line for each row of each run, or for each point of a sweep.
func (r *Report) WriteCSV(w io.Writer) error {
	out := bufio.NewWriter(w)
	fmt.Fprintln(out, "run,row,rate,operations,operations_per_second,errors,not_sent,p50_ms,p90_ms,p99_ms,p999_ms,max_ms,mean_ms,cpu_us_per_operation,sent_late_p99_ms")
	line := func(run int, name string, rate float64, ops int64, perSecond float64, errors, unsent int64, l measure.Latency, cpu, late float64) {
		fmt.Fprintf(out, "%d,%s,%.1f,%d,%.1f,%d,%d,%.3f,%.3f,%.3f,%.3f,%.3f,%.3f,%.2f,%.3f\n", run, name, rate, ops, perSecond, errors, unsent, l.P50Ms, l.P90Ms, l.P99Ms, l.P999Ms, l.MaxMs, l.MeanMs, cpu, late)
	}
	for i, run := range r.Runs {
		for _, x := range run.Rows {
			late := 0.0
			if x.Late != nil {
				late = x.Late.P99Ms
			}
			line(i+1, x.Name, x.Rate, x.Ops, x.PerSecond, x.Errors, x.Unsent, x.Latency, x.CPU, late)
			for _, p := range x.Parts {
				line(i+1, x.Name+":"+p.Verb, x.Rate*p.Share, p.Latency.Count, 0, p.Errors, 0, p.Latency, 0, 0)
			}
		}
		for _, s := range run.Sweeps {
			for _, p := range s.Points {
				line(i+1, s.Row, p.Rate, p.Latency.Count, p.PerSecond, p.Errors, p.Unsent, p.Latency, p.CPU, p.LateP99Ms)
			}
		}
	}
	return out.Flush()
}

// Histograms are those of each row, of all runs together, and of each verb of a mix, mix-VERB.
func (r *Report) Histograms() (out []measure.Named) {
	for _, x := range r.Rows {
		out = append(out, measure.Named{Name: x.Name, Histogram: x.latency})
		for _, p := range x.Parts {
			out = append(out, measure.Named{Name: x.Name + "-" + p.Verb, Histogram: p.latency})
		}
	}
	return out
}

func numbers(f []float64) (s []string) {
	for _, n := range f {
		s = append(s, number(n))
	}
	return s
}

// number prints about three digits.
func number(f float64) string {
	switch {
	case f == 0:
		return "-"
	case f < 100:
		return fmt.Sprintf("%.1f", f)
	default:
		return fmt.Sprintf("%.0f", f)
	}
}
