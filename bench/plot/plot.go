package plot

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"strconv"
	"strings"
)

// Axis maps values to a length. Its zero is not used.
type Axis struct {
	Min, Max float64
	log      bool
	From, To float64 // in the drawing
	Ticks    []Tick
}

type Tick struct {
	At    float64
	Label string
}

// LogAxis covers values with ticks at 1, 2 and 5 of each power of ten; with more
// than three powers only those are labelled.
func LogAxis(low, high, from, to float64) Axis {
	low = math.Max(low, 0.001)
	high = math.Max(high, 2*low)
	a := Axis{Min: floorNice(low), Max: ceilNice(high), log: true, From: from, To: to}
	wide := math.Log10(a.Max/a.Min) > 2.4
	for p := math.Floor(math.Log10(a.Min)); p <= math.Ceil(math.Log10(a.Max)); p++ {
		for _, m := range []float64{1, 2, 5} {
			v := m * math.Pow(10, p)
			if v < a.Min*0.999 || v > a.Max*1.001 {
				continue
			}
			label := ""
			if m == 1 || !wide {
				label = short(v)
			}
			a.Ticks = append(a.Ticks, Tick{v, label})
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

// LinearAxis covers 0 to high with about four ticks.
func LinearAxis(high, from, to float64) Axis {
	step := ceilNice(math.Max(high, 0.004) / 4)
	a := Axis{Max: step * math.Ceil(math.Max(high, 0.004)/step-1e-9), From: from, To: to}
	for v := 0.0; v <= a.Max+step/2; v += step {
		a.Ticks = append(a.Ticks, Tick{v, short(v)})
	}
	return a
}

// Nines maps a percentile to a length in which each nine is as long as the last.
func Nines(p float64) float64 { return -math.Log10(math.Max(1-p/100, 1e-9)) }

// NinesAxis covers percentiles, by Nines, up to the highest one below 100 that is drawn; what
// is at Max is the 100th.
func NinesAxis(highest, from, to float64) Axis {
	a := Axis{Max: math.Max(Nines(99), Nines(highest)) * 1.04, From: from, To: to}
	for _, p := range []float64{0, 50, 90, 99, 99.9, 99.99, 99.999} {
		if Nines(p) <= a.Max {
			a.Ticks = append(a.Ticks, Tick{At: Nines(p), Label: strconv.FormatFloat(p, 'g', -1, 64)})
		}
	}
	return a
}

// At is a value's place; values outside are drawn at the edge.
func (a Axis) At(v float64) float64 {
	v = math.Min(math.Max(v, a.Min), a.Max)
	share := (v - a.Min) / (a.Max - a.Min)
	if a.log {
		share = math.Log(v/a.Min) / math.Log(a.Max/a.Min)
	}
	return a.From + share*(a.To-a.From)
}

// Drawing is an SVG in the making. Colours come from the page's classes.
type Drawing struct {
	b             strings.Builder
	width, height float64
}

func New(width, height float64, title string) *Drawing {
	d := &Drawing{width: width, height: height}
	// On a narrow screen a page scrolls a figure rather than shrink its letters, which are of 11 units.
	d.Add(`<svg viewBox="0 0 %g %g" style="min-width: %gpx" role="img" aria-label="%s">`, width, height, math.Round(width*leastScale), html.EscapeString(title))
	return d
}

// leastScale is how much of its size a drawing keeps: letters have at least 8.8 pixels.
const leastScale = 0.8

func (d *Drawing) Add(format string, args ...any) { fmt.Fprintf(&d.b, format, args...) }

func (d *Drawing) Done() template.HTML {
	d.Add("</svg>")
	return template.HTML(d.b.String()) // #nosec G203: made here; all text is escaped by Text and Curve
}

func (d *Drawing) Text(x, y float64, class, s string) {
	d.Add(`<text x="%.1f" y="%.1f" class="%s">%s</text>`, x, y, class, html.EscapeString(s))
}

func (d *Drawing) Line(x1, y1, x2, y2 float64, class string) {
	d.Add(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" class="%s"/>`, x1, y1, x2, y2, class)
}

// Dot draws one, with what is said of it.
func (d *Drawing) Dot(x, y, r float64, class, tip string) {
	d.Add(`<circle cx="%.1f" cy="%.1f" r="%g" class="dot %s">`, x, y, r, class)
	if tip != "" {
		d.Add(`<title>%s</title>`, html.EscapeString(tip))
	}
	d.Add(`</circle>`)
}

// XAxis draws the ticks of a horizontal axis, with lines up to top.
func (d *Drawing) XAxis(a Axis, top, bottom float64, title string) {
	for _, t := range a.Ticks {
		d.Line(a.At(t.At), top, a.At(t.At), bottom, "grid")
		if t.Label != "" {
			d.Text(a.At(t.At), bottom+14, "tick mid", t.Label)
		}
	}
	d.Text((a.From+a.To)/2, bottom+29, "label mid", title)
}

// YAxis draws the ticks of a vertical axis, with lines to the right.
func (d *Drawing) YAxis(a Axis, left, right float64, title string) {
	for _, t := range a.Ticks {
		d.Line(left, a.At(t.At), right, a.At(t.At), "grid")
		if t.Label != "" {
			d.Text(left-6, a.At(t.At)+3.5, "tick end", t.Label)
		}
	}
	d.Text(left-30, a.To-9, "label", title)
}

// Point is a place in a drawing, with what is said of it.
type Point struct {
	X, Y float64
	Tip  string
}

// Curve draws a line through points, with a place to point at on each.
func (d *Drawing) Curve(points []Point, class string) {
	if len(points) == 0 {
		return
	}
	var s strings.Builder
	for _, p := range points {
		fmt.Fprintf(&s, "%.1f,%.1f ", p.X, p.Y)
	}
	d.Add(`<polyline points="%s" class="curve %s"/>`, strings.TrimSpace(s.String()), class)
	if len(points) == 1 { // a line from a point to itself is not drawn
		d.Dot(points[0].X, points[0].Y, 1.5, class, "")
	}
	for _, p := range points {
		if p.Tip != "" {
			d.Add(`<circle cx="%.1f" cy="%.1f" r="5" class="hit %s"><title>%s</title></circle>`, p.X, p.Y, class, html.EscapeString(p.Tip))
		}
	}
}
