package faults

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/bench/measure"
	"github.com/quorate/quorate/bench/plot"
	"github.com/quorate/quorate/bench/report"
)

// maxTimelines bounds how many repeats have their time lines drawn. The CSV has all.
const maxTimelines = 20

// class is a service's in the page; the colours of the read modes are those of the modes' page.
func (s service) class() string { return "c-" + s.String() }

// Doc is the report for people.
func (rep *Report) Doc() *report.Doc {
	d := &report.Doc{
		Name: "faults", Heading: "What clients see when nodes fail", Head: &rep.Head, Lines: []string{rep.loadLine()}, Report: rep,
		Method: "Requests are due at random times drawn beforehand, whatever the servers do (an open loop), and are sent to all nodes alike; their latency counts from when they were due. Nothing is tried again: an error is what a client without retries sees, and a connection that is gone is opened again by the next request. Each acknowledged write is known with its time; each read is compared with what had been acknowledged when it was sent, and at the end of each repeat all objects are compared with it. Client and servers share the machine.",
	}
	var legend []report.Colour
	for s := range services {
		legend = append(legend, report.Colour{Class: s.class(), Name: s.title()})
	}
	verdicts := report.Block{Verdicts: rep.Verdicts, Details: slices.Clone(rep.Violations)}
	for i, r := range rep.Repeats {
		for _, l := range r.Lost {
			verdicts.Details = append(verdicts.Details, fmt.Sprintf("repeat %d: %s", i+1, l))
		}
	}
	each := ""
	if len(rep.Repeats) > 1 {
		each = fmt.Sprintf("; median / longest of %d repeats", len(rep.Repeats))
	}
	d.Blocks = append(d.Blocks, verdicts, report.Block{
		Title: "Each fault", Note: "Milliseconds" + each + ". Gap: the longest time without a success, until the next fault. 95 %: when that much of the throughput before the first fault was there again for a second, since the fault began; on the node itself, since it was let come back. Gap before: the longest one before the first fault, on all nodes.",
	})
	for i := range rep.Summary {
		d.Blocks = append(d.Blocks, rep.fault(i)...)
	}
	d.Blocks = append(d.Blocks,
		report.Block{Title: "Gaps", Page: true, Note: "The longest time without a success on the nodes that the fault did not happen to. A dot is a repeat.", Legend: legend, Figures: []report.Figure{{Figure: plot.Ranges("longest time without a success", "ms without a success", 880, 120, rep.gaps(), 1)}}},
		report.Block{Title: "Over the run", Page: true, Note: "All nodes, in bins of 100 ms. The areas are the faults, until their nodes were let come back. Successes and errors count when they were known, latency when the request was due.", Legend: legend})
	for i := range rep.Repeats[:min(len(rep.Repeats), maxTimelines)] {
		d.Blocks = append(d.Blocks, report.Block{Fold: fmt.Sprintf("Repeat %d of %d", i+1, len(rep.Repeats)), Open: i == 0, Figures: rep.timelines(i)})
	}
	errors := report.Block{Title: "Errors", Table: report.Table{Left: 1, Head: []string{"kind", "number", "the first"}}}
	for o := late; o < outcomes; o++ {
		if e, ok := rep.Errors[o.String()]; ok {
			errors.Table.Rows = append(errors.Table.Rows, report.Row{Cells: []string{o.String(), fmt.Sprint(e.Count), fmt.Sprintf("%.200s", e.First)}})
		}
	}
	if len(errors.Table.Rows) > 0 {
		d.Blocks = append(d.Blocks, errors)
	}
	return d
}

// fault are the tables of one.
func (rep *Report) fault(i int) []report.Block {
	s := &rep.Summary[i]
	gaps := report.Block{Heading: fmt.Sprintf("%s (%s)", s.Fault, rep.victims(i)), Note: s.came(), Texts: rep.windows(i), Table: report.Table{Head: []string{"", "other nodes: gap", "95 %", "errors", "the node: gap", "95 %", "errors", "gap before"}}}
	latencies := report.Block{Table: report.Table{Head: []string{"latency meanwhile", "other nodes: p50", "p99", "before: p50", "p99", "the node: p50", "p99", "before: p50", "p99"}}}
	for service := range services {
		x := s.Services[service.String()]
		cells, times := []string{service.title()}, []string{service.title()}
		for _, seen := range []*SeenSummary{x.Others, &x.Node} {
			if seen == nil {
				cells = append(cells, "–", "–", "–")
			} else {
				cells = append(cells, seen.Gap.text(), seen.Recovered.text(), seen.Errors.counts())
			}
			if seen == nil || seen.While == nil {
				times = append(times, "–", "–", "–", "–")
			} else {
				times = append(times, seen.While.P50.text(), seen.While.P99.text(), seen.Before.P50.text(), seen.Before.P99.text())
			}
		}
		quiet := 0.0 // the longest gap before the first fault of all repeats
		for _, r := range rep.Repeats {
			quiet = max(quiet, r.QuietGapMs[service.String()])
		}
		gaps.Table.Rows = append(gaps.Table.Rows, report.Row{Class: service.class(), Cells: append(cells, measure.Ms(quiet))})
		latencies.Table.Rows = append(latencies.Table.Rows, report.Row{Class: service.class(), Cells: times})
	}
	if s.Delayed == nil {
		return []report.Block{gaps}
	}
	return []report.Block{gaps, latencies}
}

// text prints a spread of milliseconds: the median, and behind it the longest if there were several.
func (s Spread) text() string {
	out := "never"
	switch {
	case s.Count > 1:
		out = measure.Ms(s.Median) + " / " + measure.Ms(s.Max)
	case s.Count == 1:
		out = measure.Ms(s.Median)
	}
	if s.Never > 0 && s.Count > 0 {
		out += fmt.Sprintf(", %d× never", s.Never)
	}
	return out
}

// counts prints a spread of numbers.
func (s Spread) counts() string {
	if s.Count > 1 {
		return fmt.Sprintf("%g / %g", s.Median, s.Max)
	}
	return fmt.Sprintf("%g", s.Median)
}

// shownWindows is how many windows of a fault a line has.
const shownWindows = 5

// windows are a fault's windows of unavailability, a line for each service that had some. Of
// several repeats the first is told; the JSON has all.
func (rep *Report) windows(fault int) (out []string) {
	line := func(service service, where string, s *Seen) {
		if s == nil || len(s.Windows) == 0 {
			return
		}
		var parts []string
		for i, w := range s.Windows {
			if i == shownWindows {
				parts = append(parts, fmt.Sprintf("and %d more", len(s.Windows)-i))
				break
			}
			text := fmt.Sprintf("%s ms from %s on", measure.Ms(w.LengthMs), measure.Ms(w.FromMs))
			if w.Open {
				text += ", not over when the next fault came"
			}
			parts = append(parts, text)
		}
		out = append(out, fmt.Sprintf("nothing served %s: %s: %s", where, service.title(), strings.Join(parts, "; ")))
	}
	f := &rep.Repeats[0].Faults[fault]
	for s := range services {
		x := f.Services[s.String()]
		line(s, "on the other nodes", x.Others)
		line(s, "on the node", &x.Node)
	}
	if len(rep.Repeats) > 1 && len(out) > 0 {
		out = append([]string{"in the first repeat:"}, out...)
	}
	return out
}

// came says how a fault's node came back.
func (s *Summary) came() string {
	if s.Gone != nil {
		return fmt.Sprintf("after SIGTERM: ended %s ms, ready %s ms, writes %s ms", s.Gone.text(), s.Ready.text(), s.Wrote.text())
	}
	text := fmt.Sprintf("after the end of the fault: ready %s ms, writes %s ms", s.Ready.text(), s.Wrote.text())
	if s.Delayed != nil {
		text += fmt.Sprintf("; %s syncs took longer", s.Delayed.counts())
	}
	return text
}

// victims are the nodes that a fault happened to, with their roles, each once.
func (rep *Report) victims(fault int) string {
	var all []string
	for _, r := range rep.Repeats {
		if name := r.Faults[fault].Node + " " + string(r.Faults[fault].Role); !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return strings.Join(all, ", ")
}

// timelines are the figures of one repeat: the faults as areas, and a line per service.
func (rep *Report) timelines(repeat int) []report.Figure {
	r := &rep.Repeats[repeat]
	c := plot.Chart{Width: 880, Height: 190, X: plot.Scale{Title: "seconds", End: max(rep.Options.LengthSeconds, 1)}}
	for _, f := range r.Faults {
		c.Areas = append(c.Areas, plot.Area{From: f.AtSeconds, To: f.EndSeconds, Title: fmt.Sprintf("%s %s", f.Kind.with(f.How), f.Node), Tip: fmt.Sprintf("%s %s (%s) at %.1f s", f.Kind.with(f.How), f.Node, f.Role, f.AtSeconds)})
	}
	perSecond := 1000 / r.Timeline.BinMs
	draw := func(title string, y plot.Scale, value func(b Bins, bin int) float64) report.Figure {
		c := c
		c.Title, c.Y = title+" over the run", y
		high := 0.0
		for s := range services {
			b, line := r.Timeline.Services[s.String()], plot.Line{Class: "fine " + s.class()}
			for i := range b.OK {
				v := value(b, i)
				if !math.IsNaN(v) {
					high = max(high, v)
				}
				line.Values = append(line.Values, plot.Value{X: (float64(i) + 0.5) * r.Timeline.BinMs / 1000, Y: v})
			}
			c.Lines = append(c.Lines, line)
		}
		if y.End > 0 {
			c.Y.End = min(y.End, max(high, 1))
		}
		return report.Figure{Title: title, Figure: c.Draw()}
	}
	// A stall that ends answers much at once: it may leave the figure, so that the rest can be seen.
	most := 4 * max(rep.Options.Writes, rep.Options.Reads*float64(len(rep.Nodes)))
	return []report.Figure{
		draw("Successes", plot.Scale{Title: "per s", End: most}, func(b Bins, i int) float64 { return float64(b.OK[i]) * perSecond }),
		draw("Errors", plot.Scale{Title: "per s", Max: 1}, func(b Bins, i int) float64 { return float64(b.Errors[i]) * perSecond }),
		draw("Latency, the longest in each bin", plot.Scale{Title: "ms", Log: true}, func(b Bins, i int) float64 { return b.MaxMs[i] }),
	}
}

// gaps are the longest gap of each repeat, by fault and service, on the other nodes, or on the node
// itself if it is alone.
func (rep *Report) gaps() (rows []plot.Range) {
	for i, sum := range rep.Summary {
		rows = append(rows, plot.Range{Group: true, Name: sum.Fault})
		for s := range services {
			row := plot.Range{Name: s.title(), Class: s.class()}
			for k, r := range rep.Repeats {
				x := r.Faults[i].Services[s.String()]
				seen := x.Others
				if seen == nil {
					seen = &x.Node
				}
				row.Dots = append(row.Dots, plot.Value{X: max(seen.GapMs, 1), Tip: fmt.Sprintf("repeat %d: %s ms", k+1, measure.Ms(seen.GapMs))})
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// WriteCSV writes the time lines: a row for each repeat, bin and service.
func (rep *Report) WriteCSV(w io.Writer) error {
	out := bufio.NewWriter(w)
	fmt.Fprintln(out, "repeat,seconds,service,ok,errors,p50_ms,max_ms")
	for i, r := range rep.Repeats {
		for s := range services {
			b := r.Timeline.Services[s.String()]
			for k := range b.OK {
				at := time.Duration(k) * binLength
				fmt.Fprintf(out, "%d,%.1f,%s,%d,%d,%.3f,%.3f\n", i+1, at.Seconds(), s, b.OK[k], b.Errors[k], b.P50Ms[k], b.MaxMs[k])
			}
		}
	}
	return out.Flush()
}
