package scale

import (
	"encoding/csv"
	"fmt"
	"html/template"
	"io"
	"strconv"
	"strings"

	"github.com/quorate/quorate/bench/measure"
	"github.com/quorate/quorate/bench/plot"
	"github.com/quorate/quorate/bench/report"
)

// Doc is the report for people.
func (rep *Report) Doc() *report.Doc {
	d := &report.Doc{
		Name: "scale", Heading: rep.What, Head: &rep.Head, Lines: []string{rep.loadLine()}, Report: rep,
		Method: "Each size is a cluster of its own on this machine, which shares its processors with the clients. One object of each kind was created and its backup multiplied; the first node began with that, the others joined. Clients without pauses send their next request when the last one is answered (a closed loop); requests at a rate are due at random times, and so are the gets of the other client, which are Most Recent and ask another node first (an open loop): their latency counts from when they were due.",
	}
	var sizes []report.Block
	var failures report.Block
	for _, s := range rep.Sizes {
		b := report.Block{Title: fmt.Sprintf("%d %s", s.N, rep.Unit), Table: report.Table{Head: append([]string{"row"}, heads...)}}
		for i := range s.Rows {
			r := &s.Rows[i]
			b.Table.Rows = append(b.Table.Rows, report.Row{Cells: append([]string{r.Name}, r.cells()...), Note: r.besides()})
			if r.FirstError != "" {
				failures.Failures = append(failures.Failures, fmt.Sprintf("%s, %s: %s, %d of the other client; the first error: %s", b.Title, r.Name, report.Count(r.Errors, "error"), r.OtherErrors, r.FirstError))
			}
		}
		sizes = append(sizes, b)
	}
	d.Blocks = append(d.Blocks, failures)
	if len(rep.Published) > 0 {
		d.Blocks = append(d.Blocks, rep.beside())
	}
	if n := len(rep.Sizes); n > 0 {
		growth := report.Block{
			Title: "How it grows", Note: "Both axes are logarithmic. Dashed: what grows in proportion to the size, from the smallest one on.", Page: true, Columns: "three",
			Legend: []report.Colour{{Class: memoryClass, Name: "memory: the most that a node had resident behind any row"}}, Figures: []report.Figure{{Title: "Memory", Figure: rep.memory()}},
		}
		for _, l := range lines {
			growth.Legend = append(growth.Legend, report.Colour{Class: l.Class, Name: l.Title})
		}
		for i := range rep.Sizes[n-1].Rows {
			r := &rep.Sizes[n-1].Rows[i]
			growth.Figures = append(growth.Figures, report.Figure{Title: r.Name, Figure: rep.curve(r)})
		}
		d.Blocks = append(d.Blocks, growth)
	}
	if len(rep.Growth) > 0 {
		b := report.Block{Title: "Exponents of growth", Note: "With e the cost grows as n to the e, from the smallest to the largest size: 1 is in proportion, 0 does not grow.", Table: report.Table{Head: []string{"row", "CPU each", "time", "memory"}}}
		for _, g := range rep.Growth {
			b.Table.Rows = append(b.Table.Rows, report.Row{Cells: []string{g.Name, fmt.Sprintf("%.2f", g.CPU), fmt.Sprintf("%.2f", g.Time), fmt.Sprintf("%.2f", g.Memory)}})
		}
		d.Blocks = append(d.Blocks, b)
	}
	d.Blocks = append(d.Blocks, sizes...)
	return d
}

// beside has the figures of others, and those of the largest size here.
func (rep *Report) beside() report.Block {
	b := report.Block{Title: "Beside what others have published", Note: "Theirs are of other machines, and often of more than one. Ours are of the largest size here.", Table: report.Table{Texts: true, Left: 2, Head: []string{"whose", "figure"}}}
	for _, x := range rep.Published {
		link := strings.TrimPrefix(x.Link, "https://") // as text: the page asks the network for nothing
		b.Table.Rows = append(b.Table.Rows, report.Row{Cells: []string{x.Who, x.Says + " (" + link + ")"}})
	}
	if len(rep.Sizes) == 0 {
		return b
	}
	for _, r := range rep.Sizes[len(rep.Sizes)-1].Rows {
		if r.Latency.Count > 0 {
			b.Table.Rows = append(b.Table.Rows, report.Row{Cells: []string{"here", fmt.Sprintf("%s: p50 %s ms, p99 %s ms, %s ms of CPU each, at most %.0f MiB a node", r.Name, measure.Ms(r.Latency.P50Ms), measure.Ms(r.Latency.P99Ms), measure.Ms(r.cpu()), r.memory())}})
		}
	}
	return b
}

// line is a curve of each figure: milliseconds of a row.
type line struct {
	Class, Title string
	of           func(r *Row) float64 // 0: nothing to say
}

var lines = []line{
	{"c-not-older", "p50, or the time of what happened once", (*Row).time},
	{"c-most-recent", "p99", func(r *Row) float64 { return r.Latency.P99Ms }},
	{"c-exact", "CPU of all nodes for each; of idle for all of its time", (*Row).cpu},
	{"c-any", "p99 of the other client's gets", func(r *Row) float64 { return r.Other.P99Ms }},
}

const memoryClass = "c-leader"

// chart draws lines over the size, and from the first value of the first one what grows as the size does.
func (rep *Report) chart(title, unit string, lines []line, value func(l line, s *Size) float64) template.HTML {
	n := func(i int) float64 { return float64(rep.Sizes[i].N) }
	last := len(rep.Sizes) - 1
	c := plot.Chart{Title: title + " over the size", Width: 360, Height: 232, X: plot.Scale{Title: rep.Unit, Log: true, Min: n(0), Max: n(last)}, Y: plot.Scale{Title: unit, Log: true}}
	for k, l := range lines {
		drawn := plot.Line{Class: l.Class, Dots: true}
		name, _, _ := strings.Cut(l.Title, ",")
		for i := range rep.Sizes {
			if v := value(l, &rep.Sizes[i]); v > 0 {
				drawn.Values = append(drawn.Values, plot.Value{X: n(i), Y: v, Tip: fmt.Sprintf("%s at %.0f: %s %s", name, n(i), measure.Ms(v), unit)})
			}
		}
		c.Lines = append(c.Lines, drawn)
		if v := drawn.Values; k == 0 && len(v) > 1 {
			c.Proportion = v[0]
		}
	}
	return c.Draw()
}

// curve shows a row's times.
func (rep *Report) curve(row *Row) template.HTML {
	return rep.chart("times: "+row.Name, "ms", lines, func(l line, s *Size) float64 {
		for i := range s.Rows {
			if s.Rows[i].ID == row.ID {
				return l.of(&s.Rows[i])
			}
		}
		return 0
	})
}

// memory shows the most that a node had resident behind any row.
func (rep *Report) memory() template.HTML {
	return rep.chart("memory", "MiB", []line{{Class: memoryClass, Title: "resident"}}, func(_ line, s *Size) (most float64) {
		for i := range s.Rows {
			most = max(most, s.Rows[i].memory())
		}
		return most
	})
}

// heads are those of the columns of cells.
var heads = []string{"count", "errors", "seconds", "MB/s", "CPU ms each", "p50 ms", "p99 ms", "other get p50", "p99", "MiB a node"}

func (r *Row) cells() []string {
	cpu := fmt.Sprintf("%.0f", r.cpu())
	if r.cpu() < 100 {
		cpu = fmt.Sprintf("%.3g", r.cpu())
	}
	return []string{
		fmt.Sprint(r.Count), fmt.Sprint(r.Errors + r.OtherErrors), fmt.Sprintf("%.2f", r.Seconds), fmt.Sprintf("%.0f", float64(r.Bytes)/1e6/max(r.Seconds, 1e-9)), cpu,
		ms(r.Latency, r.Latency.P50Ms), ms(r.Latency, r.Latency.P99Ms), ms(r.Other, r.Other.P50Ms), ms(r.Other, r.Other.P99Ms), fmt.Sprintf("%.0f", r.memory()),
	}
}

func ms(l measure.Latency, v float64) string {
	if l.Count == 0 {
		return "–"
	}
	return measure.Ms(v)
}

// WriteCSV writes a line for each row of each size.
func (rep *Report) WriteCSV(w io.Writer) error {
	out := csv.NewWriter(w)
	_ = out.Write(strings.Fields("point n row name count errors seconds bytes cpu_seconds p50_ms p99_ms max_ms other_p50_ms other_p99_ms other_errors memory_mib")) // Error says
	f := func(x float64) string { return strconv.FormatFloat(x, 'g', 6, 64) }
	for _, s := range rep.Sizes {
		for i := range s.Rows {
			r := &s.Rows[i]
			_ = out.Write([]string{
				rep.Point, strconv.Itoa(s.N), r.ID, r.Name, strconv.FormatInt(r.Count, 10), strconv.FormatInt(r.Errors, 10), f(r.Seconds), strconv.FormatInt(r.Bytes, 10), f(r.CPUSeconds),
				f(r.Latency.P50Ms), f(r.Latency.P99Ms), f(r.Latency.MaxMs), f(r.Other.P50Ms), f(r.Other.P99Ms), strconv.FormatInt(r.OtherErrors, 10), f(r.memory()),
			})
		}
	}
	out.Flush()
	return out.Error()
}

// Histograms are those of each row of each size, POINT-N-ROW. Of what happened once there is none.
func (rep *Report) Histograms() (out []measure.Named) {
	for _, s := range rep.Sizes {
		for _, r := range s.Rows {
			if r.Latency.Count > 0 {
				out = append(out, measure.Named{Name: fmt.Sprintf("%s-%d-%s", rep.Point, s.N, r.ID), Histogram: r.latency})
			}
		}
	}
	return out
}
