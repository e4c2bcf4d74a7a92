package modes

import (
	"fmt"

	"github.com/quorate/quorate/bench/client"
	"github.com/quorate/quorate/bench/measure"
	"github.com/quorate/quorate/bench/probe"
	"github.com/quorate/quorate/bench/report"
)

// Schema names the form of the JSON. It changes when a field changes its meaning
// or goes; new fields may come.
const Schema = "quorate.bench.modes/v1"

// Report is one measurement. Times whose name ends in Ms are milliseconds.
type Report struct {
	report.Head

	Options    OptionsReport `json:"options"`
	Nodes      []NodeReport  `json:"nodes"`
	Saturation *Saturation   `json:"saturation,omitempty"`
	Generator  Generator     `json:"generator"`
	Writes     WriteReport   `json:"writes"`
	Cells      []CellReport  `json:"cells"`
	// Monotonic is absent if one node was measured.
	Monotonic []Monotonic `json:"monotonicReads,omitempty"`
	// ByLoad has every load if there were several; the rest of the report is of the last.
	ByLoad []LoadReport `json:"byLoad,omitempty"`
	// Costs say, for each node, what Most Recent costs beside Any, and why.
	Costs      []Cost           `json:"mostRecentCosts"`
	Verdicts   []report.Verdict `json:"verdicts"`
	Violations []string         `json:"violations,omitempty"` // the first ones
}

// OptionsReport is what was asked for.
type OptionsReport struct {
	DurationSeconds float64 `json:"durationSeconds"`
	RatePerCell     float64 `json:"readsPerSecondAndCell"`
	Load            float64 `json:"load,omitempty"` // share of the throughput
	WritesPerSecond float64 `json:"writesPerSecond"`
	Probes          int     `json:"probes"`
	Objects         int     `json:"objects"`
	Size            int     `json:"valueBytes"`
}

// NodeReport is one node of the cluster.
type NodeReport struct {
	Name     string      `json:"name"`
	Role     client.Role `json:"role"`
	Measured bool        `json:"measured"`
	Cores    float64     `json:"coresUsed"` // processor time per time; zero if unknown
	FsyncMs  float64     `json:"logWriteMeanMs"`
}

// Saturation is the throughput that the rate was derived from.
type Saturation struct {
	ReadsPerSecond float64 `json:"readsPerSecond"`
	Workers        int     `json:"workers"`
}

// Generator is what the measuring program itself did.
type Generator struct {
	Cores float64 `json:"coresUsed"`
	// Lag is how long after they were due reads were sent; it is part of their latency.
	Lag    measure.Latency `json:"lag"`
	Unsent int64           `json:"readsNotSent"`
}

// WriteReport is the write load.
type WriteReport struct {
	PerSecond float64         `json:"acknowledgedPerSecond"`
	Errors    int64           `json:"errors"`
	Latency   measure.Latency `json:"latency"`
}

// CellReport is one mode, one verb, one node.
type CellReport struct {
	LoadCell
	PerSecond float64 `json:"readsPerSecond"`
	Errors    int64   `json:"errors"`
	Error     string  `json:"firstError,omitempty"`
	OverAny   *Over   `json:"overAny,omitempty"` // absent for Any and where Any was not measured
	Slots     []Slot  `json:"timeline"`

	latency, age measure.Histogram
}

// LoadReport is one load of several.
type LoadReport struct {
	Load        float64     `json:"load"`
	RatePerCell float64     `json:"readsPerSecondAndCell"`
	Cells       []LoadCell  `json:"cells"`
	Monotonic   []Monotonic `json:"monotonicReads,omitempty"`
}

// LoadCell is a cell at one load.
type LoadCell struct {
	Mode       probe.Mode      `json:"mode"`
	Verb       Verb            `json:"verb"`
	Node       string          `json:"node"`
	Role       client.Role     `json:"role"`
	Latency    measure.Latency `json:"latency"`
	Staleness  Staleness       `json:"staleness"`
	Violations int64           `json:"violations"`
}

// Over is what a mode costs more than Any, same verb and node.
type Over struct {
	MeanMs float64 `json:"meanMs"`
	P50Ms  float64 `json:"p50Ms"`
	P99Ms  float64 `json:"p99Ms"`
}

// Staleness is how far answers were behind what had been acknowledged when they
// were asked for: acknowledged writes that they lacked, and the time since the
// first of those was acknowledged.
type Staleness struct {
	Stale       int64           `json:"staleReads"`
	Share       float64         `json:"staleShare"`
	Versions    Versions        `json:"versions"` // of all reads; current ones count as zero
	VersionsP50 int64           `json:"versionsP50"`
	VersionsP99 int64           `json:"versionsP99"`
	VersionsMax int64           `json:"versionsMax"`
	Age         measure.Latency `json:"age"` // of all reads; current ones count as zero
	// Said is the bound of the header X-Quorate-Staleness; Any only.
	Said      *measure.Latency `json:"headerSaid,omitempty"`
	Unbounded int64            `json:"headerUnknown,omitempty"`
}

// Slot is a part of the measurement's time.
type Slot struct {
	AtSeconds    float64 `json:"atSeconds"`
	Reads        int64   `json:"reads"`
	MaxLatencyMs float64 `json:"maxLatencyMs"`
	MaxAgeMs     float64 `json:"maxAgeMs"`
}

// Cost is why Most Recent costs more than Any on one node. The differences are of
// latencies that this program measured; what the node waited for is from its
// own histograms; all are means.
type Cost struct {
	Node        string      `json:"node"`
	Role        client.Role `json:"role"`
	OverAnyMs   float64     `json:"getOverAnyMs"`
	OverAnyP50  float64     `json:"getOverAnyP50Ms"`
	WaitIndexMs float64     `json:"waitForIndexMs"` // per read: the running round's rest, if shared, and its own
	WaitLogMs   float64     `json:"waitForLogMs"`   // per read
	Reads       int64       `json:"reads"`          // that waited
	IndexCalls  int64       `json:"indexCalls"`     // questions for an index, which reads share; also of reads that waited long for their N
	IndexMs     float64     `json:"indexMs"`        // per question
	QuorumAsks  int64       `json:"quorumRounds"`   // questions that this node asked voters, as leader
	RoundTripMs float64     `json:"roundTripMs"`    // between the leader and the voters
}

// Failed reports whether a promise was broken or a request failed.
func (r *Report) Failed() bool { return report.AnyBroken(r.Verdicts) }

func (r *run) newReport() *Report {
	o := r.opt
	return &Report{
		Head:    report.NewHead(Schema, o.Command, o.Commit, r.cluster.Dir),
		Options: OptionsReport{DurationSeconds: o.Duration.Seconds(), WritesPerSecond: o.Writes, Probes: o.probes(), Objects: o.Objects, Size: o.Size},
	}
}

// joined is the report of several loads: the last one's, with all of them in ByLoad. A
// promise that was broken at any load is broken.
func joined(all []*Report) *Report {
	last := all[len(all)-1]
	if len(all) == 1 {
		return last
	}
	for _, r := range all {
		last.ByLoad = append(last.ByLoad, r.only())
		for _, v := range r.Verdicts {
			if r != last && !v.OK {
				v.Name = fmt.Sprintf("%s (at load %g)", v.Name, r.Options.Load)
				last.Verdicts = append(last.Verdicts, v)
			}
		}
	}
	return last
}

// only is what a report of one load has of it.
func (r *Report) only() LoadReport {
	l := LoadReport{Load: r.Options.Load, RatePerCell: r.Options.RatePerCell, Monotonic: r.Monotonic}
	for _, c := range r.Cells {
		l.Cells = append(l.Cells, c.LoadCell)
	}
	return l
}

// between adds what nodes and this process counted during the measurement.
func (rep *Report) between(r *run, was, is *usage) error {
	for _, u := range []*usage{was, is} {
		if u.err != nil {
			return u.err
		}
	}
	took := (is.at - was.at).Seconds()
	rep.Generator.Cores = (is.client - was.client).Seconds() / took
	var trip float64
	for _, n := range r.all {
		a, b := was.series[n.Name], is.series[n.Name]
		_, fsync := client.Observed(a, b, seriesFsync)
		rep.Nodes = append(rep.Nodes, NodeReport{
			Name: n.Name, Role: n.role, FsyncMs: fsync,
			Cores: (is.nodes[n.Name] - was.nodes[n.Name]).Seconds() / took,
		})
		if n.role == client.Leader {
			_, trip = client.Observed(a, b, seriesRoundTrip)
		}
	}
	for _, n := range r.cluster.Nodes {
		if n.API == "" {
			rep.Nodes = append(rep.Nodes, NodeReport{Name: n.Name, Role: "process", Cores: (is.nodes[n.Name] - was.nodes[n.Name]).Seconds() / took})
		}
	}
	for _, n := range r.nodes {
		a, b := was.series[n.Name], is.series[n.Name]
		c := Cost{Node: n.Name, Role: n.role, RoundTripMs: trip}
		c.Reads, c.WaitIndexMs = client.Observed(a, b, seriesWaitIndex)
		_, c.WaitLogMs = client.Observed(a, b, seriesWaitLog)
		_, c.IndexMs = client.Observed(a, b, seriesIndex)
		c.IndexCalls = int64(b.Sum(seriesIndexCalls) - a.Sum(seriesIndexCalls))
		c.QuorumAsks = int64(b.Sum(seriesRounds) - a.Sum(seriesRounds))
		rep.Costs = append(rep.Costs, c)
		for i := range rep.Nodes {
			rep.Nodes[i].Measured = rep.Nodes[i].Measured || rep.Nodes[i].Name == n.Name
		}
	}
	return nil
}

// fill adds what the cells and the writers have seen, when all is done.
func (r *run) fill(rep *Report) {
	seconds := r.opt.Duration.Seconds()
	r.mu.Lock()
	rep.Generator.Lag, rep.Generator.Unsent = r.lag.Latency(), r.unsent
	rep.Violations = r.violations
	r.mu.Unlock()
	r.writers.mu.Lock()
	rep.Writes = WriteReport{PerSecond: float64(r.writers.latency.TotalCount()) / seconds, Errors: r.writers.errors, Latency: r.writers.latency.Curve()}
	r.writers.mu.Unlock()
	for _, c := range r.cells {
		rep.Cells = append(rep.Cells, c.report(seconds))
	}
	for _, p := range r.pairs {
		rep.Monotonic = append(rep.Monotonic, p.report())
	}
	for i := range rep.Cells {
		c := &rep.Cells[i]
		if floor := rep.cell(probe.Any, c.Verb, c.Node); floor != nil && c.Mode != probe.Any {
			c.OverAny = &Over{MeanMs: c.Latency.MeanMs - floor.Latency.MeanMs, P50Ms: c.Latency.P50Ms - floor.Latency.P50Ms, P99Ms: c.Latency.P99Ms - floor.Latency.P99Ms}
		}
	}
	for i := range rep.Costs {
		k := &rep.Costs[i]
		if c := rep.cell(probe.MostRecent, Get, k.Node); c != nil && c.OverAny != nil {
			k.OverAnyMs, k.OverAnyP50 = c.OverAny.MeanMs, c.OverAny.P50Ms
		}
	}
	rep.judge()
}

func (rep *Report) cell(m probe.Mode, v Verb, node string) *CellReport {
	for i := range rep.Cells {
		if c := &rep.Cells[i]; c.Mode == m && c.Verb == v && c.Node == node {
			return c
		}
	}
	return nil
}

func (c *cell) report(seconds float64) CellReport {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := versionsOf(c.versions)
	out := CellReport{
		LoadCell: LoadCell{
			Mode: c.mode, Verb: c.verb, Node: c.node.Name, Role: c.node.role, Latency: c.latency.Curve(), Violations: c.violations,
			Staleness: Staleness{
				Stale: c.stale, Share: float64(c.stale) / float64(max(c.latency.TotalCount(), 1)), Unbounded: c.unbounded, Age: c.age.Curve(),
				Versions: v, VersionsP50: v.P50, VersionsP99: v.P99, VersionsMax: v.Max,
			},
		},
		Errors: c.errors, PerSecond: float64(c.latency.TotalCount()) / seconds, latency: c.latency, age: c.age,
	}
	if c.firstError != nil {
		out.Error = c.firstError.Error()
	}
	if c.bound.TotalCount() > 0 {
		said := c.bound.Latency()
		out.Staleness.Said = &said
	}
	for i, s := range c.slots {
		out.Slots = append(out.Slots, Slot{AtSeconds: seconds * float64(i) / slots, Reads: s.reads, MaxLatencyMs: measure.Millis(s.maxLatency), MaxAgeMs: measure.Millis(s.maxAge)})
	}
	return out
}
