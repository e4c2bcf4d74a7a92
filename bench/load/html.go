package load

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"strings"

	"github.com/quorate/quorate/bench/measure"
	"github.com/quorate/quorate/bench/plot"
	"github.com/quorate/quorate/bench/report"
)

//go:embed page.html
var pageText string

var pageTemplate = report.Template(pageText)

// htmlPage is what the template shows.
type htmlPage struct {
	*Report
	Latencies template.HTML
	Curves    []report.Figure
	Sweeps    []sweepFigures
	Rows      []tableRow
	Failures  []string
}

type sweepFigures struct {
	Title, Conclusion   string
	Throughput, Latency template.HTML
}

type tableRow struct {
	Name  string
	Part  bool
	Cells []string
}

// WriteHTML writes the report as one page that needs nothing else: no scripts, no
// fonts, no network.
func (r *Report) WriteHTML(w io.Writer) error {
	p := htmlPage{Report: r}
	if len(r.Rows) > 0 {
		p.Latencies = r.latencies()
	}
	for _, x := range r.Rows {
		p.Curves = append(p.Curves, report.Figure{Title: x.Title, Figure: r.curve(x.Title, x.Latency)})
		p.Rows = append(p.Rows, x.tableRow())
		if x.Errors > 0 {
			p.Failures = append(p.Failures, fmt.Sprintf("%s: %d errors, the first: %s", x.Name, x.Errors, x.Error))
		}
		for _, part := range x.Parts {
			p.Curves = append(p.Curves, report.Figure{Title: "of them " + part.Verb, Figure: r.curve(part.Verb, part.Latency)})
			p.Rows = append(p.Rows, part.tableRow())
		}
	}
	for i, s := range r.sweeps() {
		title := s.Title
		if len(r.Runs) > 1 {
			title = fmt.Sprintf("%s (%d)", title, i+1)
		}
		p.Sweeps = append(p.Sweeps, sweepFigures{title, s.conclusion(), s.throughput(), s.latency()})
	}
	page := report.Page{Name: "load", Heading: "What operations cost, and how long they take", Head: &r.Head, Lines: []string{r.loadLine()}, Body: p, Report: r}
	return page.Write(w, pageTemplate)
}

func cells(perSecond float64, l measure.Latency, errors int64, cpu float64, by []float64) []string {
	return []string{
		fmt.Sprint(l.Count), number(perSecond), measure.Ms(l.P50Ms), measure.Ms(l.P90Ms), measure.Ms(l.P99Ms), measure.Ms(l.P999Ms), measure.Ms(l.MaxMs), fmt.Sprint(errors),
		number(cpu), strings.Join(numbers(by), " + "),
	}
}

func (x *Row) tableRow() tableRow {
	return tableRow{Name: x.Title, Cells: cells(x.PerSecond, x.Latency, x.Errors, x.CPU, x.ByNode)}
}

func (p *Part) tableRow() tableRow {
	return tableRow{Name: "of them " + p.Verb, Part: true, Cells: cells(0, p.Latency, p.Errors, 0, nil)}
}

// shown is what the figure of all latencies has a line of.
type shown struct {
	name  string
	part  bool
	l     measure.Latency
	class string
}

// latencies shows each row's median, p99 and maximum.
func (r *Report) latencies() template.HTML {
	const left, right, rowHeight = 270.0, 1090.0, 24.0
	var all []shown
	low, high := math.Inf(1), 0.0
	add := func(s shown) {
		all = append(all, s)
		if s.l.Count > 0 {
			low, high = min(low, s.l.P50Ms), max(high, s.l.MaxMs)
		}
	}
	for _, x := range r.Rows {
		add(shown{x.Title, false, x.Latency, "m-most-recent"})
		for _, p := range x.Parts {
			add(shown{"of them " + p.Verb, true, p.Latency, "m-not-older"})
		}
	}
	height := float64(len(all))*rowHeight + 56
	d := plot.New(1110, height, "latency of each row")
	x := plot.LogAxis(min(low, max(high, 1)), high, left, right)
	d.XAxis(x, 4, height-36, "ms")
	y := 4.0
	for _, s := range all {
		y += rowHeight
		indent := 4.0
		if s.part {
			indent = 18
		}
		tip := fmt.Sprintf("%s: p50 %s, p99 %s, p99.9 %s, max %s ms", s.name, measure.Ms(s.l.P50Ms), measure.Ms(s.l.P99Ms), measure.Ms(s.l.P999Ms), measure.Ms(s.l.MaxMs))
		d.Add(`<g><title>%s</title>`, template.HTMLEscapeString(tip))
		d.Text(indent, y-2, "row", s.name)
		if s.l.Count > 0 {
			d.Line(x.At(s.l.P50Ms), y-6, x.At(s.l.MaxMs), y-6, "thin "+s.class)
			d.Line(x.At(s.l.P50Ms), y-6, x.At(s.l.P99Ms), y-6, "thick "+s.class)
			d.Add(`<circle cx="%.1f" cy="%.1f" r="4.5" class="dot %s"/>`, x.At(s.l.P50Ms), y-6, s.class)
		}
		d.Add(`</g>`)
	}
	return d.Done()
}

// curve shows the latency of every percentile. All figures have the same height of a
// millisecond.
func (r *Report) curve(title string, l measure.Latency) template.HTML {
	const left, right, top, bottom = 46.0, 350.0, 20.0, 196.0
	low, high, highest := math.Inf(1), 0.0, 0.0
	widen := func(l measure.Latency) {
		for _, p := range l.Curve {
			low, high = min(low, p.Ms), max(high, p.Ms)
			if p.Percentile < 100 {
				highest = max(highest, p.Percentile)
			}
		}
	}
	for _, x := range r.Rows {
		widen(x.Latency)
		for _, p := range x.Parts {
			widen(p.Latency)
		}
	}
	d := plot.New(360, 232, "latency by percentile: "+title)
	y, x := plot.LogAxis(min(low, max(high, 1)), high, bottom, top), plot.NinesAxis(highest, left, right)
	d.YAxis(y, left, right, "ms")
	d.XAxis(x, top, bottom, "percentile")
	var points []plot.Point
	for _, p := range l.Curve {
		at := x.Max
		if p.Percentile < 100 {
			at = plot.Nines(p.Percentile)
		}
		points = append(points, plot.Point{X: x.At(at), Y: y.At(p.Ms), Tip: fmt.Sprintf("%g %% within %s ms", p.Percentile, measure.Ms(p.Ms))})
	}
	d.Curve(points, "m-most-recent")
	return d.Done()
}

// The size of a sweep's figures.
const (
	sweepLeft, sweepRight = 50.0, 526.0
	sweepTop, sweepBottom = 20.0, 216.0
)

// rates is the axis of a sweep's rates, with the knee and the bound that was broken behind it.
func (s *Sweep) rates(d *plot.Drawing) plot.Axis {
	low, high := math.Inf(1), 0.0
	for _, p := range s.Points {
		low, high = min(low, p.Rate), max(high, p.Rate)
	}
	x := plot.LogAxis(min(low, max(high, 1)), high, sweepLeft, sweepRight)
	d.XAxis(x, sweepTop, sweepBottom, "operations due per second")
	if s.Knee > 0 {
		d.Line(x.At(s.Knee), sweepTop-4, x.At(s.Knee), sweepBottom, "mark")
		d.Text(x.At(s.Knee)-4, sweepTop-7, "tick end", fmt.Sprintf("knee %.0f/s", s.Knee))
	}
	return x
}

// throughput shows what was done of what was due.
func (s *Sweep) throughput() template.HTML {
	d := plot.New(550, 252, "throughput by rate: "+s.Title)
	x := s.rates(d)
	low, high := math.Inf(1), 0.0
	for _, p := range s.Points {
		low, high = min(low, p.Rate), max(high, p.PerSecond, p.Rate)
		if p.PerSecond > 0 {
			low = min(low, p.PerSecond)
		}
	}
	y := plot.LogAxis(min(low, max(high, 1)), high, sweepBottom, sweepTop)
	d.YAxis(y, sweepLeft, sweepRight, "per s")
	var due, done []plot.Point
	for _, p := range s.Points {
		due = append(due, plot.Point{X: x.At(p.Rate), Y: y.At(p.Rate)})
		done = append(done, plot.Point{X: x.At(p.Rate), Y: y.At(p.PerSecond), Tip: fmt.Sprintf("%.0f of %.0f/s, %d errors", p.PerSecond, p.Rate, p.Errors)})
	}
	d.Curve(due, "fine m-any")
	d.Curve(done, "m-most-recent")
	return d.Done()
}

// latency shows the percentiles, and the bound.
func (s *Sweep) latency() template.HTML {
	d := plot.New(550, 252, "latency by rate: "+s.Title)
	x := s.rates(d)
	low, high := s.P99Ms, s.P99Ms
	for _, p := range s.Points {
		if p.Latency.Count > 0 {
			low, high = min(low, p.Latency.P50Ms), max(high, p.Latency.P999Ms)
		}
	}
	y := plot.LogAxis(low, high, sweepBottom, sweepTop)
	d.YAxis(y, sweepLeft, sweepRight, "ms")
	d.Line(sweepLeft, y.At(s.P99Ms), sweepRight, y.At(s.P99Ms), "floor")
	for _, c := range []struct {
		name, class string
		of          func(measure.Latency) float64
	}{
		{"p50", "m-not-older", func(l measure.Latency) float64 { return l.P50Ms }},
		{"p99", "m-most-recent", func(l measure.Latency) float64 { return l.P99Ms }},
		{"p99.9", "m-exact", func(l measure.Latency) float64 { return l.P999Ms }},
	} {
		var points []plot.Point
		for _, p := range s.Points {
			if p.Latency.Count > 0 {
				points = append(points, plot.Point{X: x.At(p.Rate), Y: y.At(c.of(p.Latency)), Tip: fmt.Sprintf("%s %s ms at %.0f/s", c.name, measure.Ms(c.of(p.Latency)), p.Rate)})
			}
		}
		d.Curve(points, c.class)
	}
	return d.Done()
}

// WriteSVG writes the figure of all latencies, or that of the first sweep, as a file of its own.
func (r *Report) WriteSVG(w io.Writer) error {
	var figure template.HTML
	if all := r.sweeps(); len(all) > 0 {
		figure = all[0].latency()
	} else {
		figure = r.latencies()
	}
	return plot.WriteSVG(w, figure, classes)
}

// classes are the colours of this page.
const classes = `.m-any { color: var(--any); stroke: var(--any); } .m-not-older { color: var(--not-older); stroke: var(--not-older); } .m-most-recent { color: var(--most-recent); stroke: var(--most-recent); } .m-exact { color: var(--exact); stroke: var(--exact); }
svg .dot.m-not-older { fill: var(--not-older); } svg .dot.m-most-recent { fill: var(--most-recent); }`

// Classes are those for the page.
func (p htmlPage) Classes() template.CSS { return classes }
