package scale

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/quorate/quorate/bench/measure"
	"github.com/quorate/quorate/bench/report"
)

// Schema names the form of the JSON. It changes when a field changes its meaning or goes; new
// fields may come.
const Schema = "quorate.bench.scale/v2"

// Report is what was measured.
type Report struct {
	report.Head

	Point     string      `json:"point"`
	What      string      `json:"what"`
	Unit      string      `json:"unit"`
	Full      int         `json:"full"`
	Seconds   float64     `json:"durationSeconds"` // of a row that goes on for a time
	Gets      float64     `json:"otherGetsPerSecond"`
	Published []Published `json:"published,omitempty"`
	Sizes     []Size      `json:"sizes"`
	Growth    []Growth    `json:"growth,omitempty"`
}

// Size is one number of objects.
type Size struct {
	N    int   `json:"n"`
	Rows []Row `json:"rows"`
}

// Row is one thing that was measured.
type Row struct {
	ID         string          `json:"row"` // short, for files and programs
	Name       string          `json:"name"`
	Count      int64           `json:"count"`
	Errors     int64           `json:"errors"`
	FirstError string          `json:"firstError,omitempty"`
	Seconds    float64         `json:"seconds"`
	Bytes      int64           `json:"bytes,omitempty"`
	CPUSeconds float64         `json:"cpuSeconds"` // of all nodes; of what happens to one node, that node's
	MemoryMiB  []float64       `json:"memoryMiB"`  // resident, behind the row, per node
	Latency    measure.Latency `json:"latency"`
	// Other is of the other client's gets meanwhile.
	Other       measure.Latency `json:"other"`
	OtherErrors int64           `json:"otherErrors"`
	// Figures are what else was measured.
	Figures []Figure `json:"figures,omitempty"`

	latency measure.Histogram // nil of what happened once
}

// Figure is one of a row that others do not have.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit,omitempty"`
}

func (f Figure) String() string {
	text := strconv.FormatFloat(f.Value, 'f', 0, 64)
	if math.Abs(f.Value) < 100 {
		text = strconv.FormatFloat(f.Value, 'g', 3, 64)
	}
	return strings.TrimSpace(f.Name + " " + text + " " + f.Unit)
}

// besides are a row's own figures in a line; empty without any.
func (r *Row) besides() string {
	var texts []string
	for _, f := range r.Figures {
		texts = append(texts, f.String())
	}
	return strings.Join(texts, ", ")
}

// Growth is the exponent of a row's cost from the smallest to the largest size: with e the cost
// grows as n to the e.
type Growth struct {
	ID     string  `json:"row"`
	Name   string  `json:"name"`
	CPU    float64 `json:"cpu"` // per operation
	Time   float64 `json:"time"`
	Memory float64 `json:"memory"`
}

func newReport(o Options, p *Point, dir string) *Report {
	return &Report{
		Head:  report.NewHead(Schema, o.Command, o.Commit, dir),
		Point: p.Name, What: p.What, Unit: p.Unit, Full: p.Full, Seconds: o.Duration.Seconds(), Gets: o.Gets, Published: p.Published,
	}
}

// time is that of one operation: the median, or that of what happened once.
func (r *Row) time() float64 {
	if r.Latency.Count > 0 {
		return r.Latency.P50Ms
	}
	return r.Seconds * 1000
}

func (r *Row) cpu() float64 { return r.CPUSeconds / float64(max(1, r.Count)) * 1000 }

func (r *Row) memory() (most float64) {
	for _, m := range r.MemoryMiB {
		most = max(most, m)
	}
	return most
}

func (r *Row) line() string {
	return fmt.Sprintf("%s: %d in %.1f s (%d errors), %.3g ms of CPU each, p50 %s, p99 %s ms; other client's get p99 %s ms; at most %.0f MiB a node",
		r.Name, r.Count, r.Seconds, r.Errors, r.cpu(), measure.Ms(r.Latency.P50Ms), measure.Ms(r.Latency.P99Ms), measure.Ms(r.Other.P99Ms), r.memory())
}

// grow finds the exponents.
func (rep *Report) grow() {
	if len(rep.Sizes) < 2 {
		return
	}
	small, large := rep.Sizes[0], rep.Sizes[len(rep.Sizes)-1]
	factor := float64(large.N) / float64(small.N)
	for i := range small.Rows {
		for j := range large.Rows {
			a, b := &small.Rows[i], &large.Rows[j]
			if a.ID == b.ID {
				rep.Growth = append(rep.Growth, Growth{ID: a.ID, Name: a.Name, CPU: exponent(a.cpu(), b.cpu(), factor), Time: exponent(a.time(), b.time(), factor), Memory: exponent(a.memory(), b.memory(), factor)})
			}
		}
	}
}

// exponent is 0 where there is nothing to compare.
func exponent(a, b, factor float64) float64 {
	if a <= 0 || b <= 0 {
		return 0
	}
	return math.Round(100*math.Log(b/a)/math.Log(factor)) / 100
}

// Failed reports whether a request failed.
func (rep *Report) Failed() bool {
	for _, s := range rep.Sizes {
		for _, r := range s.Rows {
			if r.Errors > 0 || r.OtherErrors > 0 {
				return true
			}
		}
	}
	return false
}

// loadLine says what was measured.
func (rep *Report) loadLine() string {
	return fmt.Sprintf("%s; %d nodes; %g s for each row that goes on for a time; another client gets one object %g times a second; load average before %.1f", rep.Point, nodes, rep.Seconds, rep.Gets, rep.LoadAvg)
}
