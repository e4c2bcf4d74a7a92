package load

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/quorate/quorate/bench/measure"
	"github.com/quorate/quorate/bench/report"
)

// Schema names the form of the JSON. It changes when a field changes its meaning
// or goes; new fields may come.
const Schema = "quorate.bench.load/v1"

// Report is one measurement. Times whose name ends in Ms are milliseconds.
type Report struct {
	report.Head

	Options OptionsReport `json:"options"`
	// Nodes are the processes whose CPU time is counted, in the order of cpuPerOperationByNode.
	Nodes []string `json:"nodes"`
	// Rows are over all runs: the latencies of all together, of the other figures the medians.
	Rows    []Row       `json:"rows"`
	Memory              // medians
	Runs    []RunReport `json:"runs"`
	Stopped bool        `json:"stopped,omitempty"` // before its end: it has what was measured until then
	Goals   bool        `json:"judgedByGoals,omitempty"`
}

// Memory is what the servers occupy behind the last row, and some seconds later; zero is unknown.
type Memory struct {
	ResidentBytes int64 `json:"residentBytes,omitempty"`
	RestBytes     int64 `json:"restBytes,omitempty"`
	// Proportional counts pages that several servers have, of a program or a library, once;
	// anonymous leaves out pages of files. See host.Memory.
	ProportionalBytes     int64 `json:"proportionalBytes,omitempty"`
	RestProportionalBytes int64 `json:"restProportionalBytes,omitempty"`
	AnonymousBytes        int64 `json:"anonymousBytes,omitempty"`
	RestAnonymousBytes    int64 `json:"restAnonymousBytes,omitempty"`
}

// figures are all of them.
func (m *Memory) figures() []*int64 {
	return []*int64{&m.ResidentBytes, &m.RestBytes, &m.ProportionalBytes, &m.RestProportionalBytes, &m.AnonymousBytes, &m.RestAnonymousBytes}
}

// medianMemory is the median of each figure, of the runs that know it.
func medianMemory(runs []RunReport) (m Memory) {
	for i, figure := range m.figures() {
		var known []float64
		for k := range runs {
			if n := *runs[k].figures()[i]; n > 0 {
				known = append(known, float64(n))
			}
		}
		*figure = int64(measure.Median(known))
	}
	return m
}

// OptionsReport is what was asked for.
type OptionsReport struct {
	Target          string   `json:"target"` // kubernetes or etcd
	Servers         []string `json:"servers"`
	DurationSeconds float64  `json:"durationSeconds"`
	Workers         int      `json:"workers"`
	Connections     int      `json:"connections"`
	Objects         int      `json:"objects"`
	Size            int      `json:"valueBytes"`
	Rate            float64  `json:"ratePerSecond,omitempty"`
	Mix             string   `json:"mix,omitempty"`
	Repeat          int      `json:"repeat"`
}

// RunReport is all rows, measured once.
type RunReport struct {
	Date   time.Time `json:"date"`
	Bare   []float64 `json:"cpuPerOperationOfBareServer,omitempty"` // before and after the rows
	Rows   []Row     `json:"rows,omitempty"`
	Sweeps []Sweep   `json:"sweeps,omitempty"`
	Memory
}

// Row is what one row measured. CPU times are in microseconds.
type Row struct {
	Name      string          `json:"scenario"`
	Title     string          `json:"title"`
	Ops       int64           `json:"operations"`
	Errors    int64           `json:"errors"`
	Error     string          `json:"firstError,omitempty"`
	PerSecond float64         `json:"operationsPerSecond"` // that succeeded; in an open loop before its end
	Latency   measure.Latency `json:"latency"`             // in an open loop from when they were due
	CPU       float64         `json:"cpuPerOperation,omitempty"`
	ByNode    []float64       `json:"cpuPerOperationByNode,omitempty"`
	// Of the Go heaps of all servers, where they tell; 0 otherwise.
	Allocs         float64 `json:"allocationsPerOperation,omitempty"`
	AllocatedBytes float64 `json:"allocatedBytesPerOperation,omitempty"`

	Peer *figures `json:"cpuOfPeer,omitempty"`
	// Of an open loop: the rate, how late operations were sent, and how many were not.
	Rate   float64          `json:"ratePerSecond,omitempty"`
	Late   *measure.Latency `json:"sentLate,omitempty"`
	Unsent int64            `json:"notSent,omitempty"`
	Parts  []Part           `json:"parts,omitempty"` // of a mix
	Cut    bool             `json:"cutShort,omitempty"`

	latency measure.Histogram
}

// Part is one verb of a mix.
type Part struct {
	Verb    string          `json:"verb"`
	Share   float64         `json:"share"` // of the operations that were asked for
	Errors  int64           `json:"errors"`
	Latency measure.Latency `json:"latency"`

	latency measure.Histogram
}

func (b *bench) newRow(r *row, t *tally, before, after []time.Duration) Row {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.all()
	out := Row{Name: r.name, Title: r.title, Ops: h.TotalCount(), Errors: t.errors, Unsent: t.unsent, Latency: h.Curve(), Cut: t.cut, latency: h}
	if t.first != nil {
		out.Error = t.first.Error()
	}
	out.PerSecond = float64(out.Ops) / t.elapsed.Seconds()
	if t.open {
		late := t.late.Latency()
		out.Rate, out.Late, out.PerSecond = b.Rate, &late, float64(t.within)/t.elapsed.Seconds()
	}
	for i := range after {
		one := float64((after[i] - before[i]).Microseconds()) / float64(max(out.Ops, 1))
		out.ByNode = append(out.ByNode, one)
		out.CPU += one
	}
	if p, ok := peers[r.name]; ok && b.Goals {
		out.Peer = &p
	}
	total := 0.0
	for _, w := range r.mix {
		total += w.Weight
	}
	for i, w := range r.mix {
		p := t.parts[i]
		out.Parts = append(out.Parts, Part{Verb: w.Verb, Share: w.Weight / total, Errors: p.errors, Latency: p.latency.Curve(), latency: p.latency})
	}
	return out
}

func newReport(o *Options, t *Target) *Report {
	_, nodes := t.PIDs()
	r := &Report{
		Head: report.NewHead(Schema, o.Command, o.Commit, t.Dir), Nodes: nodes, Goals: o.Goals,
		Options: OptionsReport{
			Target: "kubernetes", DurationSeconds: o.Duration.Seconds(), Workers: o.Workers, Connections: o.Connections, Objects: o.Objects, Size: valueSize,
			Rate: o.Rate, Mix: o.Mix.String(), Repeat: o.Repeat,
		},
	}
	if t.Etcd {
		r.Options.Target = "etcd"
	}
	for _, n := range t.Servers() {
		r.Options.Servers = append(r.Options.Servers, n.Name)
	}
	return r
}

// finish sums the runs up.
func (r *Report) finish() {
	r.Rows = nil
	for i := range r.Runs {
		run := &r.Runs[i]
		for k := range run.Rows {
			if at := slices.IndexFunc(r.Rows, func(x Row) bool { return x.Name == run.Rows[k].Name }); at < 0 {
				r.Rows = append(r.Rows, r.sum(run.Rows[k].Name))
			}
		}
	}
	r.Memory = medianMemory(r.Runs)
	if len(r.Runs) > 1 {
		for i := range r.Runs {
			for k := range r.Runs[i].Rows {
				r.Runs[i].Rows[k].Latency.Curve = nil // that of all runs says more
			}
		}
	}
}

// sum is a row over all runs.
func (r *Report) sum(name string) (out Row) {
	var perSecond, cpu, allocs, allocated []float64
	byNode := make([][]float64, len(r.Nodes))
	merged := measure.NewHistogram()
	for i := range r.Runs {
		for _, x := range r.Runs[i].Rows {
			if x.Name != name {
				continue
			}
			ops, errs, unsent, first, cut, parts := out.Ops, out.Errors, out.Unsent, out.Error, out.Cut, out.Parts
			out = x
			out.Ops, out.Errors, out.Unsent, out.Cut = ops+x.Ops, errs+x.Errors, unsent+x.Unsent, cut || x.Cut
			if first != "" {
				out.Error = first
			}
			perSecond, cpu = append(perSecond, x.PerSecond), append(cpu, x.CPU)
			allocs, allocated = append(allocs, x.Allocs), append(allocated, x.AllocatedBytes)
			for k, c := range x.ByNode {
				byNode[k] = append(byNode[k], c)
			}
			merged.Merge(x.latency.Histogram)
			out.Parts = mergeParts(parts, x.Parts)
		}
	}
	out.PerSecond, out.CPU, out.ByNode = measure.Median(perSecond), measure.Median(cpu), nil
	out.Allocs, out.AllocatedBytes = measure.Median(allocs), measure.Median(allocated)
	for _, c := range byNode {
		out.ByNode = append(out.ByNode, measure.Median(c))
	}
	out.latency, out.Latency = merged, merged.Curve()
	return out
}

// mergeParts adds those of a run to those of the runs before.
func mergeParts(all, more []Part) (out []Part) {
	for i, p := range more {
		h := measure.NewHistogram()
		h.Merge(p.latency.Histogram)
		if i < len(all) {
			h.Merge(all[i].latency.Histogram)
			p.Errors += all[i].Errors
		}
		p.latency, p.Latency = h, h.Curve()
		out = append(out, p)
	}
	return out
}

// sweeps are those of all runs.
func (r *Report) sweeps() (all []Sweep) {
	for _, run := range r.Runs {
		all = append(all, run.Sweeps...)
	}
	return all
}

// Failed reports whether an operation failed or, if goals count, a row is above its limit.
// In a sweep, errors are what is looked for.
func (r *Report) Failed() bool { return r.failed(nil) }

// FailedBeside is Failed, but the limit is that of the peer beside it.
func (r *Report) FailedBeside(peer *Report) bool { return r.failed(peer) }

func (r *Report) failed(peer *Report) bool {
	bad := func(verdict string) bool { return verdict == wordErrors || verdict == wordAbove }
	if peer != nil {
		return slices.ContainsFunc(r.beside(peer), func(a against) bool { return bad(a.verdict()) })
	}
	return slices.ContainsFunc(r.Rows, func(x Row) bool { return bad(x.verdict(r.slower())) })
}

// The words of verdicts.
const (
	wordErrors = "ERRORS"
	wordAbove  = "ABOVE LIMIT"
	wordWithin = "within limit"
	wordGoal   = "goal"
)

// slower is how many times as much an operation of the bare server costs here as on
// the peer's machine; 1 if that was not measured.
func (r *Report) slower() float64 {
	all := r.bare()
	if len(all) == 0 {
		return 1
	}
	sum := 0.0
	for _, b := range all {
		sum += b
	}
	return sum / float64(len(all)) / peerBare
}

// bare are the bare server's figures of all runs.
func (r *Report) bare() (all []float64) {
	for _, run := range r.Runs {
		all = append(all, run.Bare...)
	}
	return all
}

// verdict says in a word how the row stands to its limit and its goal.
func (r *Row) verdict(slower float64) string {
	switch cpu := r.CPU / slower; {
	case r.Errors > 0 || r.Ops == 0 && !r.Cut:
		return wordErrors
	case r.Peer == nil || r.CPU == 0:
		return "-" // it is only compared with a peer in the same run
	case cpu > r.Peer.Limit:
		return wordAbove
	case cpu > r.Peer.Goal:
		return wordWithin
	default:
		return wordGoal
	}
}

// maxReport bounds a report that is read.
const maxReport = 256 << 20

// ReadReport reads what WriteJSON has written.
func ReadReport(file string) (*Report, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the report to compare with: %w", err)
	}
	return parseReport(file, raw)
}

func parseReport(file string, raw []byte) (*Report, error) {
	r := &Report{}
	if err := json.NewDecoder(io.LimitReader(bytes.NewReader(raw), maxReport)).Decode(r); err != nil {
		return nil, fmt.Errorf("read the report to compare with, %s: %w", file, err)
	}
	if r.Schema != Schema {
		return nil, fmt.Errorf("read the report to compare with, %s: its schema is %q, not %q", file, r.Schema, Schema)
	}
	return r, nil
}

// loadLine says what was asked for.
func (r *Report) loadLine() string {
	o := r.Options
	s := fmt.Sprintf("%s, %s; %s of %d bytes; ", o.Target, report.Count(len(o.Servers), "server"), report.Count(o.Objects, "object"), o.Size)
	if o.Mix != "" {
		s += "mix " + o.Mix + "; "
	}
	switch {
	case len(r.sweeps()) > 0:
		s += fmt.Sprintf("rising rates, %g s each", o.DurationSeconds)
	case o.Rate > 0:
		s += fmt.Sprintf("%g operations/s are due at random times, for %g s", o.Rate, o.DurationSeconds)
	default:
		s += fmt.Sprintf("%s without pauses, %g s per row", report.Count(o.Workers, "worker"), o.DurationSeconds)
	}
	s += fmt.Sprintf("; %s; load average before %.1f", report.Count(o.Connections, "connection"), r.LoadAvg)
	if len(r.Runs) > 1 {
		s += fmt.Sprintf("; %d runs: latencies of all together, of the rest the medians", len(r.Runs))
	}
	return s
}
