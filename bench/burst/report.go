package burst

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quorate/quorate/bench/client"
	"github.com/quorate/quorate/bench/measure"
	"github.com/quorate/quorate/bench/report"
)

// Schema names the form of the JSON. It changes when a field changes its meaning or goes; new fields may come.
const Schema = "quorate.bench.burst/v1"

// Report is one measurement. Times whose name ends in Ms are milliseconds.
type Report struct {
	report.Head

	User    string   `json:"user"`
	Kinds   []string `json:"patches"`
	Clients int      `json:"clients"`
	Objects int      `json:"objects"`
	Seconds float64  `json:"seconds"`

	// Answers counts the answers by their code; "none" are requests without one, "strange" are answers that are no
	// object, and "given up" are patches that were refused with 429 as often as a client tries.
	Answers map[string]int64  `json:"answers"`
	Firsts  map[string]string `json:"firstErrors,omitempty"`
	// Latency is that of the patches that were answered with success, from the first try on.
	Latency measure.Latency `json:"latency"`
	Others  []OtherReport   `json:"others"`

	Events        int64    `json:"watchEvents"`
	WatchesCut    int64    `json:"watchesCut"`
	FirstCut      string   `json:"firstCut,omitempty"`
	Elections     int64    `json:"elections"`
	RaftDelay     Delay    `json:"raftDelay"`
	CPUPerPatch   float64  `json:"cpuMicrosPerPatch"` // of all nodes, with all that happened meanwhile; zero if unknown
	AllocsPer     float64  `json:"allocationsPerPatch"`
	ResidentBytes int64    `json:"residentBytes"`
	LostWrites    []string `json:"lostWrites,omitempty"` // that were acknowledged, in words
}

// OtherReport is one sort of request of others.
type OtherReport struct {
	Name    string          `json:"name"`
	Latency measure.Latency `json:"latency"`
	Errors  int64           `json:"errors"`
	First   string          `json:"firstError,omitempty"`
}

// Delay is how long Raft waited for a processor: bounds of the histogram of the nodes.
type Delay struct {
	Count  int64   `json:"count"`
	MeanMs float64 `json:"meanMs"`
	P50Ms  float64 `json:"p50Ms"`
	P99Ms  float64 `json:"p99Ms"`
	MaxMs  float64 `json:"maxMs"`
}

func (b *Burst) report(took time.Duration, after cost, lost []string) *Report {
	r := &Report{
		Head: report.NewHead(Schema, b.opt.Command, b.opt.Commit, b.target.Dir),
		User: b.opt.User, Kinds: b.opt.Patches, Clients: len(b.patchers), Objects: b.opt.Objects, Seconds: took.Seconds(),
		Answers: b.answers, Firsts: b.firsts, Latency: b.latency.Latency(), LostWrites: lost,
		Elections: int64(after.term - b.before.term), RaftDelay: delayBetween(b.before, after), ResidentBytes: after.memory,
	}
	for _, s := range b.others {
		r.Others = append(r.Others, OtherReport{s.name, s.Times.Latency(), s.Errors, s.FirstError()})
	}
	for _, w := range b.watches {
		r.Events += w.events.Load()
		if n := w.cut.Load(); n > 0 {
			r.WatchesCut += n
			r.FirstCut = w.first
		}
	}
	if n := r.Latency.Count; n > 0 {
		if after.cpu != nil && len(after.cpu) == len(b.before.cpu) {
			var sum time.Duration
			for i := range after.cpu {
				sum += after.cpu[i] - b.before.cpu[i]
			}
			r.CPUPerPatch = float64(sum.Microseconds()) / float64(n)
		}
		r.AllocsPer = max(0, after.mallocs-b.before.mallocs) / float64(n)
	}
	return r
}

// Lost is how many patches were not answered, or with an error that says that their outcome is unknown, or that the
// server has failed.
func (r *Report) Lost() (n int64) {
	for code, count := range r.Answers {
		if code == "none" || code == "given up" || code == "strange" || code[0] == '5' {
			n += count
		}
	}
	return n
}

// Failed reports whether anything was lost, or anybody was not served. A conflict, or to be asked to come again, is an answer.
func (r *Report) Failed() bool {
	for _, o := range r.Others {
		if o.Errors > 0 {
			return true
		}
	}
	for code := range r.Answers {
		if code[0] == '4' && code != "409" && code != "429" {
			return true
		}
	}
	return r.Answers["200"] == 0 || r.Lost() > 0 || len(r.LostWrites) > 0 || r.Elections > 0 || r.WatchesCut > 0
}

// Doc is the report for people.
func (r *Report) Doc() *report.Doc {
	b := report.Block{Table: report.Table{Head: []string{"", "served", "p50 ms", "p99", "max", "failed"}}}
	line := func(name string, l measure.Latency, errors int64) {
		b.Table.Rows = append(b.Table.Rows, report.Row{Cells: []string{name, fmt.Sprint(l.Count), measure.Ms(l.P50Ms), measure.Ms(l.P99Ms), measure.Ms(l.MaxMs), fmt.Sprint(errors)}})
	}
	line("patch", r.Latency, r.Lost())
	for _, o := range r.Others {
		line(o.Name, o.Latency, o.Errors)
	}
	say := func(format string, args ...any) { b.Texts = append(b.Texts, fmt.Sprintf(format, args...)) }
	var answers []string
	for _, code := range slices.Sorted(maps.Keys(r.Answers)) {
		answers = append(answers, fmt.Sprintf("%s: %d", code, r.Answers[code]))
	}
	say("answers to patches   %s", strings.Join(answers, ", "))
	say("watch events         %d, watches cut %d", r.Events, r.WatchesCut)
	say("Raft                 %s; waited for a processor %s ms on average, p50 %s, p99 %s, at most %s (%d times)",
		report.Count(r.Elections, "election"), measure.Ms(r.RaftDelay.MeanMs), measure.Ms(r.RaftDelay.P50Ms), measure.Ms(r.RaftDelay.P99Ms), measure.Ms(r.RaftDelay.MaxMs), r.RaftDelay.Count)
	say("a patch costs        %.0f µs of CPU, %.0f allocations, of all nodes and with what others do", r.CPUPerPatch, r.AllocsPer)
	say("resident memory      %d MiB of all nodes", r.ResidentBytes>>20)
	if len(r.LostWrites) == 0 {
		say("no acknowledged patch is lost: each is in the events of all watches, and in its Deployment if it is the newest")
	}
	for _, text := range r.LostWrites[:min(len(r.LostWrites), 10)] {
		say("  %s", text)
	}
	if r.FirstCut != "" {
		say("the first cut: %s", r.FirstCut)
	}
	for _, code := range slices.Sorted(maps.Keys(r.Firsts)) {
		say("the first %s: %s", code, strings.TrimSpace(r.Firsts[code]))
	}
	for _, o := range r.Others {
		if o.First != "" {
			say("%s, the first error: %s", o.Name, strings.TrimSpace(o.First))
		}
	}
	said := fmt.Sprintf("%d clients patch %d Deployments (%s) as %s, %.0f s", r.Clients, r.Objects, strings.Join(r.Kinds, ", "), r.User, r.Seconds)
	return &report.Doc{Head: &r.Head, Lines: []string{said}, Blocks: []report.Block{b}}
}

// beyond, in seconds, stands for what is above the last bound of a histogram: JSON has no infinity.
const beyond = 60

const delayMetric = "quorate_raft_scheduling_delay_seconds"

// add adds what a node's metrics say.
func (c *cost) add(m client.Metrics) {
	c.term = max(c.term, m["quorate_raft_term"])
	c.mallocs += m["go_memstats_mallocs_total"]
	c.delayed += m.Sum(delayMetric + "_sum")
	for name, value := range m {
		if !strings.HasPrefix(name, delayMetric+"_bucket{") {
			continue
		}
		_, bound, _ := strings.Cut(name, `le="`)
		bound, _, _ = strings.Cut(bound, `"`)
		if seconds, err := strconv.ParseFloat(bound, 64); err == nil {
			c.delays[seconds] += value
		}
	}
}

// delayBetween is the distribution of what was added to the histogram.
func delayBetween(before, after cost) (d Delay) {
	bounds := slices.Sorted(maps.Keys(after.delays))
	if len(bounds) == 0 {
		return d
	}
	added := func(bound float64) float64 { return after.delays[bound] - before.delays[bound] }
	all := added(bounds[len(bounds)-1])
	at := func(share float64) float64 {
		for _, bound := range bounds {
			if added(bound) >= share*all {
				return min(bound, beyond) * 1000
			}
		}
		return 0
	}
	d.Count = int64(all)
	if all > 0 {
		d.MeanMs = (after.delayed - before.delayed) / all * 1000
		d.P50Ms, d.P99Ms, d.MaxMs = at(0.5), at(0.99), at(1)
	}
	return d
}
