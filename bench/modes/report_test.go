package modes

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/bench/client"
	"github.com/quorate/quorate/bench/measure"
	"github.com/quorate/quorate/bench/probe"
	"github.com/quorate/quorate/bench/report"
	"github.com/quorate/quorate/bench/report/reporttest"
	"github.com/quorate/quorate/internal/must"
)

// sample is a report of two nodes with everything in it.
func sample(t *testing.T) *Report {
	t.Helper()
	leader, follower := target{client.Node{Name: "n1"}, client.Leader}, target{client.Node{Name: "n2"}, client.Follower}
	r := &run{opt: DefaultOptions(), all: []target{follower, leader}, nodes: []target{leader, follower}, lag: measure.NewHistogram(), ledger: probe.NewLedger(4), writers: &writers{latency: measure.NewHistogram()}}
	r.opt.Command = `quorate bench modes --output-dir '<script>&'`
	r.opt.Commit = "abc"
	r.violations = []string{`most-recent get on <b>n2</b>: lacks 1`}
	for _, n := range r.nodes {
		for _, verb := range []Verb{Get, List} {
			for i, mode := range AllModes {
				if mode == probe.Exact && verb == Get {
					continue
				}
				c := &cell{mode: mode, verb: verb, node: n, run: r, tally: newTally()}
				for k := range int64(1000) {
					c.latency.Record(500 + k + int64(i)*300)
					age := int64(0)
					if mode == probe.Any && n.role == client.Follower && k%10 == 0 {
						age = k
						c.stale++
						c.versions.Record(1 + k/100)
					}
					c.age.Record(age)
					if mode == probe.Any {
						c.bound.Record(100_000)
					}
					s := &c.slots[k*slots/1000]
					s.reads, s.maxLatency, s.maxAge = s.reads+1, time.Duration(k)*time.Millisecond, time.Duration(age)*time.Microsecond
				}
				r.cells = append(r.cells, c)
			}
		}
	}
	for _, mode := range []probe.Mode{probe.Any, probe.MostRecent} {
		p := &pair{mode: mode, run: r, pairTally: newPairTally()}
		for k := range int64(100) {
			second := numbered(50)
			if mode == probe.Any && k%20 == 0 {
				second.Number -= 3
			}
			p.note(leader, follower, numbered(50), second, nil)
		}
		r.pairs = append(r.pairs, p)
	}
	r.cells[0].firstError, r.cells[0].errors = errors.New("refused"), 1
	r.writers.latency.Record(4000)
	rep := r.newReport()
	rep.Options.RatePerCell = 50
	rep.Saturation = &Saturation{ReadsPerSecond: 1400, Workers: 32}
	for _, n := range r.all {
		rep.Nodes = append(rep.Nodes, NodeReport{Name: n.Name, Role: n.role, Measured: true, Cores: 0.5, FsyncMs: 1})
	}
	rep.Costs = []Cost{{Node: "n1", Role: client.Leader, Reads: 2000, IndexCalls: 1900, WaitIndexMs: 0.3, RoundTripMs: 0.2}, {Node: "n2", Role: client.Follower, Reads: 2000, IndexCalls: 1900, WaitIndexMs: 0.4, WaitLogMs: 0.3, RoundTripMs: 0.2}}
	r.fill(rep)
	half := *rep
	half.Options.Load, rep.Options.Load = 0.5, 0.9
	rep.Saturation = &Saturation{ReadsPerSecond: 1400, Workers: 32}
	half.ByLoad, half.Verdicts = nil, nil
	return joined([]*Report{&half, rep})
}

func numbered(n int64) answer { return answer{Answer: probe.Answer{Number: n}} }

func TestSchema(t *testing.T) { reporttest.Schema(t, Schema, sample(t)) }

func TestVerdicts(t *testing.T) {
	verdict := func(r *Report, name string) report.Verdict {
		for _, v := range r.Verdicts {
			if strings.HasPrefix(v.Name, name) {
				return v
			}
		}
		return report.Verdict{Name: "none"}
	}
	for _, c := range []struct {
		name, verdict string
		change        func(*Report)
		ok, failed    bool
	}{
		{"an error", "Every request", func(*Report) {}, false, true},
		{"none", "Every request", func(r *Report) { r.Cells[0].Errors = 0 }, true, false},
		{"a failed write", "Every request", func(r *Report) { r.Cells[0].Errors, r.Writes.Errors = 0, 1 }, false, true},
		{"stale Most Recent", "Most Recent is never", func(r *Report) { r.cell(probe.MostRecent, Get, "n2").Violations = 1 }, false, true},
		{"stale beyond the header", "Any is no staler", func(r *Report) { r.cell(probe.Any, List, "n2").Violations = 1 }, false, true},
		{"another revision", "Exact N", func(r *Report) { r.cell(probe.Exact, List, "n1").Violations = 1 }, false, true},
		{"below N", "Not older", func(r *Report) { r.cell(probe.NotOlderThan, List, "n1").Violations = 1 }, false, true},
		{"no reads are no proof", "Exact N", func(r *Report) {
			r.Cells[0].Errors = 0
			r.cell(probe.Exact, List, "n1").Latency.Count, r.cell(probe.Exact, List, "n2").Latency.Count = 0, 0
		}, false, true},
		{"more questions than reads", "Most Recent on a follower costs", func(r *Report) { r.Cells[0].Errors, r.Costs[1].IndexCalls = 0, 5101 }, false, false},
		{"slow", "p99 of Most Recent get", func(r *Report) { r.Cells[0].Errors, r.cell(probe.MostRecent, Get, "n2").Latency.P99Ms = 0, 5.1 }, false, false},
		{"the leader may be slow", "p99 of Most Recent get", func(r *Report) { r.Cells[0].Errors, r.cell(probe.MostRecent, Get, "n1").Latency.P99Ms = 0, 5.1 }, true, false},
		{"back in time", "Most Recent and Not older never go back", func(r *Report) { r.Monotonic[1].Older = 1 }, false, true},
		{"Any may go back", "Most Recent and Not older never go back", func(r *Report) { r.Cells[0].Errors, r.Monotonic[0].Older = 0, 50 }, true, false},
		{"stale on the way", "Most Recent and Not older never go back", func(r *Report) { r.Monotonic[0].Violations = 1 }, false, true},
		{"no pairs are no proof", "Most Recent and Not older never go back", func(r *Report) { r.Monotonic[1].Pairs = 0 }, false, true},
		{"a pair without an answer", "Every request", func(r *Report) { r.Cells[0].Errors, r.Monotonic[0].Errors = 0, 1 }, false, true},
		{"unsent", "The load", func(r *Report) { r.Cells[0].Errors, r.Generator.Unsent = 0, 1 }, false, false},
	} {
		r := sample(t)
		c.change(r)
		r.judge()
		if v := verdict(r, c.verdict); v.OK != c.ok || v.Name == "none" {
			t.Errorf("%s: %+v", c.name, v)
		}
		if r.Failed() != c.failed {
			t.Errorf("%s: failed is %v", c.name, r.Failed())
		}
	}
}

// TestServers: what has no roles has no goals of them, and no promise where it says no bound.
func TestServers(t *testing.T) {
	r := sample(t)
	for i := range r.Cells {
		r.Cells[i].Role, r.Cells[i].Staleness.Said = client.Server, nil
	}
	for i := range r.Costs {
		r.Costs[i].Role = client.Server
	}
	r.Cells[0].Errors = 0
	r.judge()
	var names []string
	for _, v := range r.Verdicts {
		names = append(names, v.Name)
	}
	want := []string{"Most Recent is never stale", "Not older than N has N", "Exact N is the state at N", "Any promises nothing: the servers say no bound", "Most Recent and Not older never go back from node to node", "Every request was answered", "The load was what it should be"}
	if !slices.Equal(names, want) || r.Failed() {
		t.Errorf("%q, failed: %v", names, r.Failed())
	}
}

func TestOverAny(t *testing.T) {
	r := sample(t)
	if c := r.cell(probe.MostRecent, Get, "n2"); c.OverAny == nil || c.OverAny.P50Ms < 0.89 || c.OverAny.P50Ms > 0.91 {
		t.Errorf("Most Recent over Any: %+v, want 0.9 ms", c.OverAny)
	}
	if c := r.cell(probe.Any, Get, "n2"); c.OverAny != nil || c.Staleness.Stale != 100 || c.Staleness.VersionsMax != 10 || c.Staleness.Share != 0.1 {
		t.Errorf("Any: %+v", c.Staleness)
	}
	if k := r.Costs[1]; k.OverAnyMs < 0.89 || k.OverAnyMs > 0.91 {
		t.Errorf("the follower's cost: %+v", k)
	}
}

// TestMonotonic: pairs are counted by mode and way, and what goes back although it must not is
// told.
func TestMonotonic(t *testing.T) {
	r := sample(t)
	any, recent := r.Monotonic[0], r.Monotonic[1]
	if any.Pairs != 100 || any.Older != 5 || any.Share != 0.05 || any.Versions.Max != 3 || any.Versions.P90 != 0 || any.Versions.P99 != 3 || recent.Pairs != 100 || recent.Older != 0 {
		t.Errorf("%+v, %+v", any, recent)
	}
	if len(any.Ways) != 1 || any.Ways[0] != (Way{client.Leader, client.Follower, 100, 5}) || any.reads["n1"] != 100 || any.reads["n2"] != 100 {
		t.Errorf("%+v, %v", any.Ways, any.reads)
	}
	run := &run{}
	p := &pair{mode: probe.MostRecent, run: run, pairTally: newPairTally()}
	from, to := target{client.Node{Name: "n1"}, client.Leader}, target{client.Node{Name: "n2"}, client.Follower}
	p.note(from, to, numbered(7), numbered(6), nil)
	p.note(from, to, numbered(7), answer{probe.Answer{Number: 9}, "stale"}, nil)
	p.note(from, to, answer{}, answer{}, io.EOF)
	if m := p.report(); m.Pairs != 2 || m.Older != 1 || m.Errors != 1 || m.Violations != 1 || len(run.violations) != 2 || !strings.Contains(run.violations[0], "n1 had write 7, and n2, asked after that, write 6") {
		t.Errorf("%+v, %q", m, run.violations)
	}
}

// TestLoads: of several loads the last is the report, the others are beside it; a promise
// that one of them broke is broken.
func TestLoads(t *testing.T) {
	one, two := sample(t), sample(t)
	one.ByLoad, two.ByLoad = nil, nil
	one.Options.Load, two.Options.Load = 0.1, 0.5
	one.cell(probe.MostRecent, Get, "n2").Violations = 1
	for _, r := range []*Report{one, two} {
		r.Cells[0].Errors = 0
		r.judge()
	}
	if two.Failed() {
		t.Fatal("the second has failed")
	}
	r := joined([]*Report{one, two})
	if !r.Failed() || len(r.ByLoad) != 2 || r.ByLoad[0].Load != 0.1 || len(r.ByLoad[1].Cells) != len(two.Cells) || r.Options.Load != 0.5 {
		t.Errorf("failed %v, %d loads", r.Failed(), len(r.ByLoad))
	}
	if !slices.ContainsFunc(r.Verdicts, func(v report.Verdict) bool { return v.Name == "Most Recent is never stale (at load 0.1)" && !v.OK }) {
		t.Errorf("%+v", r.Verdicts)
	}
	if alone := joined([]*Report{two}); len(alone.ByLoad) != 0 && alone != two {
		t.Error("one load is not by itself")
	}
}

// TestUnits: of all reads that are due each cell has a share, and each pair two.
func TestUnits(t *testing.T) {
	r := &run{cells: []*cell{{}, {}, {}}, pairs: []*pair{{}}}
	cells, pairs, none := 0, 0, 0
	for range 10_000 {
		switch c, p := r.unit(); {
		case c != nil:
			cells++
		case p != nil:
			pairs++
		default:
			none++
		}
	}
	if r.perCell(100) != 20 || cells < 5700 || cells > 6300 || pairs < 1800 || pairs > 2200 || none < 1800 || none > 2200 {
		t.Errorf("%g; %d cells, %d pairs, %d times nothing", r.perCell(100), cells, pairs, none)
	}
}

func TestTable(t *testing.T) {
	var buf bytes.Buffer
	must.OK(t, sample(t).Doc().WriteTable(&buf))
	for _, want := range []string{"follower n2", "Not older than N", "100 (10.00 %)", "+0.90", "≤ 100", "follower n2   get  50 %", "follower n2   get  90 %", " 5 %", "BROKEN  Every request was answered: 1 error; the first: refused", "ok      Most Recent is never stale: 0 of 4000 reads broke it"} {
		if !strings.Contains(buf.String(), want) {
			t.Errorf("no %q in\n%s", want, buf.String())
		}
	}
}

// TestFiles: a line of CSV for each cell and load, and percentile files of each cell.
func TestFiles(t *testing.T) {
	r := sample(t)
	var csv bytes.Buffer
	must.OK(t, r.WriteCSV(&csv))
	lines := strings.Split(strings.TrimSpace(csv.String()), "\n")
	if len(lines) != 1+2*len(r.Cells) {
		t.Errorf("%d lines", len(lines))
	}
	for _, line := range lines {
		if strings.Count(line, ",") != strings.Count(lines[0], ",") {
			t.Errorf("%s", line)
		}
	}
	dir := t.TempDir()
	files := r.Histograms()
	if err := measure.WriteFiles(dir, "modes", files); err != nil || len(files) != len(r.Cells)+4 {
		t.Fatalf("%v, %v", files, err)
	}
	raw, err := os.ReadFile(dir + "/modes-get-any-n2-staleness.hgrm")
	if err != nil || !strings.Contains(string(raw), "Total count    =         1000") {
		t.Errorf("%s, %v", raw, err)
	}
}

// TestPage: one file, well formed, nothing from elsewhere, nothing unescaped.
func TestPage(t *testing.T) {
	r := sample(t)
	var buf bytes.Buffer
	must.OK(t, r.Doc().WriteHTML(&buf))
	page := buf.String()
	raw := reporttest.Page(t, page, 2+4+1+2+2, "<b>n2</b>", "'<script>")
	for _, want := range []string{"Most Recent is never stale", "leader n1", "follower n2", "prefers-color-scheme: dark", "BROKEN"} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in the page", want)
		}
	}
	var back Report
	if err := json.Unmarshal(raw, &back); err != nil || back.Schema != Schema || back.Command != r.Command || len(back.Cells) != len(r.Cells) {
		t.Errorf("the report in the page: %v, %d cells", err, len(back.Cells))
	}
}

// TestPageOfLittle: reports without some modes, nodes or reads have pages too.
func TestPageOfLittle(t *testing.T) {
	keep := func(f func(CellReport) bool) func(*Report) {
		return func(r *Report) {
			r.Cells = slices.DeleteFunc(r.Cells, func(c CellReport) bool { return !f(c) })
		}
	}
	for name, change := range map[string]func(*Report){
		"no Any":       keep(func(c CellReport) bool { return c.Mode != probe.Any }),
		"only Any":     keep(func(c CellReport) bool { return c.Mode == probe.Any }),
		"one node":     keep(func(c CellReport) bool { return c.Node == "n1" }),
		"only exact":   keep(func(c CellReport) bool { return c.Mode == probe.Exact }),
		"nothing read": func(r *Report) { empty(r) },
	} {
		r := sample(t)
		change(r)
		r.judge()
		var buf bytes.Buffer
		if err := errors.Join(r.Doc().WriteHTML(&buf), r.Doc().WriteTable(io.Discard), report.WriteJSON(io.Discard, r)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if strings.Contains(buf.String(), "NaN") || strings.Contains(buf.String(), "Inf") {
			t.Errorf("%s: no number in the page", name)
		}
		reporttest.Balanced(t, buf.String())
	}
}

func empty(r *Report) {
	for i := range r.Cells {
		r.Cells[i].Latency, r.Cells[i].Staleness, r.Cells[i].OverAny = measure.Latency{}, Staleness{}, nil
	}
}

// cellOf is one of a report, with the latencies of a get or a list.
func cellOf(role client.Role, verb Verb, p50, overAny float64, s Staleness) CellReport {
	c := CellReport{LoadCell: LoadCell{Node: "n1", Role: role, Verb: verb, Latency: measure.Latency{Count: 200, P50Ms: p50, P99Ms: 2 * p50}, Staleness: s}}
	if overAny != 0 {
		c.OverAny = &Over{P50Ms: overAny}
	}
	return c
}

func TestCards(t *testing.T) {
	stale := Staleness{Stale: 10, VersionsMax: 1, Age: measure.Latency{MaxMs: 3.2}}
	for _, c := range []struct {
		name  string
		mode  probe.Mode
		cells []CellReport
		want  string // title, p50, text
	}{
		{"a get of a follower is shown", probe.MostRecent, []CellReport{cellOf(client.Leader, Get, 1, 0.5, Staleness{}), cellOf(client.Follower, List, 9, 1, Staleness{}), cellOf(client.Follower, Get, 2, 0.7, Staleness{})},
			"Most Recent|2.00|get on the follower. 0.70 ms over the get of Any there (p50). Never stale in 600 reads on all nodes."},
		{"only lists: beside lists, and it says so", probe.Exact, []CellReport{cellOf(client.Follower, List, 20, -36.3, Staleness{})},
			"Exact N, lists|20.0|list on the follower. 36.3 ms under the list of Any there (p50). Never stale in 200 reads on all nodes."},
		{"one version", probe.Any, []CellReport{cellOf(client.Follower, Get, 1, 0, stale)},
			"Any|1.00|get on the follower. 5 % of 200 reads on all nodes were stale, by at most 1 version and 3.20 ms."},
		{"several", probe.Any, []CellReport{cellOf(client.Follower, Get, 1, 0, Staleness{Stale: 1, VersionsMax: 4})},
			"Any|1.00|get on the follower. 0.5 % of 200 reads on all nodes were stale, by at most 4 versions and 0.00 ms."},
	} {
		k := card(c.mode, c.cells)
		if got := k.Title + "|" + k.P50 + "|" + k.Text; got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestCosts: a difference has one sign.
func TestCosts(t *testing.T) {
	for over, want := range map[float64]string{41.9: ">+41.9 over Any<", -41.9: ">-41.9 over Any<", 0: ">+0.00 over Any<"} {
		r := sample(t)
		r.Costs = []Cost{{Node: "n2", Role: client.Follower, OverAnyMs: over}}
		if figure := string(r.costs()); !strings.Contains(figure, want) || strings.Contains(figure, "+-") {
			t.Errorf("%g: no %q in\n%s", over, want, figure)
		}
	}
}

// TestTails: of a node that was never stale it is said, and nothing is drawn; the others' lines end above the axis.
func TestTails(t *testing.T) {
	c := sample(t).tails(Get)
	if len(c.Lines) != 1 || c.Lines[0].Class != "c-follower" || !slices.Equal(c.Notes, []string{"leader n1: never stale in 1000 reads"}) {
		t.Fatalf("%+v", c)
	}
	last := c.Lines[0].Values[len(c.Lines[0].Values)-1]
	if last.Y != 0.1 || last.X < 0.98 || !strings.Contains(last.Tip, "the stalest") {
		t.Errorf("the end is %+v: one of a thousand", last)
	}
	figure := string(c.Draw())
	if n := strings.Count(figure, "<polyline"); n != 1 || !strings.Contains(figure, ">leader n1: never stale in 1000 reads<") {
		t.Errorf("%d lines in\n%s", n, figure)
	}
}

// TestTimeline: a part of the run without a read is a gap, and not a latency of nothing.
func TestTimeline(t *testing.T) {
	slots := func(ms ...float64) (out []Slot) {
		for i, v := range ms {
			s := Slot{AtSeconds: float64(i), MaxLatencyMs: max(v, 0)}
			if v >= 0 {
				s.Reads = 1
			}
			out = append(out, s)
		}
		return out
	}
	for _, c := range []struct {
		name  string
		cells [][]Slot
		want  []string // the curves: the places of their points
	}{
		{"all", [][]Slot{slots(10, 5, 0)}, []string{"50.0,20.0 290.0,98.0 530.0,176.0"}},
		{"a gap", [][]Slot{slots(10, -1, 5)}, []string{"50.0,20.0", "530.0,98.0"}},
		{"the other verb was read", [][]Slot{slots(10, -1, 5), slots(-1, 5, -1)}, []string{"50.0,20.0 290.0,98.0 530.0,98.0"}},
		{"never read", [][]Slot{slots(-1, -1, -1)}, nil},
	} {
		r := &Report{Options: OptionsReport{DurationSeconds: 2}, Nodes: []NodeReport{{Name: "n1", Role: client.Follower}}}
		for _, s := range c.cells {
			r.Cells = append(r.Cells, CellReport{LoadCell: LoadCell{Node: "n1", Mode: probe.MostRecent}, Slots: s})
		}
		var got []string
		for _, x := range strings.Split(string(r.timeline(r.Cells, func(s Slot) float64 { return s.MaxLatencyMs }).Draw()), `<polyline points="`)[1:] {
			line, _, _ := strings.Cut(x, `"`)
			got = append(got, line)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
