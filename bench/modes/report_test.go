package modes

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/bench/client"
	"github.com/quorate/quorate/bench/measure"
	"github.com/quorate/quorate/bench/probe"
	"golang.org/x/net/html"
)

var update = flag.Bool("update", false, "rewrite testdata/schema.txt")

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
	return rep
}

// TestSchema: readers of the JSON find what they found before. A field that is
// gone or has another type needs another Schema.
func TestSchema(t *testing.T) {
	var buf bytes.Buffer
	if err := sample(t).WriteJSON(&buf); err != nil {
		t.Fatal(err)
	}
	var tree any
	if err := json.Unmarshal(buf.Bytes(), &tree); err != nil {
		t.Fatal(err)
	}
	fields := map[string]bool{}
	walk(tree, "", fields)
	var lines []string
	for f := range fields {
		lines = append(lines, f)
	}
	slices.Sort(lines)
	got := Schema + "\n" + strings.Join(lines, "\n") + "\n"
	const file = "testdata/schema.txt"
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the fields differ from %s (run with -update and read the difference):\n%s", file, got)
	}
}

func walk(v any, path string, out map[string]bool) {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			walk(x, path+"."+k, out)
		}
	case []any:
		for _, x := range v {
			walk(x, path+"[]", out)
		}
	default:
		out[fmt.Sprintf("%s %T", strings.TrimPrefix(path, "."), v)] = true
	}
}

func TestVerdicts(t *testing.T) {
	verdict := func(r *Report, name string) probe.Verdict {
		for _, v := range r.Verdicts {
			if strings.HasPrefix(v.Name, name) {
				return v
			}
		}
		return probe.Verdict{Name: "none"}
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
		{"more questions than reads", "Most Recent on a follower costs", func(r *Report) { r.Cells[0].Errors, r.Costs[1].IndexCalls = 0, 5001 }, false, false},
		{"slow", "p99 of Most Recent get", func(r *Report) { r.Cells[0].Errors, r.cell(probe.MostRecent, Get, "n2").Latency.P99Ms = 0, 5.1 }, false, false},
		{"the leader may be slow", "p99 of Most Recent get", func(r *Report) { r.Cells[0].Errors, r.cell(probe.MostRecent, Get, "n1").Latency.P99Ms = 0, 5.1 }, true, false},
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

func TestTable(t *testing.T) {
	var buf bytes.Buffer
	if err := sample(t).WriteTable(&buf); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"follower n2", "Not older than N", "100 (10.00 %)", "+0.90", "≤ 100", "BROKEN  Every request was answered: 1 errors; the first: refused", "ok      Most Recent is never stale: 0 of 4000 reads broke it"} {
		if !strings.Contains(buf.String(), want) {
			t.Errorf("no %q in\n%s", want, buf.String())
		}
	}
}

// outside are the ways in which a page asks for something that is not in it.
var outside = regexp.MustCompile(`(?i)https?:|//[a-z]|@import|url\(|\bsrc\s*=|\bhref\s*=|<link|<iframe|<script(?:\s|>)(?:[^>]*)>`)

// TestPage: one file, well formed, nothing from elsewhere, nothing unescaped.
func TestPage(t *testing.T) {
	r := sample(t)
	var buf bytes.Buffer
	if err := r.WriteHTML(&buf); err != nil {
		t.Fatal(err)
	}
	page := buf.String()
	for _, found := range outside.FindAllString(page, -1) {
		if found != `<script type="application/json" id="report">` {
			t.Errorf("the page has %q", found)
		}
	}
	if strings.Contains(page, "<b>n2</b>") || strings.Contains(page, "'<script>") || strings.Contains(page, "NaN") || strings.Contains(page, "ZgotmplZ") {
		t.Error("the page has what was not escaped, or no number")
	}
	for _, want := range []string{"Most Recent is never stale", "leader n1", "follower n2", "prefers-color-scheme: dark", "BROKEN"} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in the page", want)
		}
	}
	if n := strings.Count(page, "<svg"); n != 2+4+1+2+2 {
		t.Errorf("%d figures", n)
	}
	balanced(t, page)
	_, raw, _ := strings.Cut(page, `id="report">`)
	raw, _, _ = strings.Cut(raw, "</script>")
	var back Report
	if err := json.Unmarshal([]byte(raw), &back); err != nil || back.Schema != Schema || back.Command != r.Command || len(back.Cells) != len(r.Cells) {
		t.Errorf("the report in the page: %v, %d cells", err, len(back.Cells))
	}
}

// balanced fails for a page whose elements do not close in order.
func balanced(t *testing.T, page string) {
	t.Helper()
	void := map[string]bool{"meta": true, "br": true}
	var open []string
	z := html.NewTokenizer(strings.NewReader(page))
	for {
		switch z.Next() {
		case html.ErrorToken:
			if z.Err() != io.EOF || len(open) > 0 {
				t.Errorf("%v, open: %v", z.Err(), open)
			}
			return
		case html.StartTagToken:
			if name, _ := z.TagName(); !void[string(name)] {
				open = append(open, string(name))
			}
		case html.EndTagToken:
			name, _ := z.TagName()
			if len(open) == 0 || open[len(open)-1] != string(name) {
				t.Fatalf("</%s> closes %v", name, open)
			}
			open = open[:len(open)-1]
		}
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
		if err := errors.Join(r.WriteHTML(&buf), r.WriteTable(io.Discard), r.WriteJSON(io.Discard)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if strings.Contains(buf.String(), "NaN") || strings.Contains(buf.String(), "Inf") {
			t.Errorf("%s: no number in the page", name)
		}
		balanced(t, buf.String())
	}
}

func empty(r *Report) {
	for i := range r.Cells {
		r.Cells[i].Latency, r.Cells[i].Staleness, r.Cells[i].OverAny = measure.Latency{}, Staleness{}, nil
	}
}
