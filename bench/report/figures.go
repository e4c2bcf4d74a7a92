package report

import (
	"fmt"
	"html/template"

	"github.com/quorate/quorate/bench/measure"
	"github.com/quorate/quorate/bench/plot"
)

// Timed is how long things of one name took.
type Timed struct {
	Name, Class string
	measure.Latency
}

// Range is a row of plot.Ranges: the median, the 99th percentile and the longest.
func (t Timed) Range() plot.Range {
	r := plot.Range{Name: t.Name, Class: t.Class, From: t.P50Ms, Most: t.P99Ms, To: t.MaxMs}
	r.Tip = fmt.Sprintf("%s: p50 %s, p99 %s, p99.9 %s, max %s ms", t.Name, measure.Ms(t.P50Ms), measure.Ms(t.P99Ms), measure.Ms(t.P999Ms), measure.Ms(t.MaxMs))
	return r
}

// Percentiles draws how long each percentile took. Each nine has the same width. All figures of all can be compared.
func Percentiles(title string, shown, all []Timed) template.HTML {
	c := plot.Chart{Title: "latency by percentile: " + title, Width: 360, Height: 232, X: plot.Scale{Title: "percentile", Nines: true}, Y: plot.Scale{Title: "ms", Log: true}}
	for _, t := range all {
		for i, p := range t.Curve {
			if c.Y.Max = max(c.Y.Max, p.Ms); c.Y.Min == 0 || i == 0 && p.Ms < c.Y.Min {
				c.Y.Min = p.Ms
			}
			if p.Percentile < 100 {
				c.X.Max = max(c.X.Max, p.Percentile)
			}
		}
	}
	for _, t := range shown {
		line := plot.Line{Class: t.Class}
		for _, p := range t.Curve {
			line.Values = append(line.Values, plot.Value{X: p.Percentile, Y: p.Ms, Tip: fmt.Sprintf("%s: %g %% within %s ms", t.Name, p.Percentile, measure.Ms(p.Ms))})
		}
		c.Lines = append(c.Lines, line)
	}
	return c.Draw()
}

// Times are the percentiles as cells of a table.
func Times(l measure.Latency) (cells []string) {
	for _, ms := range []float64{l.P50Ms, l.P90Ms, l.P99Ms, l.P999Ms, l.MaxMs} {
		cells = append(cells, measure.Ms(ms))
	}
	return cells
}
