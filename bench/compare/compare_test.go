package compare

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quorate/quorate/bench/report"
	"github.com/quorate/quorate/internal/must"
)

// TestRank: the values of published tables of Mann and Whitney's test, two-sided at 0.05,
// whose critical value is the largest U that is significant: the rank is one more.
func TestRank(t *testing.T) {
	for _, c := range []struct{ n, m, critical int }{
		{1, 1, -1}, {3, 3, -1}, {3, 4, -1}, {2, 8, 0}, {3, 5, 0}, {4, 4, 0}, {4, 5, 1}, {5, 5, 2}, {5, 10, 8}, {7, 7, 8}, {8, 10, 17}, {10, 10, 23}, {20, 20, 127},
	} {
		if got := rank(c.n, c.m); got != c.critical+1 || rank(c.m, c.n) != got {
			t.Errorf("%d and %d values: rank %d, want %d", c.n, c.m, got, c.critical+1)
		}
	}
	for n := 1; n < 50; n++ {
		if rank(n, n) > 0 != (n >= LeastRuns) {
			t.Errorf("%d runs of each: rank %d", n, rank(n, n))
		}
	}
	sum := 0.0
	for _, x := range distribution(6, 9) {
		sum += x
	}
	if sum != 5005 { // 15 over 6
		t.Errorf("%g orders", sum)
	}
}

// TestCoverage: of intervals of samples with a known difference 95 in 100 hold it, whatever
// the distribution, and not many more.
func TestCoverage(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for name, draw := range map[string]func() float64{"normal": r.NormFloat64, "exponential": r.ExpFloat64} {
		for _, n := range []int{5, 8, 20} {
			held := 0
			const rounds = 4000
			for range rounds {
				var a, b []float64
				for range n {
					a, b = append(a, draw()), append(b, draw()+3)
				}
				if i, ok := shift(a, b, absolute); ok && i.Low <= 3 && i.High >= 3 {
					held++
				}
			}
			// Below by chance: four standard deviations are 1.4 %.
			if share := float64(held) / rounds; share < confidence-0.014 || share > 0.99 {
				t.Errorf("%s, %d runs: %.3f of the intervals hold the difference", name, n, share)
			}
		}
	}
}

// reportOf is a report of load with runs whose gets have these p99s.
func reportOf(commit string, p99s ...float64) []byte {
	var runs []string
	for _, p := range p99s {
		runs = append(runs, fmt.Sprintf(`{"rows":[{"scenario":"get","operations":5,"operationsPerSecond":%g,"latency":{"count":5,"p50Ms":1,"p99Ms":%g},"cpuPerOperation":7}],"residentBytes":1048576}`, 1000/p, p))
	}
	return []byte(fmt.Sprintf(`{"schema":"quorate.bench.load/v1","commit":%q,"cpus":2,"options":{"workers":32,"repeat":%d},"runs":[%s]}`, commit, len(p99s), strings.Join(runs, ",")))
}

func setOf(t *testing.T, name string, reports ...[]byte) *Set {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	for i, raw := range reports {
		sub := filepath.Join(dir, fmt.Sprint(i))
		must.OK(t, os.MkdirAll(sub, 0o755))
		must.OK(t, os.WriteFile(filepath.Join(sub, "load.json"), raw, 0o644))
	}
	must.OK(t, os.WriteFile(filepath.Join(dir, "other.json"), []byte(`{"a":1}`), 0o644))
	s, err := Read(dir)
	must.OK(t, err)
	s.Name = name
	return s
}

func TestCompare(t *testing.T) {
	find := func(c *Comparison, figure string) Line {
		for _, l := range c.Lines {
			if l.Figure == figure {
				return l
			}
		}
		return Line{}
	}
	compare := func(sets ...*Set) *Comparison {
		c, err := Compare(sets)
		must.OK(t, err)
		return c
	}
	old := setOf(t, "old", reportOf("a", 10, 11, 12), reportOf("a", 10.5, 11.5))
	slower := setOf(t, "new", reportOf("b", 20, 22, 24, 21, 23))
	c := compare(old, slower)
	p99, ops, cpu := find(c, "p99 ms"), find(c, "ops/s"), find(c, "CPU µs/op")
	if p99.Verdict != Worse || p99.A != 11 || p99.B != 22 || p99.RunsA != 5 || math.Abs(p99.Difference.Estimate-1) > 0.05 || p99.Difference.Low < 0.6 || p99.Difference.High > 1.4 {
		t.Errorf("p99: %+v, %+v", p99, p99.Difference)
	}
	if ops.Verdict != Worse || cpu.Verdict != Same {
		t.Errorf("ops/s %s, CPU %s", ops.Verdict, cpu.Verdict)
	}
	if n := len(c.WorseThan(0.05)); n != 2 {
		t.Errorf("%d worse by 5 %%", n)
	}
	if n := len(c.WorseThan(2)); n != 0 || len(c.Untold()) != 0 {
		t.Errorf("%d worse by 200 %%, %d untold", n, len(c.Untold()))
	}
	var table bytes.Buffer
	must.OK(t, c.WriteTable(&table))
	for _, want := range []string{"the commits differ: old: a · new: b", "A: old (5 runs)", "WORSE", "no difference that can be told", "by chance"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("no %q in\n%s", want, table.String())
		}
	}
	if strings.Contains(table.String(), "settings differ") || strings.Contains(table.String(), "machines differ") {
		t.Errorf("a warning of what is the same:\n%s", table.String())
	}
	// The other way round it is better.
	if c := compare(slower, old); find(c, "p99 ms").Verdict != Better || find(c, "ops/s").Verdict != Better || len(c.WorseThan(0)) > 0 {
		t.Errorf("%+v", c.Lines)
	}
	// Too few runs tell nothing, however far apart they are.
	few := compare(setOf(t, "old", reportOf("a", 10, 11, 12)), setOf(t, "new", reportOf("a", 100, 110, 120)))
	if l := find(few, "p99 ms"); l.Verdict != TooFew || l.Difference != nil || len(few.WorseThan(0)) > 0 || len(few.Untold()) == 0 {
		t.Errorf("%+v", l)
	}
	// Three sets: the first is what the others are compared with.
	if c := compare(old, old, slower); len(c.Lines) != 2*len(old.series) || find(c, "p99 ms").Verdict != Same || len(c.WorseThan(0)) != 2 {
		t.Errorf("%+v", c.Lines)
	}
	// A figure that was zero has no share.
	x := line("", &series{better: lower, values: []float64{0, 0, 0, 0}}, &series{better: lower, values: []float64{1, 2, 3, 4}})
	if !x.Absolute || x.Verdict != Worse || x.Difference.Low != 1 {
		t.Errorf("%+v", x)
	}
	var raw bytes.Buffer
	if err := report.WriteJSON(&raw, c); err != nil || !json.Valid(raw.Bytes()) {
		t.Errorf("%v", err)
	}
}

func TestWarnings(t *testing.T) {
	other := bytes.Replace(reportOf("a", 1, 2, 3, 4), []byte(`"cpus":2`), []byte(`"cpus":64`), 1)
	other = bytes.Replace(other, []byte(`"workers":32`), []byte(`"workers":8`), 1)
	other = bytes.Replace(other, []byte(`"scenario":"get"`), []byte(`"scenario":"list"`), 1)
	c, err := Compare([]*Set{setOf(t, "old", reportOf("a", 1, 2, 3, 4)), setOf(t, "new", other, reportOf("b", 1))})
	must.OK(t, err)
	all := strings.Join(c.Warnings, "\n")
	for _, want := range []string{"the machines differ", "the settings differ", "the commits differ", "new is of more than one commit: a; b", "only new has list ops/s"} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in\n%s", want, all)
		}
	}
	if _, err := Compare([]*Set{newSet("a"), newSet("b")}); err == nil {
		t.Error("nothing is compared with nothing")
	}
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct{ text, want string }{
		"none.json":   {`{"schema":"x/v1"}`, "not a report"},
		"text":        {"hello", "not a report"},
		"newer.json":  {`{"schema":"quorate.bench.load/v9"}`, "this program reads quorate.bench.load/v1"},
		"broken.json": {`{"schema":"quorate.bench.modes/v1","cells":3}`, "cannot unmarshal"},
	} {
		file := filepath.Join(dir, name)
		must.OK(t, os.WriteFile(file, []byte(c.text), 0o644))
		if _, err := Read(file); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if _, err := Read(filepath.Join(dir, "nowhere")); err == nil {
		t.Error("a report that is not there")
	}
	if _, err := Read(t.TempDir()); err == nil || !strings.Contains(err.Error(), "there is no report in it") {
		t.Errorf("an empty directory: %v", err)
	}
}

// TestFaultsAndModes: the figures of the other reports are there, by run.
func TestFaultsAndModes(t *testing.T) {
	s := newSet("s")
	for _, raw := range []string{
		`{"schema":"quorate.bench.modes/v1","saturation":{"readsPerSecond":5},"writes":{"latency":{"count":1,"p50Ms":3}},"cells":[{"mode":"any","verb":"get","node":"n2","role":"follower","latency":{"count":2,"p99Ms":4},"staleness":{"staleShare":0.5,"age":{"count":2,"p99Ms":9}}},{"mode":"any","verb":"get","node":"n3","role":"follower","latency":{"count":2,"p99Ms":4}}]}`,
		`{"schema":"quorate.bench.faults/v1","options":{"faults":["kill:leader@5s+5s"]},"repeats":[{"faults":[{"kind":"kill","node":"n1","role":"leader","readyMs":7,"services":{"write":{"otherNodes":{"gapMs":250,"recoveredMs":300},"node":{"gapMs":6000}}}}]},{"faults":[{"kind":"kill","services":{"write":{"node":{"gapMs":7000}}}}]}]}`,
		`{"schema":"quorate.bench.faults/v1","options":{"faults":["slow-disk=20ms:n1@5s+5s"]},"repeats":[{"faults":[{"kind":"slow-disk","node":"n1","services":{"write":{"otherNodes":{"gapMs":25,"while":{"count":0}},"node":{"gapMs":60,"while":{"count":9,"p50Ms":31,"p99Ms":40}}}}}]}]}`,
	} {
		must.OK(t, s.add([]byte(raw)))
	}
	for _, c := range []struct {
		row, figure string
		want        string
	}{
		{"throughput", "reads/s", "[5]"}, {"writes", "p50 ms", "[3]"}, {"get any follower", "p99 ms", "[4]"}, {"get any follower n3", "p99 ms", "[4]"}, {"get any follower", "stale p99 ms", "[9]"},
		{"kill:leader@5s+5s", "ready ms", "[7]"}, {"kill:leader@5s+5s", "write gap elsewhere ms", "[250]"}, {"kill:leader@5s+5s", "write gap on it ms", "[6000 7000]"},
		{"slow-disk=20ms:n1@5s+5s", "write p50 on it ms", "[31]"}, {"slow-disk=20ms:n1@5s+5s", "write p99 on it ms", "[40]"},
	} {
		x := s.find(&series{row: c.row, figure: c.figure})
		if x == nil || fmt.Sprint(x.values) != c.want {
			t.Errorf("%s %s: %+v, want %s", c.row, c.figure, x, c.want)
		}
	}
}

// FuzzAdd: a report that somebody hands in is compared with itself, or refused.
func FuzzAdd(f *testing.F) {
	f.Add(reportOf("a", 1, 2, 3, 4))
	f.Add([]byte(`{"schema":"quorate.bench.modes/v1","cells":[{"mode":"any","latency":{"count":1}}]}`))
	f.Add([]byte(`{"schema":"quorate.bench.faults/v1","repeats":[{"faults":[{"services":{"write":{"node":{"gapMs":-1}}}}]}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		a, b := newSet("a"), newSet("b")
		if a.add(raw) != nil || b.add(raw) != nil {
			return
		}
		c, err := Compare([]*Set{a, b})
		if err != nil {
			return
		}
		for _, l := range c.Lines {
			if l.Verdict == Worse || l.Verdict == Better {
				t.Errorf("it is not the same as itself: %+v", l)
			}
		}
		if err := c.WriteTable(&bytes.Buffer{}); err != nil {
			t.Error(err)
		}
	})
}
