package compare

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/quorate/quorate/bench/measure"
	"github.com/quorate/quorate/bench/report"
)

// Schema names the form of the JSON.
const Schema = "quorate.bench.compare/v1"

// Comparison is of one set with those that came after it.
type Comparison struct {
	Schema string `json:"schema"`
	// Names are the sets, the first of which the others are compared with; Runs how many
	// values the figure with most of them has.
	Names    []string `json:"names"`
	Runs     []int    `json:"runs"`
	Warnings []string `json:"warnings,omitempty"`
	Lines    []Line   `json:"figures"`
}

// Line is one figure in two sets.
type Line struct {
	Row    string  `json:"row"`
	Figure string  `json:"figure"`
	With   string  `json:"with"` // name of the other set
	A      float64 `json:"medianA"`
	B      float64 `json:"medianB"`
	RunsA  int     `json:"runsA"`
	RunsB  int     `json:"runsB"`
	// Difference is of B to A: a share of A, or, if a value is zero or less, in the figure's
	// unit. It is absent if there are too few runs for an interval.
	Difference *Interval `json:"difference,omitempty"`
	Absolute   bool      `json:"absolute,omitempty"`
	Verdict    Verdict   `json:"verdict"`
}

// Verdict is what can be told of a figure.
type Verdict string

// The verdicts.
const (
	Same   Verdict = "no difference that can be told"
	Better Verdict = "better"
	Worse  Verdict = "WORSE"
	TooFew Verdict = "too few runs to tell"
)

// LeastRuns is how many runs of each set there must be to tell anything.
const LeastRuns = 4

// Compare compares the first set with each of the others.
func Compare(sets []*Set) (*Comparison, error) {
	c := &Comparison{Schema: Schema}
	for _, s := range sets {
		most := 0
		for _, x := range s.series {
			most = max(most, len(x.values))
		}
		c.Names, c.Runs = append(c.Names, s.Name), append(c.Runs, most)
	}
	a := sets[0]
	for _, b := range sets[1:] {
		var onlyA, onlyB []string
		for _, x := range a.series {
			y := b.find(x)
			if y == nil {
				onlyA = append(onlyA, x.row+" "+x.figure)
				continue
			}
			c.Lines = append(c.Lines, line(b.Name, x, y))
		}
		for _, y := range b.series {
			if a.find(y) == nil {
				onlyB = append(onlyB, y.row+" "+y.figure)
			}
		}
		c.onlyIn(a.Name, onlyA)
		c.onlyIn(b.Name, onlyB)
	}
	c.provenance(sets)
	if len(c.Lines) == 0 {
		return nil, fmt.Errorf("%s have no figure in common", strings.Join(c.Names, " and "))
	}
	return c, nil
}

// find is the same figure in another set, or nil.
func (s *Set) find(like *series) *series { return s.index[[2]string{like.row, like.figure}] }

func (c *Comparison) warn(format string, args ...any) {
	c.Warnings = append(c.Warnings, fmt.Sprintf(format, args...))
}

func (c *Comparison) onlyIn(name string, figures []string) {
	const shown = 5
	if n := len(figures); n > shown {
		figures = append(figures[:shown:shown], fmt.Sprintf("%d more", n-shown))
	}
	if len(figures) > 0 {
		c.warn("only %s has %s", name, strings.Join(figures, ", "))
	}
}

// provenance warns of what makes figures differ beside what was changed.
func (c *Comparison) provenance(sets []*Set) {
	for _, what := range []string{"machine", "settings", "commit"} {
		same := true
		for _, s := range sets {
			slices.Sort(s.said[what])
			same = same && slices.Equal(s.said[what], sets[0].said[what])
			if len(s.said[what]) > 1 {
				c.warn("%s is of more than one %s: %s", s.Name, what, strings.Join(s.said[what], "; "))
			}
		}
		if same {
			continue
		}
		var each []string
		for _, s := range sets {
			each = append(each, fmt.Sprintf("%s: %s", s.Name, strings.Join(s.said[what], "; ")))
		}
		c.warn("the %s differ: %s", map[string]string{"machine": "machines", "settings": "settings", "commit": "commits"}[what], strings.Join(each, " · "))
	}
}

// line compares a figure.
func line(with string, a, b *series) Line {
	sorted := func(v []float64) []float64 { return slices.Sorted(slices.Values(v)) }
	x, y := sorted(a.values), sorted(b.values)
	l := Line{Row: a.row, Figure: a.figure, With: with, A: measure.Median(x), B: measure.Median(y), RunsA: len(x), RunsB: len(y), Verdict: TooFew}
	differ := relative
	if l.Absolute = x[0] <= 0 || y[0] <= 0; l.Absolute {
		differ = absolute
	}
	i, ok := shift(x, y, differ)
	if !ok {
		return l
	}
	l.Difference = &i
	switch {
	case i.Low <= 0 && i.High >= 0:
		l.Verdict = Same
	case (i.Estimate > 0) == (a.better == higher):
		l.Verdict = Better
	default:
		l.Verdict = Worse
	}
	return l
}

// WorseThan are the figures that are worse by more than a share. One whose difference has no
// share, since it was zero before, is worse by more than any.
func (c *Comparison) WorseThan(share float64) (out []Line) {
	for _, l := range c.Lines {
		if l.Verdict == Worse && (l.Absolute || max(l.Difference.Estimate, -l.Difference.Estimate) > share) {
			out = append(out, l)
		}
	}
	return out
}

// Untold are the figures of which nothing can be told.
func (c *Comparison) Untold() (out []Line) {
	return slices.DeleteFunc(slices.Clone(c.Lines), func(l Line) bool { return l.Verdict != TooFew })
}

// WriteTable writes the comparison for a terminal.
func (c *Comparison) WriteTable(w io.Writer) error {
	out := bufio.NewWriter(w)
	for _, text := range c.Warnings {
		fmt.Fprintf(out, "WARNING: %.1000s\n", text)
	}
	for i, with := range c.Names[1:] {
		fmt.Fprintf(out, "\nA: %s (%d runs)\nB: %s (%d runs)\n\n", c.Names[0], c.Runs[0], with, c.Runs[i+1])
		var lines [][]string
		for _, l := range c.Lines {
			if l.With != with {
				continue
			}
			difference, interval := "", ""
			if d := l.Difference; d != nil {
				difference, interval = l.number(d.Estimate), fmt.Sprintf("%s to %s", l.number(d.Low), l.number(d.High))
			}
			lines = append(lines, []string{l.Row, l.Figure, short(l.A), short(l.B), difference, interval, string(l.Verdict)})
		}
		if err := report.WriteColumns(out, []string{"row", "figure", "A", "B", "difference", "95 % interval", ""}, lines); err != nil {
			return err
		}
	}
	told := len(c.Lines) - len(c.Untold())
	if told > 0 {
		fmt.Fprintf(out, "\nA, B: medians. Difference: the median of all between a run of A and one of B.\nOf %d figures without a difference, %.1f would be said to have one by chance.\n", told, float64(told)*(1-confidence))
	}
	if told < len(c.Lines) {
		fmt.Fprintf(out, "\n%d figures have too few runs: %d of each are needed to tell anything with a confidence of 95 %%.\n", len(c.Lines)-told, LeastRuns)
	}
	return out.Flush()
}

func (l *Line) number(d float64) string {
	if l.Absolute {
		return fmt.Sprintf("%+.3g", d)
	}
	return fmt.Sprintf("%+.1f %%", 100*d)
}

// short prints about three digits.
func short(f float64) string {
	if f >= 1000 || f <= -1000 {
		return fmt.Sprintf("%.0f", f)
	}
	return fmt.Sprintf("%.3g", f)
}
