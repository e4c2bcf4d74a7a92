package faults

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/quorate/quorate/bench/client"
	"github.com/quorate/quorate/bench/measure"
	"github.com/quorate/quorate/bench/report"
)

// Schema names the form of the JSON. It changes when a field changes its meaning
// or goes; new fields may come.
const Schema = "quorate.bench.faults/v1"

// Report is one measurement. Times whose name ends in Ms are milliseconds.
type Report struct {
	report.Head

	Options OptionsReport `json:"options"`
	Nodes   []string      `json:"nodes"`
	// Summary is over all repeats, a fault after the other.
	Summary    []Summary        `json:"summary"`
	Repeats    []Repeat         `json:"repeats"`
	Promises   map[string]Kept  `json:"promises"` // by service; reads only
	Lag        measure.Latency  `json:"sentLate"` // how long after they were due requests were sent; it is part of their latency
	Unsent     int64            `json:"requestsNotSent"`
	Verdicts   []report.Verdict `json:"verdicts"`
	Violations []string         `json:"violations,omitempty"`   // the first ones
	Errors     map[string]Error `json:"errorsByKind,omitempty"` // of all repeats

	lag measure.Histogram
}

// OptionsReport is what was asked for.
type OptionsReport struct {
	Faults         []string `json:"faults"`
	Repeat         int      `json:"repeat"`
	LengthSeconds  float64  `json:"lengthSeconds"` // of one repeat
	Writes         float64  `json:"writesPerSecond"`
	Reads          float64  `json:"readsPerSecondModeAndNode"`
	TimeoutSeconds float64  `json:"timeoutSeconds"`
	Size           int      `json:"valueBytes"`
	Objects        int      `json:"objects"`
	// What nodes send to each other goes through this program, and the kernel asks it about their
	// syncs: what there is to be for partitions and slow disks, from the beginning.
	Relayed bool `json:"peersThroughThisProgram,omitempty"`
	Asked   bool `json:"syncsAskedAbout,omitempty"`
}

// Error is one way in which requests failed.
type Error struct {
	Count int64  `json:"count"`
	First string `json:"first"`
}

// Kept is how many answers of a mode were judged, and how many broke its promise.
type Kept struct {
	Answers int64 `json:"answers"`
	Broken  int64 `json:"broken"`
}

// Repeat is the faults played once.
type Repeat struct {
	// QuietGapMs is the longest gap of each service before the first fault: what the
	// random times of the requests make, and the machine.
	QuietGapMs map[string]float64 `json:"quietGapMs"`
	Faults     []FaultReport      `json:"faults"`
	Lost       []string           `json:"lostWrites,omitempty"` // the first ones
	Timeline   Timeline           `json:"timeline"`
}

// FaultReport is one fault that has happened. What it did is looked for until the next one.
type FaultReport struct {
	Kind      Kind        `json:"kind"`
	How       string      `json:"how,omitempty"` // what a partition cuts, if it is not both; how much longer a sync takes
	Node      string      `json:"node"`
	Role      client.Role `json:"role"` // that the node had
	AtSeconds float64     `json:"atSeconds"`
	// EndSeconds is when the node was let come back: the start of its process, SIGCONT, or the end of
	// its partition or slow disk; of a restart SIGTERM.
	EndSeconds float64 `json:"endSeconds"`
	// Since EndSeconds; absent if it did not happen.
	GoneMs       *float64                 `json:"goneMs,omitempty"`       // the process had ended; restarts only
	ReadyMs      *float64                 `json:"readyMs,omitempty"`      // /readyz said yes
	WroteMs      *float64                 `json:"wroteMs,omitempty"`      // a write through the node was acknowledged
	SyncsDelayed *int64                   `json:"syncsDelayed,omitempty"` // of a slow disk
	Services     map[string]ServiceReport `json:"services"`
}

// ServiceReport is what clients of a service saw of a fault: those of the other nodes, and
// those of the node itself.
type ServiceReport struct {
	Others *Seen `json:"otherNodes,omitempty"`
	Node   Seen  `json:"node"`
}

// Seen is one service on some nodes during one fault.
type Seen struct {
	// GapMs is the longest time without a success on any of these nodes.
	GapMs     float64 `json:"gapMs"`
	GapOpen   bool    `json:"gapOpen,omitempty"` // it had not ended when the next fault came
	GapFromMs float64 `json:"gapFromMs"`         // since the fault began
	// RecoveredMs is when 95 % of the throughput before the first fault was there again,
	// for a second: since the fault began; on the node itself, since it was let come back.
	RecoveredMs *float64         `json:"recoveredMs,omitempty"`
	Errors      map[string]int64 `json:"errors,omitempty"` // by kind
	// Before and While are the latencies of the requests that were due before the first fault, and
	// while this one lasted, as far as they succeeded.
	Before Took  `json:"before"`
	While  *Took `json:"while,omitempty"` // not of a restart
	// Windows are those in which nothing succeeded, the first ones: three times as long as
	// the longest gap before the first fault, and 250 ms.
	Windows []Window `json:"windowsOfUnavailability,omitempty"`
}

// Took is how long successes took.
type Took struct {
	Count int     `json:"count"`
	P50Ms float64 `json:"p50Ms"`
	P99Ms float64 `json:"p99Ms"`
	MaxMs float64 `json:"maxMs"`
}

// Window is a time without a success.
type Window struct {
	FromMs   float64 `json:"fromMs"` // since the fault began
	LengthMs float64 `json:"lengthMs"`
	Open     bool    `json:"open,omitempty"` // it had not ended when the next fault came
}

// Timeline is what came of the requests, in bins of BinMs. Lists have an element per bin.
type Timeline struct {
	BinMs    float64         `json:"binMs"`
	Services map[string]Bins `json:"services"`
}

// Bins are those of one service on all nodes.
type Bins struct {
	OK     []int32   `json:"ok"`     // successes, by the time of the answer
	Errors []int32   `json:"errors"` // by the time at which they were known
	P50Ms  []float64 `json:"p50Ms"`  // latency of successes, by when they were due; 0 without any
	MaxMs  []float64 `json:"maxMs"`
}

// Summary is one fault, over all repeats.
type Summary struct {
	Fault    string                    `json:"fault"`
	Gone     *Spread                   `json:"gone,omitempty"`
	Ready    Spread                    `json:"ready"`
	Wrote    Spread                    `json:"wrote"`
	Delayed  *Spread                   `json:"syncsDelayed,omitempty"` // of a slow disk
	Services map[string]ServiceSummary `json:"services"`
}

// ServiceSummary is one service.
type ServiceSummary struct {
	Others *SeenSummary `json:"otherNodes,omitempty"`
	Node   SeenSummary  `json:"node"`
}

// SeenSummary is a Seen over all repeats.
type SeenSummary struct {
	Gap       Spread `json:"gap"`
	Recovered Spread `json:"recovered"`
	Errors    Spread `json:"errors"` // of one repeat
	// Latencies before the first fault and while this one lasted.
	Before LatencySummary  `json:"before"`
	While  *LatencySummary `json:"while,omitempty"`
}

// LatencySummary is a Took over all repeats.
type LatencySummary struct {
	P50 Spread `json:"p50"`
	P99 Spread `json:"p99"`
}

// Spread is one figure of all repeats.
type Spread struct {
	Median float64 `json:"median"`
	Max    float64 `json:"max"`
	Never  int     `json:"never,omitempty"` // repeats in which it did not happen; they are in nothing else
	Count  int     `json:"count"`           // the others
}

func spread(values []*float64) Spread {
	var s Spread
	var have []float64
	for _, v := range values {
		if v == nil {
			s.Never++
		} else {
			have = append(have, *v)
		}
	}
	if s.Count = len(have); s.Count > 0 {
		s.Median, s.Max = measure.Median(have), slices.Max(have)
	}
	return s
}

// binLength is that of the time line.
const binLength = 100 * time.Millisecond

func (r *runner) newReport() *Report {
	o := r.opt
	rep := &Report{
		Head: report.NewHead(Schema, o.Command, o.Commit, r.target.Dir),
		Options: OptionsReport{
			Repeat: o.Repeat, LengthSeconds: o.length().Seconds(), Writes: o.Writes, Reads: o.Reads, TimeoutSeconds: o.Timeout.Seconds(), Size: o.Size, Objects: o.probes(),
		},
		Promises: map[string]Kept{}, Errors: map[string]Error{}, lag: measure.NewHistogram(),
	}
	rep.Options.Relayed, rep.Options.Asked = Needs(o.Faults)
	for _, f := range o.Faults {
		rep.Options.Faults = append(rep.Options.Faults, f.String())
	}
	for _, n := range r.target.Nodes {
		rep.Nodes = append(rep.Nodes, n.Name)
	}
	return rep
}

// add takes what one repeat has seen.
func (rep *Report) add(one *round) {
	rep.Unsent += one.unsent
	rep.lag.Merge(one.lag.Histogram)
	for _, v := range one.violations {
		if len(rep.Violations) < maxViolations {
			rep.Violations = append(rep.Violations, fmt.Sprintf("repeat %d: %s", one.turn+1, v))
		}
	}
	for s := mostRecent; s < services; s++ {
		kept := rep.Promises[s.String()]
		kept.Broken += one.broken[s]
		for i := range one.samples {
			if x := &one.samples[i]; x.service == s && x.outcome == good {
				kept.Answers++
			}
		}
		rep.Promises[s.String()] = kept
	}
	for _, s := range one.samples {
		if s.outcome != good {
			e := rep.Errors[s.outcome.String()]
			if e.Count++; e.First == "" {
				e.First = one.firsts[s.outcome]
			}
			rep.Errors[s.outcome.String()] = e
		}
	}
	rep.Repeats = append(rep.Repeats, one.report())
}

// report draws the figures of a repeat from its samples.
func (one *round) report() Repeat {
	out := Repeat{QuietGapMs: map[string]float64{}, Lost: one.lost, Timeline: timeline(one.samples, one.length)}
	quiet := one.played[0].began // the undisturbed beginning
	for s := range services {
		out.QuietGapMs[s.String()] = measure.Millis(longestGap(one.samples, 0, quiet, func(x *sample) bool { return x.service == s }).Length)
	}
	for i, p := range one.played {
		next := one.length
		if i+1 < len(one.played) {
			next = one.played[i+1].began
		}
		f := FaultReport{
			Kind: p.Kind, How: p.how(), Node: one.nodes[p.node].Name, Role: p.role, AtSeconds: p.began.Seconds(), EndSeconds: p.end.Seconds(),
			GoneMs: unlessZero(p.back.gone), ReadyMs: unlessZero(p.back.ready), WroteMs: unlessZero(p.back.wrote), Services: map[string]ServiceReport{},
		}
		if p.Kind == SlowDisk {
			f.SyncsDelayed = &p.delayed
		}
		for s := range services {
			itself := func(x *sample) bool { return x.service == s && int(x.node) == p.node }
			report := ServiceReport{Node: one.seen(quiet, &p, p.end, next, itself)}
			if len(one.nodes) > 1 {
				others := one.seen(quiet, &p, p.began, next, func(x *sample) bool { return x.service == s && int(x.node) != p.node })
				report.Others = &others
			}
			f.Services[s.String()] = report
		}
		out.Faults = append(out.Faults, f)
	}
	return out
}

// seen is what some requests say of a fault until the next; recovery counts from let on.
func (one *round) seen(quiet time.Duration, p *played, let, next time.Duration, pick func(*sample) bool) Seen {
	began := p.began
	gap := longestGap(one.samples, began, next, pick)
	s := Seen{GapMs: measure.Millis(gap.Length), GapFromMs: measure.Millis(gap.From), GapOpen: gap.Open, Errors: map[string]int64{}, Before: took(one.samples, 0, quiet, pick)}
	if p.Kind.lasts() {
		while := took(one.samples, began, p.end, pick)
		s.While = &while
	}
	least := max(windowLeast, windowFactor*longestGap(one.samples, 0, quiet, pick).Length)
	for _, w := range longerThan(least, one.samples, began, next, pick) {
		if len(s.Windows) < maxWindows {
			s.Windows = append(s.Windows, Window{measure.Millis(w.From), measure.Millis(w.Length), w.Open})
		}
	}
	within := inTime(one.samples, 0, quiet, pick)
	before, _ := share(one.samples, 0, quiet, within, pick)
	if d, ok := recovery(one.samples, let, next, within, before, pick); ok {
		ms := measure.Millis(d)
		s.RecoveredMs = &ms
	}
	for i := range one.samples {
		if x := &one.samples[i]; x.outcome != good && x.due >= began && x.due < next && pick(x) {
			s.Errors[x.outcome.String()]++
		}
	}
	return s
}

// took is how long those requests took that were due between begin and end, and succeeded.
func took(samples []sample, begin, end time.Duration, pick func(*sample) bool) (t Took) {
	all := durations(samples, begin, end, pick)
	if t.Count = len(all); t.Count > 0 {
		last := len(all) - 1
		t.P50Ms, t.P99Ms, t.MaxMs = measure.Millis(all[last*50/100]), measure.Millis(all[last*99/100]), measure.Millis(all[last])
	}
	return t
}

func unlessZero(d time.Duration) *float64 {
	if d == 0 {
		return nil
	}
	ms := measure.Millis(d)
	return &ms
}

// timeline puts samples into bins. What is answered behind the end is in the last one.
func timeline(samples []sample, length time.Duration) Timeline {
	t := Timeline{BinMs: measure.Millis(binLength), Services: map[string]Bins{}}
	bins := max(1, int((length+binLength-1)/binLength))
	at := func(d time.Duration) int { return min(max(0, int(d/binLength)), bins-1) }
	for s := range services {
		b := Bins{OK: make([]int32, bins), Errors: make([]int32, bins), P50Ms: make([]float64, bins), MaxMs: make([]float64, bins)}
		took := make([][]time.Duration, bins)
		for i := range samples {
			switch x := &samples[i]; {
			case x.service != s:
			case x.outcome != good:
				b.Errors[at(x.end)]++
			default:
				b.OK[at(x.end)]++
				took[at(x.due)] = append(took[at(x.due)], x.end-x.due)
			}
		}
		for i, d := range took {
			if len(d) > 0 {
				slices.Sort(d)
				b.P50Ms[i], b.MaxMs[i] = measure.Millis(d[len(d)/2]), measure.Millis(d[len(d)-1])
			}
		}
		t.Services[s.String()] = b
	}
	return t
}

// finish sums the repeats up.
func (rep *Report) finish() {
	rep.Lag = rep.lag.Latency()
	for i, name := range rep.Options.Faults {
		over := func(figure func(*FaultReport) *float64) Spread {
			var values []*float64
			for k := range rep.Repeats {
				values = append(values, figure(&rep.Repeats[k].Faults[i]))
			}
			return spread(values)
		}
		sum := Summary{
			Fault: name, Services: map[string]ServiceSummary{},
			Gone:    over(func(f *FaultReport) *float64 { return f.GoneMs }).orNil(),
			Ready:   over(func(f *FaultReport) *float64 { return f.ReadyMs }),
			Wrote:   over(func(f *FaultReport) *float64 { return f.WroteMs }),
			Delayed: over((*FaultReport).delayed).orNil(),
		}
		for s := range services {
			service := ServiceSummary{Node: *seenOver(over, func(f *FaultReport) *Seen { x := f.Services[s.String()]; return &x.Node })}
			if len(rep.Nodes) > 1 {
				service.Others = seenOver(over, func(f *FaultReport) *Seen { return f.Services[s.String()].Others })
			}
			if rep.Repeats[0].Faults[i].Services[s.String()].Node.While == nil {
				service.Node.While = nil
				if service.Others != nil {
					service.Others.While = nil
				}
			}
			sum.Services[s.String()] = service
		}
		rep.Summary = append(rep.Summary, sum)
	}
	rep.judge()
}

// seenOver sums up what was seen in all repeats.
func seenOver(over func(func(*FaultReport) *float64) Spread, seen func(*FaultReport) *Seen) *SeenSummary {
	latency := func(of func(*Seen) *Took) LatencySummary {
		figure := func(pick func(*Took) *float64) Spread {
			return over(func(f *FaultReport) *float64 {
				if t := of(seen(f)); t != nil && t.Count > 0 {
					return pick(t)
				}
				return nil
			})
		}
		return LatencySummary{P50: figure(func(t *Took) *float64 { return &t.P50Ms }), P99: figure(func(t *Took) *float64 { return &t.P99Ms })}
	}
	while := latency(func(s *Seen) *Took { return s.While })
	return &SeenSummary{
		Gap:       over(func(f *FaultReport) *float64 { return &seen(f).GapMs }),
		Recovered: over(func(f *FaultReport) *float64 { return seen(f).RecoveredMs }),
		Errors:    over(func(f *FaultReport) *float64 { n := float64(seen(f).errors()); return &n }),
		Before:    latency(func(s *Seen) *Took { return &s.Before }),
		While:     &while,
	}
}

// orNil is nil if it never happened.
func (s Spread) orNil() *Spread {
	if s.Count == 0 {
		return nil
	}
	return &s
}

// delayed is how many syncs a slow disk has delayed; nil of another fault.
func (f *FaultReport) delayed() *float64 {
	if f.SyncsDelayed == nil {
		return nil
	}
	n := float64(*f.SyncsDelayed)
	return &n
}

// errors are all of them.
func (s *Seen) errors() (n int64) {
	for _, k := range s.Errors {
		n += k
	}
	return n
}

// lagP99 is how late requests may be sent before the figures say more about the client than
// about the servers, in milliseconds. It is small beside what faults do.
const lagP99 = 20

// judge draws the verdicts from the figures.
func (rep *Report) judge() {
	lost := 0
	for _, r := range rep.Repeats {
		lost += len(r.Lost)
	}
	rep.Verdicts = []report.Verdict{{Name: "No acknowledged write is lost", Promise: true, OK: lost == 0, Measured: fmt.Sprintf("lacking: %s, in %s", report.Count(lost, "object"), report.Count(len(rep.Repeats), "repeat"))}}
	for s, name := range [services]string{mostRecent: "Most Recent is never stale", notOlder: "Not older than N has N", anyState: "Any is no staler than its header says"} {
		if name == "" {
			continue // writes have no promise of their own here
		}
		kept := rep.Promises[service(s).String()]
		rep.Verdicts = append(rep.Verdicts, report.Verdict{Name: name, Promise: true, OK: kept.Broken == 0 && kept.Answers > 0, Measured: fmt.Sprintf("%d of %d answers broke it", kept.Broken, kept.Answers)})
	}
	if e := rep.Errors[strange.String()]; e.Count > 0 {
		rep.Verdicts = append(rep.Verdicts, report.Verdict{Name: "Answers are what was asked for", Promise: true, Measured: fmt.Sprintf("%d are not; the first: %s", e.Count, e.First)})
	}
	never := 0
	for _, s := range rep.Summary {
		never += s.Wrote.Never
	}
	rep.Verdicts = append(rep.Verdicts,
		report.Verdict{Name: "Every node came back", OK: never == 0, Measured: fmt.Sprintf("%d of %d were not writable again before the next fault", never, len(rep.Summary)*len(rep.Repeats))},
		report.Verdict{Name: "The load was what it should be", OK: rep.Unsent == 0 && rep.Lag.P99Ms <= lagP99, Measured: fmt.Sprintf("requests were sent %s ms late (p99), %d not at all", measure.Ms(rep.Lag.P99Ms), rep.Unsent)})
}

// Failed reports whether a promise was broken. Errors are what is measured, and no failure.
func (rep *Report) Failed() bool { return report.AnyBroken(rep.Verdicts) }

// WriteJSON writes the report, in a line: indented, each bin of the time lines would have one.
func (rep *Report) WriteJSON(w io.Writer) error { return json.NewEncoder(w).Encode(rep) }

// loadLine says under which load it was measured.
func (rep *Report) loadLine() string {
	o := rep.Options
	text := fmt.Sprintf("%s; %g writes/s over all, %g reads/s of each mode on each node, given up after %g s; %d objects of %d bytes; load average before %.1f",
		report.Count(len(rep.Nodes), "node"), o.Writes, o.Reads, o.TimeoutSeconds, o.Objects, o.Size, rep.LoadAvg)
	if o.Relayed {
		text += "; what nodes send to each other goes through this program"
	}
	if o.Asked {
		text += "; the kernel asks this program before each sync"
	}
	return text
}
