package modes

import (
	"fmt"
	"html/template"
	"math"

	"github.com/quorate/quorate/bench/client"
	"github.com/quorate/quorate/bench/measure"
	"github.com/quorate/quorate/bench/plot"
	"github.com/quorate/quorate/bench/probe"
)

// modeClass and roleClass are the page's colours.
func modeClass(m probe.Mode) string  { return "m-" + string(m) }
func roleClass(r client.Role) string { return "r-" + string(r) }

// latencyRange is the range of what all figures of one kind share, so that they can be
// compared.
func (r *Report) latencyRange() (low, high float64) {
	low, high = math.Inf(1), 0
	for _, c := range r.Cells {
		if len(c.Latency.Curve) > 0 {
			low, high = min(low, c.Latency.Curve[0].Ms), max(high, c.Latency.MaxMs)
		}
	}
	return min(low, high), high
}

// ranges shows each mode's median, p99 and maximum on one node.
func (r *Report) ranges(node NodeReport) template.HTML {
	const left, right, rowHeight = 108.0, 352.0, 22.0
	low, high := math.Inf(1), 0.0
	for _, c := range r.Cells {
		if c.Latency.Count > 0 {
			low, high = min(low, c.Latency.P50Ms), max(high, c.Latency.MaxMs)
		}
	}
	var rows []CellReport
	for _, verb := range []Verb{Get, List} {
		for _, c := range r.Cells {
			if c.Node == node.Name && c.Verb == verb {
				rows = append(rows, c)
			}
		}
	}
	height := 20 + float64(len(rows)+2)*rowHeight + 36
	d := plot.New(360, height, "latency of each mode on "+node.Name)
	x := plot.LogAxis(min(low, high), high, left, right)
	bottom := height - 36
	d.XAxis(x, 4, bottom, "ms")
	y, verb := 4.0, Verb("")
	for _, c := range rows {
		if c.Verb != verb {
			y += rowHeight
			verb = c.Verb
			d.Text(4, y+1, "group", string(verb))
			if floor := r.cell(probe.Any, verb, node.Name); floor != nil {
				n := 0
				for _, o := range rows {
					if o.Verb == verb {
						n++
					}
				}
				d.Line(x.At(floor.Latency.P50Ms), y+4, x.At(floor.Latency.P50Ms), y+6+float64(n)*rowHeight, "floor")
			}
		}
		y += rowHeight
		l := c.Latency
		tip := fmt.Sprintf("%s %s on %s: p50 %s, p99 %s, p99.9 %s, max %s ms", c.Mode.Title(), c.Verb, c.Node, measure.Ms(l.P50Ms), measure.Ms(l.P99Ms), measure.Ms(l.P999Ms), measure.Ms(l.MaxMs))
		d.Add(`<g><title>%s</title>`, template.HTMLEscapeString(tip))
		d.Text(10, y-2, "row", c.Mode.Title())
		d.Line(x.At(l.P50Ms), y-6, x.At(l.MaxMs), y-6, "thin "+modeClass(c.Mode))
		d.Line(x.At(l.P50Ms), y-6, x.At(l.P99Ms), y-6, "thick "+modeClass(c.Mode))
		d.Add(`<circle cx="%.1f" cy="%.1f" r="4.5" class="dot %s"/></g>`, x.At(l.P50Ms), y-6, modeClass(c.Mode))
	}
	return d.Done()
}

// curves shows the latency of every percentile.
func (r *Report) curves(node NodeReport, verb Verb) template.HTML {
	const left, right, top, bottom = 42.0, 350.0, 20.0, 196.0
	low, high := r.latencyRange()
	d := plot.New(360, 232, fmt.Sprintf("latency by percentile: %s on %s", verb, node.Name))
	y := plot.LogAxis(low, high, bottom, top)
	highest := 0.0
	for _, c := range r.Cells {
		for _, p := range c.Latency.Curve {
			if p.Percentile < 100 {
				highest = max(highest, p.Percentile)
			}
		}
	}
	x := plot.NinesAxis(highest, left, right)
	d.YAxis(y, left, right, "ms")
	d.XAxis(x, top, bottom, "percentile")
	for _, c := range r.Cells {
		if c.Node != node.Name || c.Verb != verb {
			continue
		}
		var points []plot.Point
		for _, p := range c.Latency.Curve {
			if p.Percentile < 100 {
				points = append(points, plot.Point{X: x.At(plot.Nines(p.Percentile)), Y: y.At(p.Ms), Tip: fmt.Sprintf("%s: %g %% within %s ms", c.Mode.Title(), p.Percentile, measure.Ms(p.Ms))})
			}
		}
		points = append(points, plot.Point{X: x.At(x.Max), Y: y.At(c.Latency.MaxMs), Tip: fmt.Sprintf("%s: all within %s ms", c.Mode.Title(), measure.Ms(c.Latency.MaxMs))})
		d.Curve(points, modeClass(c.Mode))
	}
	return d.Done()
}

// tails shows how many Any answers lacked something acknowledged longer ago than
// each age.
func (r *Report) tails(verb Verb) template.HTML {
	const left, right, top, bottom = 46.0, 540.0, 20.0, 196.0
	high, least := 1.0, 1.0
	for _, c := range r.of(probe.Any) {
		high = max(high, c.Staleness.Age.MaxMs)
		if c.Latency.Count > 0 {
			least = min(least, 1/float64(c.Latency.Count))
		}
	}
	d := plot.New(550, 232, "staleness of Any "+string(verb))
	y := plot.LogAxis(least*100, 100, bottom, top)
	x := plot.LinearAxis(high, left, right)
	d.YAxis(y, left, right, "% of reads")
	d.XAxis(x, top, bottom, "staler than … ms")
	for _, c := range r.of(probe.Any) {
		if c.Verb != verb {
			continue
		}
		var points []plot.Point
		if c.Staleness.Stale == 0 {
			points = append(points, plot.Point{X: x.At(0), Y: y.At(y.Min), Tip: fmt.Sprintf("%s %s: never stale", c.Role, c.Node)}, plot.Point{X: x.At(0) + 24, Y: y.At(y.Min)})
		} else {
			points = append(points, plot.Point{X: x.At(0), Y: y.At(c.Staleness.Share * 100), Tip: fmt.Sprintf("%s %s: %.2f %% of reads were stale", c.Role, c.Node, c.Staleness.Share*100)})
		}
		for _, p := range c.Staleness.Age.Curve {
			if share := 100 - p.Percentile; p.Ms > 0 && share > 0 && share < c.Staleness.Share*100 {
				points = append(points, plot.Point{X: x.At(p.Ms), Y: y.At(share), Tip: fmt.Sprintf("%s %s: %.3g %% of reads were more than %s ms stale", c.Role, c.Node, share, measure.Ms(p.Ms))})
			}
		}
		if c.Staleness.Stale > 0 {
			points = append(points, plot.Point{X: x.At(c.Staleness.Age.MaxMs), Y: y.At(y.Min), Tip: fmt.Sprintf("%s %s: the stalest, %s ms", c.Role, c.Node, measure.Ms(c.Staleness.Age.MaxMs))})
		}
		d.Curve(points, roleClass(c.Role))
	}
	return d.Done()
}

// timeline shows the largest value of each part of the run, for get and list
// together, one line per node.
func (r *Report) timeline(mode probe.Mode, title string, value func(Slot) float64) template.HTML {
	const left, right, top, bottom = 46.0, 540.0, 20.0, 176.0
	d := plot.New(550, 212, title)
	high := 0.0
	for _, c := range r.of(mode) {
		for _, s := range c.Slots {
			high = max(high, value(s))
		}
	}
	y := plot.LinearAxis(high, bottom, top)
	x := plot.LinearAxis(r.Options.DurationSeconds, left, right)
	x.Max = max(r.Options.DurationSeconds, 1)
	d.YAxis(y, left, right, "ms, largest")
	d.XAxis(x, top, bottom, "seconds")
	for _, n := range r.measured() {
		var points []plot.Point
		for _, c := range r.of(mode) {
			if c.Node != n.Name {
				continue
			}
			for i, s := range c.Slots {
				if len(points) <= i {
					points = append(points, plot.Point{X: x.At(s.AtSeconds)})
				}
				points[i].Y = max(points[i].Y, value(s)) // still a value
			}
		}
		for i := range points {
			points[i].Y = y.At(points[i].Y)
		}
		d.Curve(points, "fine "+roleClass(n.Role))
	}
	return d.Done()
}

// costs shows what a Most Recent get is made of on each node.
func (r *Report) costs() template.HTML {
	const left, right, row = 116.0, 1010.0, 44.0
	height := float64(len(r.Costs))*row + 50
	d := plot.New(1110, height, "what a Most Recent get is made of")
	high := 0.0
	for _, c := range r.Costs {
		if floor := r.cell(probe.Any, Get, c.Node); floor != nil {
			high = max(high, floor.Latency.MeanMs+max(c.OverAnyMs, c.WaitIndexMs+c.WaitLogMs))
		}
	}
	x := plot.LinearAxis(high, left, right)
	d.XAxis(x, 4, height-42, "ms (means)")
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
			{"m-any", "Any: the floor", floor.Latency.MeanMs}, {"p-index", "wait for the index", c.WaitIndexMs},
			{"p-log", "wait for the log", c.WaitLogMs}, {"p-rest", "the rest", c.OverAnyMs - c.WaitIndexMs - c.WaitLogMs},
		} {
			if part.ms <= 0 {
				continue
			}
			d.Add(`<rect x="%.1f" y="%.1f" width="%.1f" height="26" class="bar %s"><title>%s: %s ms</title></rect>`, x.At(at), y, max(x.At(at+part.ms)-x.At(at)-1, 0.5), part.class, part.name, measure.Ms(part.ms))
			if w := x.At(at+part.ms) - x.At(at); w > 40 && part.class != "p-rest" {
				d.Text(x.At(at)+6, y+17, "in-bar", measure.Ms(part.ms))
			}
			at += part.ms
		}
		d.Text(x.At(at)+8, y+17, "tick", "+"+measure.Ms(c.OverAnyMs)+" over Any")
		// The round trip, from the floor on: what the index should cost.
		d.Line(x.At(floor.Latency.MeanMs+c.RoundTripMs), y-4, x.At(floor.Latency.MeanMs+c.RoundTripMs), y+30, "mark")
	}
	return d.Done()
}
