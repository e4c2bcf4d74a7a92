package faults

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"

	"github.com/quorate/quorate/bench/measure"
	"github.com/quorate/quorate/bench/plot"
	"github.com/quorate/quorate/bench/report"
)

//go:embed page.html
var pageText string

var pageTemplate = report.Template(pageText)

// page is what the template shows.
type page struct {
	*Report
	Each      string
	Services  []shownService
	Faults    []faultCard
	Verdicts  []wordedVerdict
	Lost      []string
	Gaps      template.HTML
	Timelines []timelines
	Failures  []failure
}

// shownService is a service with its class in the page.
type shownService struct{ Class, Title, Colour string }

// faultCard is a fault with its table.
type faultCard struct {
	Fault, Victims, Came string
	Windows              []string
	Rows                 []faultRow
	Latencies            []faultRow // of a slow disk
}

type faultRow struct {
	shownService
	Cells []string
}

type wordedVerdict struct {
	report.Verdict
	Word string
}

// timelines are the figures of one repeat.
type timelines struct {
	Title   string
	Figures []report.Figure
	Open    bool
}

type failure struct {
	Kind, First string
	Count       int64
}

// shown is a service in the page; the colours of the read modes are those of the modes' page.
func (s service) shown() shownService {
	colours := [services]string{"write", "most-recent", "not-older", "any"}
	return shownService{"m-" + s.String(), s.title(), colours[s]}
}

// maxTimelines bounds how many repeats have their time lines drawn. The CSV has all.
const maxTimelines = 20

// WriteHTML writes the report as one page that needs nothing else: no scripts, no
// fonts, no network.
func (rep *Report) WriteHTML(w io.Writer) error {
	p := page{Report: rep, Each: rep.each(), Gaps: rep.gaps()}
	for s := range services {
		p.Services = append(p.Services, s.shown())
	}
	for i := range rep.Summary {
		p.Faults = append(p.Faults, rep.card(i))
	}
	for _, v := range rep.Verdicts {
		p.Verdicts = append(p.Verdicts, wordedVerdict{v, v.Word()})
	}
	for i, r := range rep.Repeats {
		for _, l := range r.Lost {
			p.Lost = append(p.Lost, fmt.Sprintf("repeat %d: %s", i+1, l))
		}
		if i < maxTimelines {
			p.Timelines = append(p.Timelines, timelines{Title: fmt.Sprintf("Repeat %d of %d", i+1, len(rep.Repeats)), Open: i == 0, Figures: []report.Figure{
				{Title: "Successes", Figure: rep.throughput(i)}, {Title: "Errors", Figure: rep.failures(i)}, {Title: "Latency, the longest in each bin", Figure: rep.latency(i)},
			}})
		}
	}
	for o := late; o < outcomes; o++ {
		if e, ok := rep.Errors[o.String()]; ok {
			p.Failures = append(p.Failures, failure{o.String(), e.First, e.Count})
		}
	}
	frame := report.Page{Name: "faults", Heading: "What clients see when nodes fail", Head: &rep.Head, Lines: []string{rep.loadLine()}, Body: p, Report: rep}
	return frame.Write(w, pageTemplate)
}

func (rep *Report) card(i int) faultCard {
	s := &rep.Summary[i]
	card := faultCard{Fault: s.Fault, Victims: rep.victims(i), Came: s.came(), Windows: rep.windows(i)}
	for service := range services {
		x := s.Services[service.String()]
		row := faultRow{shownService: service.shown(), Cells: []string{"–", "–", "–"}}
		if o := x.Others; o != nil {
			row.Cells = []string{o.Gap.text(), o.Recovered.text(), o.Errors.counts()}
		}
		row.Cells = append(row.Cells, x.Node.Gap.text(), x.Node.Recovered.text(), x.Node.Errors.counts(), measure.Ms(rep.quiet(service)))
		card.Rows = append(card.Rows, row)
		if s.Delayed != nil {
			card.Latencies = append(card.Latencies, faultRow{shownService: service.shown(), Cells: s.latencies(service)})
		}
	}
	return card
}

// The size of a time line.
const (
	lineWidth           = 1110.0
	lineHeight          = 190.0
	lineLeft, lineRight = 46.0, 1100.0
	lineTop, lineBottom = 20.0, 152.0
)

// timelineOf draws a figure of one repeat: the faults as areas, and a line per service.
func (rep *Report) timelineOf(repeat int, title, unit string, y plot.Axis, value func(b Bins, bin int) (float64, bool)) template.HTML {
	r := &rep.Repeats[repeat]
	d := plot.New(lineWidth, lineHeight, title)
	x := plot.LinearAxis(rep.Options.LengthSeconds, lineLeft, lineRight)
	x.Max = max(rep.Options.LengthSeconds, 1)
	for _, f := range r.Faults {
		from, to := x.At(f.AtSeconds), x.At(f.EndSeconds)
		tip := fmt.Sprintf("%s %s (%s) at %.1f s", f.Kind.with(f.How), f.Node, f.Role, f.AtSeconds)
		d.Add(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" class="fault"><title>%s</title></rect>`, from, lineTop, max(2, to-from), lineBottom-lineTop, template.HTMLEscapeString(tip))
		d.Text(from+3, lineTop-6, "tick", fmt.Sprintf("%s %s", f.Kind.with(f.How), f.Node))
	}
	d.YAxis(y, lineLeft, lineRight, unit)
	d.XAxis(x, lineTop, lineBottom, "seconds")
	for s := range services {
		b := r.Timeline.Services[s.String()]
		var points []plot.Point
		for i := range b.OK {
			v, ok := value(b, i)
			if !ok {
				d.Curve(points, "fine "+s.shown().Class)
				points = nil
				continue
			}
			points = append(points, plot.Point{X: x.At((float64(i) + 0.5) * r.Timeline.BinMs / 1000), Y: y.At(v)})
		}
		d.Curve(points, "fine "+s.shown().Class)
	}
	return d.Done()
}

// highest is the largest value of all bins of a repeat.
func (rep *Report) highest(repeat int, value func(b Bins, bin int) (float64, bool)) (high float64) {
	for _, b := range rep.Repeats[repeat].Timeline.Services {
		for i := range b.OK {
			v, _ := value(b, i)
			high = max(high, v)
		}
	}
	return high
}

func (rep *Report) throughput(repeat int) template.HTML {
	value := func(b Bins, i int) (float64, bool) {
		return float64(b.OK[i]) * 1000 / rep.Repeats[repeat].Timeline.BinMs, true
	}
	// A stall that ends answers much at once: it may leave the figure, so that the rest can be seen.
	usual := 0.0
	for s := range services {
		rate := rep.Options.Writes
		if s != writes {
			rate = rep.Options.Reads * float64(len(rep.Nodes))
		}
		usual = max(usual, rate)
	}
	high := min(rep.highest(repeat, value), 4*usual)
	return rep.timelineOf(repeat, "successes over the run", "per s", plot.LinearAxis(high, lineBottom, lineTop), value)
}

func (rep *Report) failures(repeat int) template.HTML {
	value := func(b Bins, i int) (float64, bool) {
		return float64(b.Errors[i]) * 1000 / rep.Repeats[repeat].Timeline.BinMs, true
	}
	return rep.timelineOf(repeat, "errors over the run", "per s", plot.LinearAxis(max(rep.highest(repeat, value), 1), lineBottom, lineTop), value)
}

func (rep *Report) latency(repeat int) template.HTML {
	value := func(b Bins, i int) (float64, bool) { return b.MaxMs[i], b.MaxMs[i] > 0 }
	low := math.Inf(1)
	for _, b := range rep.Repeats[repeat].Timeline.Services {
		for _, v := range b.MaxMs {
			if v > 0 {
				low = min(low, v)
			}
		}
	}
	high := rep.highest(repeat, value)
	return rep.timelineOf(repeat, "latency over the run", "ms", plot.LogAxis(min(low, max(high, 1)), high, lineBottom, lineTop), value)
}

// gaps shows the longest gap of each repeat, by fault and service, on the other nodes, or on
// the node itself if it is alone.
func (rep *Report) gaps() template.HTML {
	const left, right, rowHeight, groupHeight = 120.0, 1040.0, 18.0, 24.0
	height := 46.0
	for range rep.Summary {
		height += groupHeight + float64(services)*rowHeight
	}
	of := func(r ServiceReport) *Seen {
		if r.Others != nil {
			return r.Others
		}
		return &r.Node
	}
	low, high := math.Inf(1), 0.0
	for _, r := range rep.Repeats {
		for _, f := range r.Faults {
			for _, s := range f.Services {
				low, high = min(low, of(s).GapMs), max(high, of(s).GapMs)
			}
		}
	}
	d := plot.New(lineWidth, height, "longest time without a success")
	x := plot.LogAxis(max(1, min(low, high)), high, left, right)
	d.XAxis(x, 4, height-38, "ms without a success")
	y := 4.0
	for i, sum := range rep.Summary {
		y += groupHeight
		d.Text(4, y-6, "group", sum.Fault)
		for s := range services {
			y += rowHeight
			d.Text(14, y-6, "row", s.title())
			for k, r := range rep.Repeats {
				seen := of(r.Faults[i].Services[s.String()])
				d.Add(`<circle cx="%.1f" cy="%.1f" r="4" class="dot %s"><title>repeat %d: %s ms</title></circle>`, x.At(seen.GapMs), y-10, s.shown().Class, k+1, measure.Ms(seen.GapMs))
			}
		}
	}
	return d.Done()
}
