package scale

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

// page is what the template shows.
type page struct {
	*Report
	Lines    []line // of the curves, for the legend
	Memory   template.HTML
	Curves   []report.Figure
	Heads    []string
	Sizes    []shownSize
	Theirs   []Published
	Ours     []ours
	Failures []string
}

// shownSize is the table of one size.
type shownSize struct {
	Title string
	Rows  []shownRow
}

type shownRow struct {
	Name, Besides string
	Cells         []string
}

// ours is a figure of this report beside those of others.
type ours struct{ Row, Says string }

// WriteHTML writes the report as one page that needs nothing else: no scripts, no
// fonts, no network.
func (rep *Report) WriteHTML(w io.Writer) error {
	p := page{Report: rep, Lines: lines, Heads: heads}
	for _, x := range rep.Published {
		x.Link = strings.TrimPrefix(x.Link, "https://") // as text: the page asks the network for nothing
		p.Theirs = append(p.Theirs, x)
	}
	for _, s := range rep.Sizes {
		shown := shownSize{Title: fmt.Sprintf("%d %s", s.N, rep.Unit)}
		for i := range s.Rows {
			r := &s.Rows[i]
			shown.Rows = append(shown.Rows, shownRow{r.Name, r.besides(), r.cells()})
			if r.FirstError != "" {
				p.Failures = append(p.Failures, fmt.Sprintf("%s, %s: %d errors, %d of the other client; the first: %s", shown.Title, r.Name, r.Errors, r.OtherErrors, r.FirstError))
			}
		}
		p.Sizes = append(p.Sizes, shown)
	}
	if len(rep.Sizes) > 0 {
		p.Memory = rep.memory()
		last := rep.Sizes[len(rep.Sizes)-1].Rows
		for i := range last {
			r := &last[i]
			p.Curves = append(p.Curves, report.Figure{Title: r.Name, Figure: rep.curve(r)})
			if r.Latency.Count > 0 {
				p.Ours = append(p.Ours, ours{r.Name, fmt.Sprintf("p50 %s ms, p99 %s ms, %s ms of CPU each, at most %.0f MiB a node", measure.Ms(r.Latency.P50Ms), measure.Ms(r.Latency.P99Ms), measure.Ms(r.cpu()), r.memory())})
			}
		}
	}
	frame := report.Page{Name: "scale", Heading: rep.What, Head: &rep.Head, Lines: []string{rep.loadLine()}, Body: p, Report: rep}
	return frame.Write(w, pageTemplate)
}

// line is a curve of each figure: milliseconds of a row.
type line struct {
	Class, Colour, Title string
	of                   func(r *Row) float64 // 0: nothing to say
}

var lines = []line{
	{"m-p50", "not-older", "p50, or the time of what happened once", (*Row).time},
	{"m-p99", "most-recent", "p99", func(r *Row) float64 { return r.Latency.P99Ms }},
	{"m-cpu", "exact", "CPU of all nodes for each; of idle for all of its time", (*Row).cpu},
	{"m-other", "any", "p99 of the other client's gets", func(r *Row) float64 { return r.Other.P99Ms }},
}

// The size of a figure.
const (
	figureWidth, figureHeight = 360.0, 232.0
	figureLeft, figureRight   = 50.0, 344.0
	figureTop, figureBottom   = 20.0, 196.0
)

// at is the row of a size; nil if it was not measured there.
func (s *Size) at(id string) *Row {
	for i := range s.Rows {
		if s.Rows[i].ID == id {
			return &s.Rows[i]
		}
	}
	return nil
}

// axes draws those of a figure over all sizes, for values from low to high.
func (rep *Report) axes(title, unit string, low, high float64) (d *plot.Drawing, x, y plot.Axis) {
	d = plot.New(figureWidth, figureHeight, title)
	x = plot.LogAxis(float64(rep.Sizes[0].N), float64(rep.Sizes[len(rep.Sizes)-1].N), figureLeft, figureRight)
	y = plot.LogAxis(min(low, max(high, 1)), high, figureBottom, figureTop)
	d.YAxis(y, figureLeft, figureRight, unit)
	d.XAxis(x, figureTop, figureBottom, rep.Unit)
	return d, x, y
}

// values are those of a line at each size at which there are some.
type values []struct{ n, v float64 }

// draw draws a line with a dot at each size, and from its first one a thin one that grows as the
// size does.
func (v values) draw(d *plot.Drawing, x, y plot.Axis, class, name, unit string) {
	var points []plot.Point
	for _, p := range v {
		points = append(points, plot.Point{X: x.At(p.n), Y: y.At(p.v), Tip: fmt.Sprintf("%s at %.0f: %s %s", name, p.n, measure.Ms(p.v), unit)})
	}
	d.Curve(points, class)
	for _, p := range points {
		d.Add(`<circle cx="%.1f" cy="%.1f" r="3" class="dot %s"/>`, p.X, p.Y, class)
	}
}

// proportion draws what grows as the size does, from the first value on, as far as the figure goes.
func (v values) proportion(d *plot.Drawing, x, y plot.Axis) {
	if len(v) < 2 {
		return
	}
	factor := min(v[len(v)-1].n/v[0].n, y.Max/v[0].v)
	d.Line(x.At(v[0].n), y.At(v[0].v), x.At(v[0].n*factor), y.At(v[0].v*factor), "floor")
}

// curve shows a row's times over the size.
func (rep *Report) curve(row *Row) template.HTML {
	all := make([]values, len(lines))
	low, high := math.Inf(1), 0.0
	for i, l := range lines {
		for k := range rep.Sizes {
			r := rep.Sizes[k].at(row.ID)
			if r == nil {
				continue
			}
			if v := l.of(r); v > 0 {
				all[i] = append(all[i], struct{ n, v float64 }{float64(rep.Sizes[k].N), v})
				low, high = min(low, v), max(high, v)
			}
		}
	}
	d, x, y := rep.axes("times over the size: "+row.Name, "ms", low, high)
	all[0].proportion(d, x, y)
	for i, l := range lines {
		all[i].draw(d, x, y, l.Class, strings.SplitN(l.Title, ",", 2)[0], "ms")
	}
	return d.Done()
}

// memory shows the most that a node had resident behind any row.
func (rep *Report) memory() template.HTML {
	var most values
	low, high := math.Inf(1), 0.0
	for _, s := range rep.Sizes {
		v := 0.0
		for i := range s.Rows {
			v = max(v, s.Rows[i].memory())
		}
		if v > 0 {
			most = append(most, struct{ n, v float64 }{float64(s.N), v})
			low, high = min(low, v), max(high, v)
		}
	}
	d, x, y := rep.axes("memory over the size", "MiB", low, high)
	most.proportion(d, x, y)
	most.draw(d, x, y, "m-memory", "resident", "MiB")
	return d.Done()
}
