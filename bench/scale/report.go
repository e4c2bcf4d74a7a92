package scale

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/quorate/quorate/bench/host"
	"github.com/quorate/quorate/bench/measure"
)

// Schema names the form of the JSON. It changes when a field changes its meaning or goes.
const Schema = "quorate.bench.scale/v1"

// Report is what was measured.
type Report struct {
	Schema    string       `json:"schema"`
	Date      time.Time    `json:"date"`
	Command   string       `json:"command"`
	Commit    string       `json:"commit"`
	Machine   host.Machine `json:"machine"`
	Point     string       `json:"point"`
	What      string       `json:"what"`
	Unit      string       `json:"unit"`
	Full      int          `json:"full"`
	Published []Published  `json:"published,omitempty"`
	Sizes     []Size       `json:"sizes"`
	Growth    []Growth     `json:"growth,omitempty"`
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
	Row    string  `json:"row"`
	CPU    float64 `json:"cpu"` // per operation
	Time   float64 `json:"time"`
	Memory float64 `json:"memory"`
}

func newReport(o Options, p *Point, dir string) *Report {
	return &Report{
		Schema: Schema, Date: time.Now().UTC().Truncate(time.Second), Command: o.Command, Commit: o.Commit, Machine: host.ThisMachine(dir),
		Point: p.Name, What: p.What, Unit: p.Unit, Full: p.Full, Published: p.Published,
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
				rep.Growth = append(rep.Growth, Growth{Row: a.Name, CPU: exponent(a.cpu(), b.cpu(), factor), Time: exponent(a.time(), b.time(), factor), Memory: exponent(a.memory(), b.memory(), factor)})
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

// WriteTable writes the report for a terminal.
func (rep *Report) WriteTable(w io.Writer) error {
	fmt.Fprintf(w, "%s: %s\n%s\n%s\ncommit %s, load average before %.2f\n", rep.Point, rep.What, rep.Command, rep.Machine.Line(), rep.Commit, rep.Machine.LoadAvg)
	for _, s := range rep.Sizes {
		fmt.Fprintf(w, "\n%d %s\n\n", s.N, rep.Unit)
		t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(t, "\tcount\terrors\tseconds\tMB/s\tCPU ms each\tp50 ms\tp99 ms\tother get p50\tp99\tMiB a node\t")
		for i := range s.Rows {
			r := &s.Rows[i]
			fmt.Fprintf(t, "%s\t%d\t%d\t%.2f\t%.0f\t%.3g\t%s\t%s\t%s\t%s\t%.0f\t\n", r.Name, r.Count, r.Errors, r.Seconds, float64(r.Bytes)/1e6/max(r.Seconds, 1e-9),
				r.cpu(), ms(r.Latency, r.Latency.P50Ms), ms(r.Latency, r.Latency.P99Ms), ms(r.Other, r.Other.P50Ms), ms(r.Other, r.Other.P99Ms), r.memory())
		}
		if err := t.Flush(); err != nil {
			return err
		}
		for _, r := range s.Rows {
			if text := r.besides(); text != "" {
				fmt.Fprintf(w, "%s: %s\n", r.Name, text)
			}
			if r.FirstError != "" {
				fmt.Fprintf(w, "%s: the first error: %s\n", r.Name, r.FirstError)
			}
		}
	}
	if len(rep.Growth) > 0 {
		fmt.Fprintf(w, "\nExponents of growth, from %d to %d %s (1: in proportion)\n\n", rep.Sizes[0].N, rep.Sizes[len(rep.Sizes)-1].N, rep.Unit)
		t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(t, "\tCPU each\ttime\tmemory\t")
		for _, g := range rep.Growth {
			fmt.Fprintf(t, "%s\t%.2f\t%.2f\t%.2f\t\n", g.Row, g.CPU, g.Time, g.Memory)
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	for i, p := range rep.Published {
		if i == 0 {
			fmt.Fprintln(w, "\nPublished by others, on other machines:")
		}
		fmt.Fprintf(w, "  %s: %s (%s)\n", p.Who, p.Says, p.Link)
	}
	return nil
}

func ms(l measure.Latency, v float64) string {
	if l.Count == 0 {
		return "–"
	}
	return measure.Ms(v)
}

// WriteJSON writes the report for programs.
func (rep *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(rep)
}

// WriteCSV writes a line for each row of each size.
func (rep *Report) WriteCSV(w io.Writer) error {
	out := csv.NewWriter(w)
	if err := out.Write(strings.Fields("point n row count errors seconds bytes cpu_seconds p50_ms p99_ms max_ms other_p50_ms other_p99_ms other_errors memory_mib")); err != nil {
		return err
	}
	f := func(x float64) string { return strconv.FormatFloat(x, 'g', 6, 64) }
	for _, s := range rep.Sizes {
		for i := range s.Rows {
			r := &s.Rows[i]
			if err := out.Write([]string{
				rep.Point, strconv.Itoa(s.N), r.Name, strconv.FormatInt(r.Count, 10), strconv.FormatInt(r.Errors, 10), f(r.Seconds), strconv.FormatInt(r.Bytes, 10), f(r.CPUSeconds),
				f(r.Latency.P50Ms), f(r.Latency.P99Ms), f(r.Latency.MaxMs), f(r.Other.P50Ms), f(r.Other.P99Ms), strconv.FormatInt(r.OtherErrors, 10), f(r.memory()),
			}); err != nil {
				return err
			}
		}
	}
	out.Flush()
	return out.Error()
}
