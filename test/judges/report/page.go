package report

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/quorate/quorate/test/judges/check"
	"github.com/quorate/quorate/test/judges/history"
)

// page is what page.html shows.
type page struct {
	Name       string
	Seed       uint64
	OK         bool
	Headline   string
	Facts      []fact // of the run
	Tiles      []tile
	Violations []check.Violation
	Omitted    int
	Ops        table // kind by outcome
	Latencies  table // reads by mode, writes
	Faults     []fact
	States     []history.State
	Data       *data
}

type fact struct{ Name, Value string }

// tile is a figure; a bad one should be zero.
type tile struct {
	Name, Value string
	Bad         bool
}

type table struct {
	Head []string
	Rows [][]string
}

func newPage(h *history.History, v *check.Verdict) *page {
	c := &v.Counts
	p := &page{
		Name: h.Name, Seed: h.Seed, OK: v.OK(), Violations: v.Violations, Omitted: v.Omitted,
		Headline: "Every promise was kept", Tiles: tiles(c), States: h.States,
		Ops: byOutcome(c), Latencies: latencies(h), Data: newData(h, v),
	}
	if p.Name == "" {
		p.Name = "A run"
	}
	if !p.OK {
		p.Headline = plural(len(v.Violations)+v.Omitted, "violation")
	}
	p.Facts = []fact{
		{"duration", duration(time.Duration(p.Data.End * float64(time.Millisecond)))},
		{"nodes", thousands(len(p.Data.Nodes))},
		{"clients", thousands(clients(h))},
		{"judged in", duration(v.Elapsed)},
	}
	for _, kind := range slices.Sorted(maps.Keys(c.Faults)) {
		p.Faults = append(p.Faults, fact{kind, thousands(c.Faults[kind])})
	}
	return p
}

func clients(h *history.History) int {
	seen := map[int]bool{}
	for i := range h.Ops {
		seen[h.Ops[i].Client] = true
	}
	return len(seen)
}

func tiles(c *check.Counts) []tile {
	bad := func(name string, n int) tile { return tile{name, thousands(n), n > 0} }
	good := func(name string, n int) tile { return tile{name, thousands(n), false} }
	return []tile{
		good("operations", c.Operations()), good("unknown outcomes", c.Unknown), good("of them happened", c.Happened),
		good("versions", c.Log), good("watches", c.Watches), good("events", c.Events), good("bookmarks", c.Bookmarks),
		bad("lost acknowledged writes", c.LostWrites), bad("stale Most Recent reads", c.StaleReads),
		bad("duplicated events", c.Duplicated), bad("missing events", c.Missing), bad("misordered events", c.Misordered),
		bad("forced relists", c.Relists), good("overtaken by a floor moved on purpose", c.Overtaken),
	}
}

func byOutcome(c *check.Counts) table {
	outcomes := []history.Outcome{history.OK, history.Refused, history.Unknown}
	t := table{Head: []string{"operation", "ok", "refused", "unknown"}}
	for _, kind := range slices.Sorted(maps.Keys(c.Ops)) {
		row := []string{string(kind)}
		for _, o := range outcomes {
			row = append(row, thousands(c.Ops[kind][o]))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// latencies are of operations that were answered with ok.
func latencies(h *history.History) table {
	by := map[string][]time.Duration{}
	for i := range h.Ops {
		o := &h.Ops[i]
		if o.Outcome != history.OK || o.Return == history.Forever {
			continue
		}
		name := "write"
		if o.Mode != "" {
			name = string(o.Kind) + " " + string(o.Mode)
		}
		by[name] = append(by[name], o.Return-o.Call)
	}
	t := table{Head: []string{"latency", "answers", "p50", "p99", "max"}}
	for _, name := range slices.Sorted(maps.Keys(by)) {
		d := by[name]
		slices.Sort(d)
		at := func(q float64) string { return duration(d[min(len(d)-1, int(q*float64(len(d))))]) }
		t.Rows = append(t.Rows, []string{name, thousands(len(d)), at(0.5), at(0.99), duration(d[len(d)-1])})
	}
	return t
}

// index is what index.html shows.
type index struct {
	Title    string
	OK       bool
	Headline string
	Tiles    []tile
	Ops      table
	Faults   []fact
	Runs     []Run
}

func newIndex(title string, runs []Run) *index {
	var sum check.Counts
	failed := 0
	for _, r := range runs {
		sum.Add(&r.Verdict.Counts)
		if r.Failed() {
			failed++
		}
	}
	x := &index{Title: title, OK: failed == 0, Headline: plural(len(runs), "run") + ", every promise was kept", Ops: byOutcome(&sum), Runs: slices.Clone(runs)}
	x.Tiles = append([]tile{{"runs", thousands(len(runs)), false}, {"failed", thousands(failed), failed > 0}}, tiles(&sum)...)
	if failed > 0 {
		x.Headline = plural(failed, "run") + " of " + thousands(len(runs)) + " failed"
	}
	for _, kind := range slices.Sorted(maps.Keys(sum.Faults)) {
		x.Faults = append(x.Faults, fact{kind, thousands(sum.Faults[kind])})
	}
	slices.SortStableFunc(x.Runs, func(a, b Run) int {
		return cmp.Compare(len(b.Verdict.Violations), len(a.Verdict.Violations))
	})
	return x
}
