package plot

import (
	"bytes"
	"encoding/xml"
	"html/template"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
)

// TestChart: what cannot be drawn is a gap, and no place of its own.
func TestChart(t *testing.T) {
	value := func(xy ...float64) (out []Value) {
		for i := 0; i < len(xy); i += 2 {
			out = append(out, Value{X: xy[i], Y: xy[i+1]})
		}
		return out
	}
	for _, c := range []struct {
		name  string
		chart Chart
		want  string // the points of all curves
	}{
		{"a line", Chart{Lines: []Line{{Values: value(0, 0, 10, 4)}}}, "50.0,164.0 340.0,20.0"},
		{"no number", Chart{Lines: []Line{{Values: value(0, 0, 5, math.NaN(), 10, 4)}}}, "50.0,164.0|340.0,20.0"},
		{"zero has no logarithm", Chart{Y: Scale{Log: true}, Lines: []Line{{Values: value(0, 1, 5, 0, 10, 10)}}}, "50.0,164.0|340.0,20.0"},
		{"beyond the end is at the edge", Chart{Y: Scale{End: 2}, Lines: []Line{{Values: value(0, 1, 10, 400)}}}, "50.0,92.0 340.0,20.0"},
		{"bounds that others need", Chart{Y: Scale{Max: 8}, Lines: []Line{{Values: value(0, 0, 10, 4)}}}, "50.0,164.0 340.0,92.0"},
		{"percentiles: the last is at the end", Chart{X: Scale{Nines: true}, Lines: []Line{{Values: value(0, 0, 90, 4, 100, 4)}}}, "50.0,164.0 189.4,20.0 340.0,20.0"},
		{"nothing", Chart{Notes: []string{"never"}}, ""},
	} {
		c.chart.Width, c.chart.Height = 360, 200
		var got []string
		drawn := string(c.chart.Draw())
		for _, x := range strings.Split(drawn, `<polyline points="`)[1:] {
			line, _, _ := strings.Cut(x, `"`)
			got = append(got, line)
		}
		if s := strings.Join(got, "|"); s != c.want {
			t.Errorf("%s: %s, want %s", c.name, s, c.want)
		}
		if strings.Contains(drawn, "NaN") || strings.Contains(drawn, "Inf") || len(c.chart.Notes) > 0 && !strings.Contains(drawn, ">never<") {
			t.Errorf("%s: %s", c.name, drawn)
		}
	}
}

// TestEnd: an axis that ends between two ticks has none beyond, and a point between two gaps is a dot.
func TestEnd(t *testing.T) {
	drawn := string(Chart{Width: 360, Height: 200, X: Scale{End: 5}, Lines: []Line{{Values: []Value{{X: 1, Y: math.NaN()}, {X: 2.5, Y: 4}, {X: 4, Y: math.NaN()}}}}}.Draw())
	if strings.Contains(drawn, ">6<") || !strings.Contains(drawn, ">4<") || !strings.Contains(drawn, `<circle cx="195.0" cy="20.0" r="1.5"`) {
		t.Error(drawn)
	}
}

// TestFile: a drawing as a file of its own is XML; a page may be read more kindly.
func TestFile(t *testing.T) {
	c := Chart{Title: `<a "b">`, Width: 360, Height: 200, Notes: []string{"x < y & z"}, Mark: Tick{At: 1, Label: "<k>"}, Areas: []Area{{0, 1, "<t>", "<tip>"}}, Lines: []Line{{Name: "<n>", Dots: true, Values: []Value{{X: 1, Y: 2, Tip: "<p>"}}}}}
	rows := []Range{{Group: true, Name: "<g>", Floor: 1}, {Name: "<r>", Tip: "<t>", From: 1, Most: 2, To: 3, Dots: []Value{{X: 1, Tip: "<d>"}}}}
	for _, drawing := range []template.HTML{c.Draw(), Ranges("<title>", "<ms>", 360, 100, rows)} {
		var b bytes.Buffer
		must.OK(t, WriteSVG(&b, drawing))
		for d := xml.NewDecoder(&b); ; {
			token, err := d.Token()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatalf("%v in\n%s", err, drawing)
			}
			seen := map[string]bool{}
			if e, ok := token.(xml.StartElement); ok {
				for _, a := range e.Attr {
					if seen[a.Name.Local] {
						t.Errorf("%s twice in a %s", a.Name.Local, e.Name.Local)
					}
					seen[a.Name.Local] = true
				}
			}
		}
	}
}
