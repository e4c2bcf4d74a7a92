package modes

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"strconv"
	"strings"
)

// axis maps values to a length. Its zero is not used.
type axis struct {
	min, max float64
	log      bool
	from, to float64 // in the drawing
	ticks    []tick
}

type tick struct {
	at    float64
	label string
}

// logAxis covers values with ticks at 1, 2 and 5 of each power of ten; with more
// than three powers only those are labelled.
func logAxis(low, high, from, to float64) axis {
	low = math.Max(low, 0.001)
	high = math.Max(high, 2*low)
	a := axis{min: floorNice(low), max: ceilNice(high), log: true, from: from, to: to}
	wide := math.Log10(a.max/a.min) > 2.4
	for p := math.Floor(math.Log10(a.min)); p <= math.Ceil(math.Log10(a.max)); p++ {
		for _, m := range []float64{1, 2, 5} {
			v := m * math.Pow(10, p)
			if v < a.min*0.999 || v > a.max*1.001 {
				continue
			}
			label := ""
			if m == 1 || !wide {
				label = short(v)
			}
			a.ticks = append(a.ticks, tick{v, label})
		}
	}
	return a
}

// short prints a round number.
func short(v float64) string { return strconv.FormatFloat(math.Round(v*1e4)/1e4, 'f', -1, 64) }

// floorNice and ceilNice are the nearest 1, 2 or 5 times a power of ten.
func floorNice(v float64) float64 {
	p := math.Pow(10, math.Floor(math.Log10(v)+1e-9))
	for _, m := range []float64{5, 2} {
		if v >= m*p*0.999 {
			return m * p
		}
	}
	return p
}

func ceilNice(v float64) float64 {
	p := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if v <= m*p*1.001 {
			return m * p
		}
	}
	return 10 * p
}

// linearAxis covers 0 to high with about four ticks.
func linearAxis(high, from, to float64) axis {
	step := ceilNice(math.Max(high, 0.004) / 4)
	a := axis{max: step * math.Ceil(math.Max(high, 0.004)/step-1e-9), from: from, to: to}
	for v := 0.0; v <= a.max+step/2; v += step {
		a.ticks = append(a.ticks, tick{v, short(v)})
	}
	return a
}

// at is a value's place; values outside are drawn at the edge.
func (a axis) at(v float64) float64 {
	v = math.Min(math.Max(v, a.min), a.max)
	share := (v - a.min) / (a.max - a.min)
	if a.log {
		share = math.Log(v/a.min) / math.Log(a.max/a.min)
	}
	return a.from + share*(a.to-a.from)
}

// drawing is an SVG in the making. Colours come from the page's classes.
type drawing struct {
	b             strings.Builder
	width, height float64
}

func newDrawing(width, height float64, title string) *drawing {
	d := &drawing{width: width, height: height}
	d.add(`<svg viewBox="0 0 %g %g" role="img" aria-label="%s">`, width, height, html.EscapeString(title))
	return d
}

func (d *drawing) add(format string, args ...any) { fmt.Fprintf(&d.b, format, args...) }

func (d *drawing) done() template.HTML {
	d.add("</svg>")
	return template.HTML(d.b.String()) // #nosec G203: made here; all text is escaped by text and tip
}

func (d *drawing) text(x, y float64, class, s string) {
	d.add(`<text x="%.1f" y="%.1f" class="%s">%s</text>`, x, y, class, html.EscapeString(s))
}

func (d *drawing) line(x1, y1, x2, y2 float64, class string) {
	d.add(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" class="%s"/>`, x1, y1, x2, y2, class)
}

// xAxis draws the ticks of a horizontal axis, with lines up to top.
func (d *drawing) xAxis(a axis, top, bottom float64, title string) {
	for _, t := range a.ticks {
		d.line(a.at(t.at), top, a.at(t.at), bottom, "grid")
		if t.label != "" {
			d.text(a.at(t.at), bottom+14, "tick mid", t.label)
		}
	}
	d.text((a.from+a.to)/2, bottom+29, "label mid", title)
}

// yAxis draws the ticks of a vertical axis, with lines to the right.
func (d *drawing) yAxis(a axis, left, right float64, title string) {
	for _, t := range a.ticks {
		d.line(left, a.at(t.at), right, a.at(t.at), "grid")
		if t.label != "" {
			d.text(left-6, a.at(t.at)+3.5, "tick end", t.label)
		}
	}
	d.text(left-30, a.to-9, "label", title)
}

type xy struct {
	x, y float64
	tip  string
}

// curve draws a line through points, with a place to point at on each.
func (d *drawing) curve(points []xy, class string) {
	if len(points) == 0 {
		return
	}
	var s strings.Builder
	for _, p := range points {
		fmt.Fprintf(&s, "%.1f,%.1f ", p.x, p.y)
	}
	d.add(`<polyline points="%s" class="curve %s"/>`, strings.TrimSpace(s.String()), class)
	for _, p := range points {
		if p.tip != "" {
			d.add(`<circle cx="%.1f" cy="%.1f" r="5" class="hit %s"><title>%s</title></circle>`, p.x, p.y, class, html.EscapeString(p.tip))
		}
	}
}
