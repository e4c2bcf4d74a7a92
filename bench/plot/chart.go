package plot

import (
	"html/template"
	"math"
	"slices"
)

// Scale says what an axis shows. It covers the values that are drawn, and Min to Max, so that
// figures with the same bounds can be compared.
type Scale struct {
	Title    string
	Log      bool
	Nines    bool // percentiles, by Nines
	Min, Max float64
	// End ends the axis there, whatever there is to draw; values beyond it are at the edge.
	End float64
}

// Value is a point of a line. A Y that is not a number is a gap, and so is what a logarithm does not have.
type Value struct {
	X, Y float64
	Tip  string
}

// Line is a curve.
type Line struct {
	Name   string // stands above the figure, if there is one
	Class  string // "fine" beside the colour for many values
	Values []Value
	Dots   bool
}

// Area is a stretch of X.
type Area struct {
	From, To   float64
	Title, Tip string
}

// Chart is a figure with two axes.
type Chart struct {
	Title         string // for those who do not see it
	Width, Height float64
	X, Y          Scale
	Lines         []Line
	Areas         []Area
	Across        float64  // a dashed line at this value; zero: none
	Mark          Tick     // a line at this X, with a label; zero: none
	Proportion    Value    // from here on a dashed line grows as X does, as far as the figure goes; zero: none
	Notes         []string // what is said of lines that have no points
}

const (
	chartLeft, chartRight, chartTop, chartBottom = 50.0, 20.0, 20.0, 36.0
	noteHeight                                   = 15.0
)

// Draw draws the chart.
func (c Chart) Draw() template.HTML {
	d := New(c.Width, c.Height, c.Title)
	top, bottom := chartTop, c.Height-chartBottom
	if len(c.Areas) > 0 || c.Mark.Label != "" {
		top += 6 // their titles stand above
	}
	if slices.ContainsFunc(c.Lines, func(l Line) bool { return l.Name != "" }) {
		top += noteHeight
	}
	x, y := c.X.axis(chartLeft, c.Width-chartRight, c.all(func(v Value) float64 { return v.X })), c.Y.axis(bottom, top, c.all(func(v Value) float64 { return v.Y }))
	for _, a := range c.Areas {
		from, to := x.At(a.From), x.At(a.To)
		d.Add(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" class="area"><title>%s</title></rect>`, from, top, max(2, to-from), bottom-top, template.HTMLEscapeString(a.Tip))
		d.Text(from+3, top-6, "tick", a.Title)
	}
	d.YAxis(y, chartLeft, c.Width-chartRight, c.Y.Title)
	d.XAxis(x, top, bottom, c.X.Title)
	if c.Across != 0 {
		d.Line(chartLeft, y.At(c.Across), c.Width-chartRight, y.At(c.Across), "floor")
	}
	if c.Mark.At != 0 {
		d.Line(x.At(c.Mark.At), top-4, x.At(c.Mark.At), bottom, "mark")
		d.Text(x.At(c.Mark.At)-4, top-7, "tick end", c.Mark.Label)
	}
	if p := c.Proportion; p.X > 0 && p.Y > 0 {
		factor := min(x.Max/p.X, y.Max/p.Y)
		d.Line(x.At(p.X), y.At(p.Y), x.At(p.X*factor), y.At(p.Y*factor), "floor")
	}
	named := chartLeft + 40
	for _, l := range c.Lines {
		if l.Name != "" {
			d.Text(named, 14, "name "+l.Class, l.Name)
			named += 30 + 6*float64(len(l.Name))
		}
		var points []Point
		for _, v := range l.Values {
			if c.X.gap(v.X) || c.Y.gap(v.Y) {
				d.Curve(points, l.Class)
				points = nil
				continue
			}
			points = append(points, Point{X: x.At(c.X.place(v.X, x)), Y: y.At(v.Y), Tip: v.Tip})
			if last := &points[len(points)-1]; l.Dots {
				d.Dot(last.X, last.Y, 3, l.Class, "")
			}
		}
		d.Curve(points, l.Class)
	}
	for i, text := range c.Notes {
		d.Text(c.Width-chartRight-6, top+noteHeight*float64(i+1), "tick end", text)
	}
	return d.Done()
}

func (c *Chart) all(of func(Value) float64) (out []float64) {
	for _, l := range c.Lines {
		for _, v := range l.Values {
			out = append(out, of(v))
		}
	}
	return out
}

// gap reports whether a value cannot be drawn.
func (s Scale) gap(v float64) bool { return math.IsNaN(v) || s.Log && v <= 0 }

// place is where a value is on the axis.
func (s Scale) place(v float64, a Axis) float64 {
	switch {
	case s.Nines && v >= 100:
		return a.Max
	case s.Nines:
		return Nines(v)
	}
	return v
}

func (s Scale) axis(from, to float64, values []float64) Axis {
	low, high := math.Inf(1), s.Max
	if s.Min > 0 {
		low = s.Min
	}
	for _, v := range values {
		if !s.gap(v) && !(s.Nines && v >= 100) {
			low, high = min(low, v), max(high, v)
		}
	}
	if s.End > 0 {
		high = s.End
	}
	switch {
	case s.Nines:
		return NinesAxis(high, from, to)
	case s.Log:
		return LogAxis(min(low, max(high, 1)), high, from, to)
	}
	a := LinearAxis(high, from, to)
	if s.End > 0 {
		a.Max = s.End
		a.Ticks = slices.DeleteFunc(a.Ticks, func(t Tick) bool { return t.At > s.End }) // they would stand at the end
	}
	return a
}

// Range is a row of Ranges: what is thin goes from From to To, what is thick up to Most of it.
type Range struct {
	Name, Tip, Class string
	Group            bool // a heading; Floor is a dashed line through the rows below it
	Floor            float64
	Indent           float64
	From, Most, To   float64
	Dots             []Value // X, and what is said of it
}

// Ranges draws rows beside each other over one logarithmic axis.
func Ranges(title, unit string, width, left float64, rows []Range, bounds ...float64) template.HTML {
	const rowHeight, bottomHeight = 22.0, 36.0
	for _, r := range rows {
		if r.To > 0 {
			bounds = append(bounds, r.From, r.To)
		}
		for _, v := range r.Dots {
			bounds = append(bounds, v.X)
		}
	}
	height := float64(len(rows))*rowHeight + 12 + bottomHeight
	d := New(width, height, title)
	x := Scale{Log: true}.axis(left, width-20, bounds)
	bottom := height - bottomHeight
	d.XAxis(x, 4, bottom, unit)
	for i, r := range rows {
		y := 4 + rowHeight*float64(i+1)
		if r.Group {
			d.Text(4, y-2, "group", r.Name)
			if r.Floor > 0 {
				n := 0
				for i+n+1 < len(rows) && !rows[i+n+1].Group {
					n++
				}
				d.Line(x.At(r.Floor), y+2, x.At(r.Floor), y+4+rowHeight*float64(n), "floor")
			}
			continue
		}
		d.Add(`<g><title>%s</title>`, template.HTMLEscapeString(r.Tip))
		d.Text(10+r.Indent, y-2, "row", r.Name)
		if r.To > 0 {
			d.Line(x.At(r.From), y-6, x.At(r.To), y-6, "thin "+r.Class)
			d.Line(x.At(r.From), y-6, x.At(r.Most), y-6, "thick "+r.Class)
			d.Dot(x.At(r.From), y-6, 4.5, r.Class, "")
		}
		for _, v := range r.Dots {
			d.Dot(x.At(v.X), y-6, 4, r.Class, v.Tip)
		}
		d.Add(`</g>`)
	}
	return d.Done()
}
