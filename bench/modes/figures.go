package modes

import (
	"fmt"
	"html/template"
	"math"
)

// class is the page's colour of a mode or a role.
func (m Mode) class() string { return "m-" + string(m) }
func (r Role) class() string { return "r-" + string(r) }

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
	d := newDrawing(360, height, "latency of each mode on "+node.Name)
	x := logAxis(min(low, high), high, left, right)
	bottom := height - 36
	d.xAxis(x, 4, bottom, "ms")
	y, verb := 4.0, Verb("")
	for _, c := range rows {
		if c.Verb != verb {
			y += rowHeight
			verb = c.Verb
			d.text(4, y+1, "group", string(verb))
			if floor := r.cell(Any, verb, node.Name); floor != nil {
				n := 0
				for _, o := range rows {
					if o.Verb == verb {
						n++
					}
				}
				d.line(x.at(floor.Latency.P50Ms), y+4, x.at(floor.Latency.P50Ms), y+6+float64(n)*rowHeight, "floor")
			}
		}
		y += rowHeight
		l := c.Latency
		tip := fmt.Sprintf("%s %s on %s: p50 %s, p99 %s, p99.9 %s, max %s ms", titles[c.Mode], c.Verb, c.Node, ms(l.P50Ms), ms(l.P99Ms), ms(l.P999Ms), ms(l.MaxMs))
		d.add(`<g><title>%s</title>`, template.HTMLEscapeString(tip))
		d.text(10, y-2, "row", titles[c.Mode])
		d.line(x.at(l.P50Ms), y-6, x.at(l.MaxMs), y-6, "thin "+c.Mode.class())
		d.line(x.at(l.P50Ms), y-6, x.at(l.P99Ms), y-6, "thick "+c.Mode.class())
		d.add(`<circle cx="%.1f" cy="%.1f" r="4.5" class="dot %s"/></g>`, x.at(l.P50Ms), y-6, c.Mode.class())
	}
	return d.done()
}

// nines maps a percentile to a length in which each nine is as long as the last.
func nines(p float64) float64 { return -math.Log10(max(1-p/100, 1e-9)) }

// curves shows the latency of every percentile.
func (r *Report) curves(node NodeReport, verb Verb) template.HTML {
	const left, right, top, bottom = 42.0, 350.0, 20.0, 196.0
	low, high := r.latencyRange()
	d := newDrawing(360, 232, fmt.Sprintf("latency by percentile: %s on %s", verb, node.Name))
	y := logAxis(low, high, bottom, top)
	most := nines(99)
	for _, c := range r.Cells {
		for _, p := range c.Latency.Curve {
			if p.Percentile < 100 {
				most = max(most, nines(p.Percentile))
			}
		}
	}
	x := axis{min: 0, max: most * 1.04, from: left, to: right}
	for _, p := range []float64{0, 50, 90, 99, 99.9, 99.99, 99.999} {
		if nines(p) <= x.max {
			x.ticks = append(x.ticks, tick{nines(p), fmt.Sprintf("%g", p)})
		}
	}
	d.yAxis(y, left, right, "ms")
	d.xAxis(x, top, bottom, "percentile")
	for _, c := range r.Cells {
		if c.Node != node.Name || c.Verb != verb {
			continue
		}
		var points []xy
		for _, p := range c.Latency.Curve {
			if p.Percentile < 100 {
				points = append(points, xy{x.at(nines(p.Percentile)), y.at(p.Ms), fmt.Sprintf("%s: %g %% within %s ms", titles[c.Mode], p.Percentile, ms(p.Ms))})
			}
		}
		points = append(points, xy{x.at(x.max), y.at(c.Latency.MaxMs), fmt.Sprintf("%s: all within %s ms", titles[c.Mode], ms(c.Latency.MaxMs))})
		d.curve(points, c.Mode.class())
	}
	return d.done()
}

// tails shows how many Any answers lacked something acknowledged longer ago than
// each age.
func (r *Report) tails(verb Verb) template.HTML {
	const left, right, top, bottom = 46.0, 540.0, 20.0, 196.0
	high, least := 1.0, 1.0
	for _, c := range r.of(Any) {
		high = max(high, c.Staleness.Age.MaxMs)
		if c.Latency.Count > 0 {
			least = min(least, 1/float64(c.Latency.Count))
		}
	}
	d := newDrawing(550, 232, "staleness of Any "+string(verb))
	y := logAxis(least*100, 100, bottom, top)
	x := linearAxis(high, left, right)
	d.yAxis(y, left, right, "% of reads")
	d.xAxis(x, top, bottom, "staler than … ms")
	for _, c := range r.of(Any) {
		if c.Verb != verb {
			continue
		}
		var points []xy
		if c.Staleness.Stale == 0 {
			points = append(points, xy{x: x.at(0), y: y.at(y.min), tip: fmt.Sprintf("%s %s: never stale", c.Role, c.Node)}, xy{x: x.at(0) + 24, y: y.at(y.min)})
		} else {
			points = append(points, xy{x.at(0), y.at(c.Staleness.Share * 100), fmt.Sprintf("%s %s: %.2f %% of reads were stale", c.Role, c.Node, c.Staleness.Share*100)})
		}
		for _, p := range c.Staleness.Age.Curve {
			if share := 100 - p.Percentile; p.Ms > 0 && share > 0 && share < c.Staleness.Share*100 {
				points = append(points, xy{x.at(p.Ms), y.at(share), fmt.Sprintf("%s %s: %.3g %% of reads were more than %s ms stale", c.Role, c.Node, share, ms(p.Ms))})
			}
		}
		if c.Staleness.Stale > 0 {
			points = append(points, xy{x.at(c.Staleness.Age.MaxMs), y.at(y.min), fmt.Sprintf("%s %s: the stalest, %s ms", c.Role, c.Node, ms(c.Staleness.Age.MaxMs))})
		}
		d.curve(points, c.Role.class())
	}
	return d.done()
}

// timeline shows the largest value of each part of the run, for get and list
// together, one line per node.
func (r *Report) timeline(mode Mode, title string, value func(Slot) float64) template.HTML {
	const left, right, top, bottom = 46.0, 540.0, 20.0, 176.0
	d := newDrawing(550, 212, title)
	high := 0.0
	for _, c := range r.of(mode) {
		for _, s := range c.Slots {
			high = max(high, value(s))
		}
	}
	y := linearAxis(high, bottom, top)
	x := linearAxis(r.Options.DurationSeconds, left, right)
	x.max = max(r.Options.DurationSeconds, 1)
	d.yAxis(y, left, right, "ms, largest")
	d.xAxis(x, top, bottom, "seconds")
	for _, n := range r.measured() {
		var points []xy
		for _, c := range r.of(mode) {
			if c.Node != n.Name {
				continue
			}
			for i, s := range c.Slots {
				if len(points) <= i {
					points = append(points, xy{x: x.at(s.AtSeconds)})
				}
				points[i].y = max(points[i].y, value(s)) // still a value
			}
		}
		for i := range points {
			points[i].y = y.at(points[i].y)
		}
		d.curve(points, "fine "+n.Role.class())
	}
	return d.done()
}

// costs shows what a Most Recent get is made of on each node.
func (r *Report) costs() template.HTML {
	const left, right, row = 116.0, 1010.0, 44.0
	height := float64(len(r.Costs))*row + 50
	d := newDrawing(1110, height, "what a Most Recent get is made of")
	high := 0.0
	for _, c := range r.Costs {
		if floor := r.cell(Any, Get, c.Node); floor != nil {
			high = max(high, floor.Latency.MeanMs+max(c.OverAnyMs, c.WaitIndexMs+c.WaitLogMs))
		}
	}
	x := linearAxis(high, left, right)
	d.xAxis(x, 4, height-42, "ms (means)")
	for i, c := range r.Costs {
		floor := r.cell(Any, Get, c.Node)
		if floor == nil {
			continue
		}
		y, at := 10+float64(i)*row, 0.0
		d.text(4, y+19, "row", fmt.Sprintf("%s %s", c.Role, c.Node))
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
			d.add(`<rect x="%.1f" y="%.1f" width="%.1f" height="26" class="bar %s"><title>%s: %s ms</title></rect>`, x.at(at), y, max(x.at(at+part.ms)-x.at(at)-1, 0.5), part.class, part.name, ms(part.ms))
			if w := x.at(at+part.ms) - x.at(at); w > 40 && part.class != "p-rest" {
				d.text(x.at(at)+6, y+17, "in-bar", ms(part.ms))
			}
			at += part.ms
		}
		d.text(x.at(at)+8, y+17, "tick", "+"+ms(c.OverAnyMs)+" over Any")
		// The round trip, from the floor on: what the index should cost.
		d.line(x.at(floor.Latency.MeanMs+c.RoundTripMs), y-4, x.at(floor.Latency.MeanMs+c.RoundTripMs), y+30, "mark")
	}
	return d.done()
}
