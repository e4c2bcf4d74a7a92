package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/quorate/quorate/bench/host"
)

// row is what one scenario measured. Times are in microseconds.
type row struct {
	Scenario  string    `json:"scenario"`
	Title     string    `json:"title"`
	Ops       int64     `json:"operations"`
	Errors    int64     `json:"errors"`
	Error     string    `json:"firstError,omitempty"`
	PerSecond float64   `json:"operationsPerSecond"`
	P50       int64     `json:"p50"`
	P99       int64     `json:"p99"`
	CPU       float64   `json:"cpuPerOperation"`       // of all servers
	ByNode    []float64 `json:"cpuPerOperationByNode"` // in the order of cluster.json
	Peer      figures   `json:"cpuOfPeer"`
}

func newRow(s scenario, out outcome, before, after []time.Duration) row {
	r := row{
		Scenario: s.name, Title: s.title, Peer: peers[s.name],
		Ops: out.latency.TotalCount(), Errors: out.errors,
		P50: out.latency.ValueAtQuantile(50), P99: out.latency.ValueAtQuantile(99),
	}
	if out.first != nil {
		r.Error = out.first.Error()
	}
	r.PerSecond = float64(r.Ops) / out.elapsed.Seconds()
	for i := range after {
		one := float64((after[i] - before[i]).Microseconds()) / float64(max(r.Ops, 1))
		r.ByNode = append(r.ByNode, one)
		r.CPU += one
	}
	return r
}

// slower is how many times as much an operation of the bare server costs here as on
// the peer's machine; 1 if that was not measured.
func (r *report) slower() float64 {
	sum := 0.0
	for _, b := range r.Bare {
		sum += b
	}
	if sum == 0 {
		return 1
	}
	return sum / float64(len(r.Bare)) / peerBare
}

// verdict says in a word how the row stands to its limit and its goal.
func (r row) verdict(slower float64) string {
	switch cpu := r.CPU / slower; {
	case r.Errors > 0 || r.Ops == 0:
		return "ERRORS"
	case r.Peer == figures{}:
		return "-" // it is only compared with a peer in the same run
	case cpu > r.Peer.Limit:
		return "ABOVE LIMIT"
	case cpu > r.Peer.Goal:
		return "within limit"
	default:
		return "goal"
	}
}

// report is a whole run.
type report struct {
	Date          time.Time `json:"date"`
	Command       string    `json:"command"`
	Commit        string    `json:"commit"`
	Go            string    `json:"go"`
	Kernel        string    `json:"kernel"`
	Processor     string    `json:"processor"`
	CPUs          int       `json:"cpus"`
	Nodes         []string  `json:"nodes"`
	Objects       int       `json:"objects"`
	Bare          []float64 `json:"cpuPerOperationOfBareServer"` // before and after the rows
	Rows          []row     `json:"rows"`
	ResidentBytes int64     `json:"residentBytes"`
	RestBytes     int64     `json:"restBytes"` // resident some seconds later
}

func newReport(b *bench) *report {
	r := &report{
		Date: time.Now().UTC().Truncate(time.Second), Command: command(), Commit: revision,
		Go: runtime.Version(), Kernel: host.Kernel(), Processor: host.Processor(), CPUs: runtime.NumCPU(), Objects: b.objects,
	}
	for _, n := range b.cluster.Nodes {
		r.Nodes = append(r.Nodes, n.Name)
	}
	return r
}

// revision is the commit that servers and generator were built from. bench/run.sh sets it.
var revision = "unknown"

// command is what a person types to get this report again.
func command() string {
	if c := os.Getenv("BENCH_COMMAND"); c != "" {
		return strings.TrimSpace(c)
	}
	return strings.Join(os.Args, " ")
}

// passed says whether every row is free of errors and within its limit: that of the
// peer beside it, if there is one.
func (r *report) passed(peer *report) bool {
	if peer != nil {
		for _, a := range r.beside(peer) {
			if v := a.verdict(); v == "ERRORS" || v == "ABOVE LIMIT" {
				return false
			}
		}
		return true
	}
	for _, row := range r.Rows {
		if v := row.verdict(r.slower()); v == "ERRORS" || v == "ABOVE LIMIT" {
			return false
		}
	}
	return true
}

func (r *report) writeJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

func (r *report) writeTable(w io.Writer) error {
	fmt.Fprintf(w, "%s · commit %s · %s · Linux %s · %d × %s\n%s\n\n", r.Date.Format(time.DateTime+" MST"), r.Commit, r.Go, r.Kernel, r.CPUs, r.Processor, r.Command)
	if len(r.Bare) > 0 {
		fmt.Fprintf(w, "A bare Go HTTPS server needs %s µs of CPU per object here, %s µs on the peer's machine: \"adjusted\" is CPU ÷ %.2f.\n\n",
			strings.Join(numbers(r.Bare), " and "), number(peerBare), r.slower())
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "scenario\tops/s\tp50 ms\tp99 ms\tCPU µs/op\t"+strings.Join(r.Nodes, "+")+"\tadjusted\tgoal\tlimit\tpeer 1+1\tpeer 3+3\tverdict\t")
	for _, row := range r.Rows {
		fmt.Fprintf(t, "%s\t%s\t%.1f\t%.1f\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", row.Title, number(row.PerSecond), float64(row.P50)/1000, float64(row.P99)/1000,
			number(row.CPU), strings.Join(numbers(row.ByNode), "+"), number(row.CPU/r.slower()), number(row.Peer.Goal), number(row.Peer.Limit), number(row.Peer.One), number(row.Peer.Three), row.verdict(r.slower()))
	}
	fmt.Fprintf(t, "resident memory, MiB\t\t\t\t%d\t\t\t\t\t%d\t%d\t\t\n", r.ResidentBytes>>20, peerMemoryOne, peerMemoryThree)
	if r.RestBytes > 0 {
		fmt.Fprintf(t, "%s later, MiB\t\t\t\t%d\t\t\t\t\t\t\t\t\n", atRest, r.RestBytes>>20)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, row := range r.Rows {
		if row.Errors > 0 {
			fmt.Fprintf(w, "\n%s: %d errors, the first: %s\n", row.Scenario, row.Errors, row.Error)
		}
	}
	return nil
}

func numbers(f []float64) []string {
	var s []string
	for _, n := range f {
		s = append(s, number(n))
	}
	return s
}

// number prints about three digits.
func number(f float64) string {
	switch {
	case f == 0:
		return "-"
	case f < 100:
		return fmt.Sprintf("%.1f", f)
	default:
		return fmt.Sprintf("%.0f", f)
	}
}
