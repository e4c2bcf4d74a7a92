package plot

import (
	"strings"
	"testing"
)

func TestAxes(t *testing.T) {
	for _, c := range []struct {
		a     Axis
		ticks string
	}{
		{LogAxis(0.3, 17, 0, 100), "0.2 0.5 1 2 5 10 20"},
		{LogAxis(0.3, 1700, 0, 100), "0.2| 0.5| 1 2| 5| 10 20| 50| 100 200| 500| 1000 2000|"},
		{LogAxis(0, 0, 0, 100), "0.001 0.002"},
		{LinearAxis(17, 0, 100), "0 5 10 15 20"},
		{LinearAxis(0, 0, 100), "0 0.001 0.002 0.003 0.004"},
	} {
		var got []string
		for _, k := range c.a.Ticks {
			s := short(k.At)
			if k.Label == "" {
				s += "|"
			}
			got = append(got, s)
		}
		if text := strings.Join(got, " "); text != c.ticks {
			t.Errorf("ticks %s, want %s", text, c.ticks)
		}
		if c.a.At(c.a.Max) != 100 || c.a.At(c.a.Max*10) != 100 || c.a.At(c.a.Min) != 0 || c.a.At(-1) != 0 {
			t.Errorf("%+v: ends at %g and %g", c.a, c.a.At(c.a.Min), c.a.At(c.a.Max))
		}
	}
}
