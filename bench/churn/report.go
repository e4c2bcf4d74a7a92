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
	{"files", "c-ink", func(s Sample) int64 { return s.most(func(n NodeSample) int64 { return n.Sum() }) }},
	{"state.db", "c-most-recent", func(s Sample) int64 { return s.most(func(n NodeSample) int64 { return n.State }) }},
	{"log", "c-not-older", func(s Sample) int64 { return s.most(func(n NodeSample) int64 { return n.Log }) }},
	{"resident memory", "c-exact", func(s Sample) int64 { return s.most(func(n NodeSample) int64 { return n.Resident }) }},
	{"live objects", "c-leader", func(s Sample) int64 { return s.LiveBytes }},
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

// Doc is the report for people.
func (r *Report) Doc() *report.Doc {
	said := fmt.Sprintf("%d writes to %d nodes by %d clients, around %d objects of %d to %d bytes: %.0f/s; %d answers asked to come again, %d writes failed",
		r.Written, r.Nodes, r.Clients, r.Objects, r.Smallest, r.Largest, float64(r.Written)/max(r.WriteSeconds, 1e-9), r.Again, r.Failures)
	b := report.Block{Table: report.Table{Head: []string{"MiB, of the node with most"}}}
	for _, x := range series {
		b.Table.Head = append(b.Table.Head, x.name)
	}
	add := func(name string, samples []Sample) {
		line := []string{name}
		for _, x := range series {
			var most int64
			for _, s := range samples {
				most = max(most, x.of(s))
			}
			line = append(line, fmt.Sprintf("%.1f", float64(most)/(1<<20)))
		}
		b.Table.Rows = append(b.Table.Rows, report.Row{Cells: line})
	}
	for i, part := range r.thirds() {
		add([]string{"first third, at most", "second third", "last third"}[i], part)
	}
	if n := len(r.Samples); n > 0 {
		s := r.Samples[n-1]
		add("in the end", r.Samples[n-1:])
		b.Texts = append(b.Texts, fmt.Sprintf("in the end %d objects of %d bytes; files take %.2f bytes for each of these", s.Objects, s.LiveBytes, float64(series[0].of(s))/float64(max(s.LiveBytes, 1))))
	}
	if r.FirstError != "" {
		b.Texts = append(b.Texts, "the first error: "+r.FirstError)
	}
	return &report.Doc{Head: &r.Head, Lines: []string{said}, Blocks: []report.Block{b}}
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
	c := plot.Chart{Title: "files and memory under churn", Width: 550, Height: 252, X: plot.Scale{Title: "minutes"}, Y: plot.Scale{Title: "MiB"}, Mark: plot.Tick{At: r.WriteSeconds / 60, Label: "the last write"}}
	for _, x := range series {
		line := plot.Line{Name: x.name, Class: "fine " + x.class}
		for _, s := range r.Samples {
			line.Values = append(line.Values, plot.Value{X: s.Seconds / 60, Y: float64(x.of(s)) / (1 << 20)})
		}
		c.Lines = append(c.Lines, line)
	}
	return plot.WriteSVG(w, c.Draw())
}
