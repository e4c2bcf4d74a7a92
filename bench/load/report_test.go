package load

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/bench/measure"
	"github.com/quorate/quorate/bench/report/reporttest"
	"github.com/quorate/quorate/internal/must"
)

// everything is a report with all that a report can have.
func everything(t *testing.T) *Report {
	t.Helper()
	o := DefaultOptions()
	o.Mix, o.Rate, o.Repeat, o.Goals = Mix{{"get", 3}, {"update", 1}}, 500, 2, true
	o.Command, o.Commit = `quorate bench load --output-dir '<script>&'`, "abc"
	b := &bench{Options: o}
	turn := func(slow int64) RunReport {
		mixed := newTally(2)
		for k := range int64(300) {
			mixed.parts[0].latency.Record(slow + k)
			if k%3 == 0 {
				mixed.parts[1].latency.Record(4*slow + k)
			}
			mixed.late.Record(10)
		}
		mixed.open, mixed.due, mixed.within, mixed.unsent, mixed.elapsed = true, 500, 400, 1, time.Second
		plain := done(slow, 2*slow, 3*slow)
		plain.errors, plain.first, plain.cut = 1, errors.New("refused by <b>n1</b>"), true
		zero, spent := []time.Duration{0, 0}, []time.Duration{time.Millisecond, 2 * time.Millisecond}
		s := sweeper{p99: 100 * time.Millisecond, errors: 0.01}
		points := []SweepPoint{
			{Rate: 100, Due: 500, PerSecond: 100, Latency: mixed.all().Latency(), LateP99Ms: 0.1, CPU: 90},
			{Rate: 200, Due: 1000, PerSecond: 150, Errors: 100, Error: "late", Unsent: 2, Latency: mixed.all().Latency(), Again: true, CPU: 90},
		}
		points[1].Broken = s.broken(&points[1])
		rows := []Row{b.newRow(&row{name: "mix", title: "mix", mix: o.Mix}, mixed, zero, spent), b.newRow(&rows[1], plain, zero, spent)}
		rows[1].Allocs, rows[1].AllocatedBytes = 100, 2048
		return RunReport{
			Bare: []float64{40, 44}, Memory: Memory{1 << 30, 1 << 29, 3 << 28, 3 << 27, 1 << 28, 1 << 27},
			Rows:   rows,
			Sweeps: []Sweep{{Row: "get", Title: "get, resourceVersion unset", P99Ms: 100, Errors: 0.01, Points: points, Knee: 100, Why: "200/s: " + points[1].Broken, Cut: false}},
		}
	}
	r := newReport(&o, &Target{})
	r.Nodes, r.Options.Servers, r.Stopped = []string{"n1", "n2"}, []string{"n1", "n2"}, true
	r.Runs = []RunReport{turn(1000), turn(3000)}
	r.finish()
	return r
}

// TestSums: latencies of all runs together, of the rest the median; a mistake in one is one.
func TestSums(t *testing.T) {
	r := everything(t)
	if len(r.Rows) != 2 {
		t.Fatalf("%d rows", len(r.Rows))
	}
	mix, plain := r.Rows[0], r.Rows[1]
	if mix.Ops != 800 || mix.Latency.Count != 800 || mix.PerSecond != 400 || mix.Unsent != 2 || mix.Parts[0].Latency.Count != 600 || mix.Parts[1].Latency.MaxMs < 12 || mix.Parts[0].Share != 0.75 {
		t.Errorf("the mix: %+v", mix)
	}
	if plain.Errors != 2 || !plain.Cut || plain.CPU != 1000 || len(plain.ByNode) != 2 || plain.Allocs != 100 || plain.AllocatedBytes != 2048 || plain.Latency.MaxMs < 9 || plain.Latency.P50Ms < 2 || plain.Latency.P50Ms > 3.1 {
		t.Errorf("the row: %+v", plain)
	}
	if r.ResidentBytes != 1<<30 || r.slower() != 42/peerBare {
		t.Errorf("%d bytes, %g", r.ResidentBytes, r.slower())
	}
}

// TestMemoryBeside: each figure that both know stands beside the peer's, under its own name.
func TestMemoryBeside(t *testing.T) {
	ours, peer := everything(t), everything(t)
	peer.Memory = Memory{ResidentBytes: 4 << 30, RestBytes: 2 << 30}
	for _, c := range []struct {
		name string
		want []string
	}{
		{"some", []string{"resident memory, MiB 4096 1024 25 %", "resident 10s later, MiB 2048 512 25 %"}},
		{"all", []string{"resident memory, MiB 4096 1024 25 %", "shared pages once, MiB 1536 768 50 %", "without files, MiB 256 256 100 %",
			"resident 10s later, MiB 2048 512 25 %", "shared pages once, MiB 384 384 100 %", "without files, MiB 128 128 100 %"}},
	} {
		if c.name == "all" {
			peer.ProportionalBytes, peer.AnonymousBytes, peer.RestProportionalBytes, peer.RestAnonymousBytes = 6<<28, 1<<28, 3<<27, 1<<27
		}
		var table bytes.Buffer
		must.OK(t, ours.WriteAgainst(&table, peer))
		var got []string
		for line := range strings.Lines(table.String()) {
			if strings.Contains(line, "MiB") {
				got = append(got, strings.Join(strings.Fields(line), " "))
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestSchema(t *testing.T) { reporttest.Schema(t, Schema, everything(t)) }

func TestForms(t *testing.T) {
	r := everything(t)
	r.Goals = false
	var table, page, csv, svg bytes.Buffer
	must.OK(t, errors.Join(r.Doc().WriteTable(&table), r.Doc().WriteHTML(&page), r.WriteCSV(&csv), r.WriteSVG(&svg)))
	for _, want := range []string{"of them update", "get, resourceVersion unset (cut short)", "← the knee", "The knee is at 100/s; at 200/s: 10 % of the operations failed", "get: 2 errors, the first: refused", "mix: due and not sent: 2 operations", "It was stopped before its end", "n1+n2"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("no %q in\n%s", want, table.String())
		}
	}
	if n := strings.Count(csv.String(), "\n"); n != 1+2*(2+2+2) {
		t.Errorf("%d lines of CSV:\n%s", n, csv.String())
	}
	for i, line := range strings.Split(strings.TrimSpace(csv.String()), "\n") {
		if n := strings.Count(line, ","); n != 14 {
			t.Errorf("line %d of the CSV has %d fields: %s", i, n+1, line)
		}
	}
	// One of all latencies, one per row and verb, two per sweep.
	text := reporttest.Page(t, page.String(), 1+4+2*2, "<b>n1</b>", "'<script>")
	if back, err := parseReport("the page", text); err != nil || back.Command != r.Command || len(back.Runs) != 2 {
		t.Errorf("the report in the page: %v", err)
	}
	if s := svg.String(); !strings.HasPrefix(s, `<svg xmlns="http://www.w3.org/2000/svg"`) || !strings.Contains(s, "<style>") || !strings.HasSuffix(s, "</svg>\n") {
		t.Errorf("the figure: %.200s", s)
	}
	// Reports of little have all forms too.
	for name, r := range map[string]*Report{"nothing": reportOf(DefaultOptions(), nil), "a row of nothing": reportOf(DefaultOptions(), nil, (&bench{}).newRow(&rows[0], done(), nil, nil))} {
		page.Reset()
		if err := errors.Join(r.Doc().WriteTable(&table), r.Doc().WriteHTML(&page), r.WriteCSV(&csv), r.WriteSVG(&svg)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if strings.Contains(page.String(), "NaN") || strings.Contains(page.String(), "Inf") {
			t.Errorf("%s: no number in the page", name)
		}
	}
}

// TestHistograms: the percentile files are those of HdrHistogram: four columns up to the
// 100th percentile, and what is known of all.
func TestHistograms(t *testing.T) {
	dir := t.TempDir()
	files := everything(t).Histograms()
	if err := measure.WriteFiles(dir, "load", files); err != nil || len(files) != 4 {
		t.Fatalf("%v, %v", files, err)
	}
	raw, err := os.ReadFile(filepath.Join(dir, "load-mix-update.hgrm"))
	must.OK(t, err)
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	var value, percentile float64
	var count int64
	last := lines[len(lines)-4]
	if n, err := fmt.Sscan(last, &value, &percentile, &count); n != 3 || err != nil || percentile != 1 || count != 200 || value < 12 || value > 12.4 {
		t.Errorf("the last line is %q: %v", last, err)
	}
	for _, want := range []string{"Percentile", "#[Mean", "#[Max", "Total count    =          200"} {
		if !strings.Contains(string(raw), want) {
			t.Errorf("no %q in\n%s", want, raw)
		}
	}
}

// FuzzReport: a report that somebody hands in is read and shown, or refused.
func FuzzReport(f *testing.F) {
	f.Add([]byte(`{"schema":"quorate.bench.load/v1","rows":[{"scenario":"get","operations":1,"cpuPerOperation":3,"cpuOfPeer":{"goal":1,"limit":2}}],"runs":[{"sweeps":[{"points":[{"rate":3}]}]}]}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := parseReport("x", raw)
		if err != nil {
			return
		}
		var out bytes.Buffer
		if err := errors.Join(r.Doc().WriteTable(&out), r.WriteAgainst(&out, r), r.Doc().WriteHTML(&out), r.WriteCSV(&out)); err != nil {
			t.Errorf("%v", err)
		}
		r.Failed()
	})
}
