package churn

import (
	"encoding/csv"
	"fmt"
	"io"

	"github.com/quorate/quorate/bench/plot"
	"github.com/quorate/quorate/bench/report"
)

// Schema names the form of the JSON. It changes when a field changes its meaning or goes; new fields may come.
const Schema = "quorate.bench.churn/v1"

// Report is one measurement.
type Report struct {
	report.Head

	Nodes        int     `json:"nodes"`
	Clients      int     `json:"clients"`
	Objects      int     `json:"objects"`
	Smallest     int     `json:"smallestBytes"`
	Largest      int     `json:"largestBytes"`
	Seed         uint64  `json:"seed"`
	Written      int64   `json:"writes"`
	WriteSeconds float64 `json:"writeSeconds"` // until the last write, or until it was stopped
	Again        int64   `json:"tooManyRequests"`
	Failures     int64   `json:"failures"`
	FirstError   string  `json:"firstError,omitempty"`
	Stopped      bool    `json:"stopped,omitempty"`

	Samples []Sample `json:"samples"`
}

// Sample is what there is at a moment.
type Sample struct {
	Seconds     float64      `json:"seconds"`
	Writes      int64        `json:"writes"`
	Objects     int64        `json:"objects"`
	LiveBytes   int64        `json:"liveBytes"`   // JSON of the objects, as answered
	StoredBytes int64        `json:"storedBytes"` // quorate_stored_bytes, with all other objects
	Nodes       []NodeSample `json:"nodes"`
}

// NodeSample is what a node takes.
type NodeSample struct {
	Name string `json:"name"`
	Files
	Resident int64 `json:"residentBytes"`
}

func (r *Report) add(s Sample) { r.Samples = append(r.Samples, s) }

// series are the columns of the table, and the curves. Of several nodes it is the one that takes most.
var series = []struct {
	name, class string
	of          func(Sample) int64
}{
	{"files", "m-all", func(s Sample) int64 { return s.most(func(n NodeSample) int64 { return n.Sum() }) }},
	{"state.db", "m-state", func(s Sample) int64 { return s.most(func(n NodeSample) int64 { return n.State }) }},
	{"log", "m-log", func(s Sample) int64 { return s.most(func(n NodeSample) int64 { return n.Log }) }},
	{"resident memory", "m-memory", func(s Sample) int64 { return s.most(func(n NodeSample) int64 { return n.Resident }) }},
	{"live objects", "m-live", func(s Sample) int64 { return s.LiveBytes }},
}

func (s Sample) most(of func(NodeSample) int64) (most int64) {
	for _, n := range s.Nodes {
		most = max(most, of(n))
	}
	return most
}

// line is a sample as a line of text, to show progress.
func (s Sample) line() string {
	text := fmt.Sprintf("%.0f s: %d writes, %d objects", s.Seconds, s.Writes, s.Objects)
	for _, x := range series {
		text += fmt.Sprintf(", %s %d MiB", x.name, x.of(s)>>20)
	}
	return text
}

// thirds are the samples while there were writes, in three parts by time.
func (r *Report) thirds() (parts [3][]Sample) {
	for _, s := range r.Samples {
		if s.Seconds <= r.WriteSeconds {
			i := min(2, int(3*s.Seconds/max(r.WriteSeconds, 1e-9)))
			parts[i] = append(parts[i], s)
		}
	}
	return parts
}

// Failed reports whether a write failed.
func (r *Report) Failed() bool { return r.Failures > 0 || r.Written == 0 }

// WriteJSON writes the report for programs.
func (r *Report) WriteJSON(w io.Writer) error { return report.WriteJSON(w, r) }

// WriteTable writes the report for a terminal.
func (r *Report) WriteTable(w io.Writer) error {
	fmt.Fprintf(w, "%s\n%s\n\n%d writes to %d nodes by %d clients, around %d objects of %d to %d bytes: %.0f/s; %d answers asked to come again, %d writes failed\n\n",
		r.Title(), r.Command, r.Written, r.Nodes, r.Clients, r.Objects, r.Smallest, r.Largest, float64(r.Written)/max(r.WriteSeconds, 1e-9), r.Again, r.Failures)
	head := []string{"MiB, of the node with most"}
	for _, x := range series {
		head = append(head, x.name)
	}
	row := func(name string, samples []Sample) []string {
		line := []string{name}
		for _, x := range series {
			var most int64
			for _, s := range samples {
				most = max(most, x.of(s))
			}
			line = append(line, fmt.Sprintf("%.1f", float64(most)/(1<<20)))
		}
		return line
	}
	var lines [][]string
	for i, part := range r.thirds() {
		lines = append(lines, row([]string{"first third, at most", "second third", "last third"}[i], part))
	}
	if n := len(r.Samples); n > 0 {
		lines = append(lines, row("in the end", r.Samples[n-1:]))
	}
	if err := report.WriteColumns(w, head, lines); err != nil {
		return err
	}
	if n := len(r.Samples); n > 0 {
		s := r.Samples[n-1]
		files := s.most(func(n NodeSample) int64 { return n.Sum() })
		fmt.Fprintf(w, "\nin the end %d objects of %d bytes; files take %.2f bytes for each of these\n", s.Objects, s.LiveBytes, float64(files)/float64(max(s.LiveBytes, 1)))
	}
	if r.FirstError != "" {
		fmt.Fprintf(w, "the first error: %s\n", r.FirstError)
	}
	return nil
}

// WriteCSV writes a line for each sample and node.
func (r *Report) WriteCSV(w io.Writer) error {
	c := csv.NewWriter(w)
	_ = c.Write([]string{"seconds", "writes", "objects", "live bytes", "stored bytes", "node", "state bytes", "log bytes", "spare bytes", "rest bytes", "resident bytes"}) // Error says
	for _, s := range r.Samples {
		for _, n := range s.Nodes {
			line := []string{fmt.Sprintf("%.1f", s.Seconds)}
			for _, v := range []any{s.Writes, s.Objects, s.LiveBytes, s.StoredBytes, n.Name, n.State, n.Log, n.Spare, n.Rest, n.Resident} {
				line = append(line, fmt.Sprint(v))
			}
			_ = c.Write(line)
		}
	}
	c.Flush()
	return c.Error()
}

// WriteSVG draws the samples: a curve for each column of the table, and a line where the writes ended.
func (r *Report) WriteSVG(w io.Writer) error {
	const left, right, top, bottom = 52.0, 540.0, 40.0, 216.0
	most, end := int64(0), 0.0
	for _, s := range r.Samples {
		end = s.Seconds
		for _, x := range series {
			most = max(most, x.of(s))
		}
	}
	d := plot.New(550, 252, "files and memory under churn")
	x, y := plot.LinearAxis(end/60, left, right), plot.LinearAxis(float64(most)/(1<<20), bottom, top)
	d.XAxis(x, top, bottom, "minutes")
	d.YAxis(y, left, right, "MiB")
	d.Line(x.At(r.WriteSeconds/60), top, x.At(r.WriteSeconds/60), bottom, "floor")
	at := left + 40
	for _, c := range series {
		var points []plot.Point
		for _, s := range r.Samples {
			points = append(points, plot.Point{X: x.At(s.Seconds / 60), Y: y.At(float64(c.of(s)) / (1 << 20))})
		}
		d.Curve(points, "fine "+c.class)
		d.Text(at, 14, "name "+c.class, c.name)
		at += 30 + 6*float64(len(c.name))
	}
	return plot.WriteSVG(w, d.Done(), classes)
}

// classes are the colours of the curves and of their names.
const classes = `.m-all { stroke: var(--ink); } .m-state { stroke: var(--most-recent); } .m-log { stroke: var(--not-older); } .m-memory { stroke: var(--exact); } .m-live { stroke: var(--leader); }
svg .name { stroke: none; font-weight: 600; } svg .name.m-all { fill: var(--ink); } svg .name.m-state { fill: var(--most-recent); } svg .name.m-log { fill: var(--not-older); } svg .name.m-memory { fill: var(--exact); } svg .name.m-live { fill: var(--leader); }`
