package modes

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	"github.com/quorate/quorate/bench/client"
	"github.com/quorate/quorate/bench/measure"
	"github.com/quorate/quorate/bench/probe"
	"github.com/quorate/quorate/bench/report"
)

//go:embed page.html
var pageText string

var pageTemplate = report.Template(pageText)

// page is what the template shows.
type page struct {
	*Report
	Colours                []colour
	Modes                  []modeCard
	Verdicts               []wordedVerdict
	ModeLegend, RoleLegend []colour
	Ranges, Curves         []report.Figure
	Tails, Timelines       []report.Figure
	Costs                  template.HTML
	Rows                   []tableRow
	Staleness, Monotonic   table
}

// colour is a class and the name of the page's variable for it, or the legend's text.
type colour struct{ Class, Name string }

type modeCard struct {
	Class, Title, P50, P99, Text string
}

type wordedVerdict struct {
	probe.Verdict
	Word string
}

// table is one of texts.
type table struct {
	Head  []string
	Lines [][]string
}

type tableRow struct {
	First       bool
	Node, Verb  string
	Class, Mode string
	Cells       []string
}

// WriteHTML writes the report as one page that needs nothing else: no scripts, no
// fonts, no network.
func (r *Report) WriteHTML(w io.Writer) error {
	p := page{
		Report:  r,
		Colours: []colour{{"p-index", "index"}, {"p-log", "log"}, {"p-rest", "rest"}, {"p-mark", "mark"}},
	}
	for _, m := range AllModes {
		p.Colours = append(p.Colours, colour{modeClass(m), string(m)})
		if len(r.of(m)) > 0 {
			p.ModeLegend = append(p.ModeLegend, colour{modeClass(m), m.Title()})
			p.Modes = append(p.Modes, r.card(m))
		}
	}
	for _, role := range AllRoles {
		p.Colours = append(p.Colours, colour{roleClass(role), string(role)})
	}
	for _, v := range r.Verdicts {
		p.Verdicts = append(p.Verdicts, wordedVerdict{v, v.Word()})
	}
	p.Staleness.Head, p.Monotonic.Head, p.Monotonic.Lines = stalenessHead, monotonicHead, r.monotonicLines()
	for _, c := range r.staleness() {
		p.Staleness.Lines = append(p.Staleness.Lines, c.line())
	}
	r.figures(&p)
	for i, c := range r.Cells {
		p.Rows = append(p.Rows, c.tableRow(i == 0 || r.Cells[i-1].Node != c.Node || r.Cells[i-1].Verb != c.Verb))
	}
	frame := report.Page{
		Name: "read modes", Heading: "What each read mode costs, and how fresh its answers are", Head: &r.Head, Lines: strings.Split(r.loadLine(), "\n"), Body: p, Report: r,
	}
	return frame.Write(w, pageTemplate)
}

func (r *Report) figures(p *page) {
	for _, verb := range []Verb{Get, List} {
		for _, n := range r.measured() {
			name := fmt.Sprintf("%s %s", n.Role, n.Name)
			p.Curves = append(p.Curves, report.Figure{Title: fmt.Sprintf("%s, %s", name, verb), Figure: r.curves(n, verb)})
			if verb == Get {
				p.Ranges = append(p.Ranges, report.Figure{Title: name, Figure: r.ranges(n)})
				p.RoleLegend = append(p.RoleLegend, colour{roleClass(n.Role), name})
			}
		}
		if len(r.of(probe.Any)) > 0 {
			p.Tails = append(p.Tails, report.Figure{Title: string(verb), Figure: r.tails(verb)})
		}
	}
	if len(r.of(probe.Any)) > 0 {
		p.Timelines = append(p.Timelines, report.Figure{Title: "Staleness of Any", Figure: r.timeline(probe.Any, "staleness of Any over the run", func(s Slot) float64 { return s.MaxAgeMs })})
	}
	if len(r.of(probe.MostRecent)) > 0 {
		p.Timelines = append(p.Timelines, report.Figure{Title: "Latency of Most Recent", Figure: r.timeline(probe.MostRecent, "latency of Most Recent over the run", func(s Slot) float64 { return s.MaxLatencyMs })})
	}
	if len(r.of(probe.MostRecent)) > 0 && len(r.of(probe.Any)) > 0 {
		p.Costs = r.costs()
	}
}

// measured are the nodes whose reads were measured, in the order of the cells.
func (r *Report) measured() []NodeReport {
	var out []NodeReport
	for _, c := range r.Cells {
		known := func(n NodeReport) bool { return n.Name == c.Node }
		if i := slices.IndexFunc(r.Nodes, known); i >= 0 && !slices.ContainsFunc(out, known) {
			out = append(out, r.Nodes[i])
		}
	}
	return out
}

// card sums a mode up in a sentence, with the latencies of a follower, or of the
// first node if none was measured.
func (r *Report) card(m probe.Mode) modeCard {
	cells := r.of(m)
	shown := cells[0]
	for _, role := range []client.Role{client.Follower} {
		for i := len(cells) - 1; i >= 0; i-- {
			// The get, where there is one: cells have gets first.
			if cells[i].Role == role && (shown.Role != role || cells[i].Verb == Get) {
				shown = cells[i]
			}
		}
	}
	card := modeCard{Class: modeClass(m), Title: m.Title(), P50: measure.Ms(shown.Latency.P50Ms), P99: measure.Ms(shown.Latency.P99Ms)}
	var reads, stale, versions int64
	worst := 0.0
	for _, c := range cells {
		reads, stale = reads+c.Latency.Count, stale+c.Staleness.Stale
		versions, worst = max(versions, c.Staleness.VersionsMax), max(worst, c.Staleness.Age.MaxMs)
	}
	card.Text = fmt.Sprintf("%s on the %s. ", shown.Verb, shown.Role)
	if shown.OverAny != nil {
		card.Text += fmt.Sprintf("%s ms over Any (p50). ", signed(shown.OverAny.P50Ms))
	}
	if stale == 0 {
		card.Text += fmt.Sprintf("Never stale in %d reads on all nodes.", reads)
	} else {
		card.Text += fmt.Sprintf("%.2g %% of %d reads on all nodes were stale, by at most %d versions and %s ms.", 100*float64(stale)/float64(reads), reads, versions, measure.Ms(worst))
	}
	return card
}

func (c *CellReport) tableRow(first bool) tableRow {
	l, s := c.Latency, c.Staleness
	row := tableRow{First: first, Node: fmt.Sprintf("%s %s", c.Role, c.Node), Verb: string(c.Verb), Class: modeClass(c.Mode), Mode: c.Mode.Title()}
	over50, over99, said := "", "", ""
	if c.OverAny != nil {
		over50, over99 = signed(c.OverAny.P50Ms), signed(c.OverAny.P99Ms)
	}
	if s.Said != nil {
		said = fmt.Sprintf("≤ %.0f", s.Said.MaxMs)
	}
	row.Cells = []string{
		fmt.Sprint(l.Count), measure.Ms(l.P50Ms), measure.Ms(l.P99Ms), measure.Ms(l.P999Ms), measure.Ms(l.MaxMs), over50, over99,
		share(s), fmt.Sprint(s.VersionsP99), fmt.Sprint(s.VersionsMax), measure.Ms(s.Age.P99Ms), measure.Ms(s.Age.MaxMs), said,
	}
	return row
}
