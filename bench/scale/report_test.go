package scale

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/bench/measure"
	"github.com/quorate/quorate/bench/report/reporttest"
	"github.com/quorate/quorate/internal/must"
)

// sample is a report with everything in it: gets cost the same at each size, lists in proportion.
func sample(t *testing.T) *Report {
	t.Helper()
	o := DefaultOptions()
	o.Point, o.Command, o.Commit = "kep2340", `quorate bench scale '<script>&'`, "abc"
	rep := newReport(o, find(o.Point), t.TempDir())
	for _, n := range []int{1000, 10_000} {
		row := func(id string, cpu float64, took time.Duration) Row {
			h := measure.NewHistogram()
			for range 100 {
				h.RecordTime(took)
			}
			return Row{ID: id, Name: id + " <b>all</b>", Count: 100, Seconds: 2, Bytes: 5e6, CPUSeconds: cpu, MemoryMiB: []float64{50, float64(n) / 10}, Latency: h.Curve(), Other: h.Latency(), latency: h}
		}
		list := row("list", float64(n)/1000, time.Duration(n)*time.Microsecond)
		list.Errors, list.OtherErrors, list.FirstError = 1, 2, "refused by <b>n1</b>"
		list.Figures = []Figure{{"requests to the webhook", 1234, ""}, {"each took", 5.125, "ms"}}
		rep.Sizes = append(rep.Sizes, Size{N: n, Rows: []Row{
			{ID: "start", Name: "start", Count: 1, Seconds: float64(n) / 1000, CPUSeconds: 1, MemoryMiB: []float64{100}},
			{ID: "idle", Name: "idle", Seconds: 1, CPUSeconds: 0.01, MemoryMiB: []float64{100, 100}, latency: measure.NewHistogram()},
			row("get", 1, time.Millisecond), list,
		}})
	}
	rep.grow()
	return rep
}

func TestSchema(t *testing.T) { reporttest.Schema(t, Schema, sample(t)) }

func TestGrowth(t *testing.T) {
	rep := sample(t)
	want := []Growth{{"start", "start", 0, 1, 0}, {"idle", "idle", 0, 0, 0}, {"get", "get <b>all</b>", 0, 0, 1}, {"list", "list <b>all</b>", 1, 1, 1}}
	for i, g := range rep.Growth {
		near := func(a, b float64) bool { return a-b < 0.02 && b-a < 0.02 }
		if g.ID != want[i].ID || !near(g.CPU, want[i].CPU) || !near(g.Time, want[i].Time) {
			t.Errorf("%+v, want %+v", g, want[i])
		}
	}
	if !rep.Failed() {
		t.Error("requests have failed, and the report has not")
	}
}

func TestForms(t *testing.T) {
	rep := sample(t)
	var table, page, lines bytes.Buffer
	must.OK(t, errors.Join(rep.Doc().WriteTable(&table), rep.Doc().WriteHTML(&page), rep.WriteCSV(&lines)))
	for _, want := range []string{"10000 ConfigMaps", "Exponents of growth", "requests to the webhook 1234, each took 5.12 ms", "the first error: refused", "10.5 s in the median", "another client gets one object 20 times"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("no %q in\n%s", want, table.String())
		}
	}
	if all, err := csv.NewReader(&lines).ReadAll(); err != nil || len(all) != 1+2*4 || all[8][2] != "list" {
		t.Errorf("%v: %q", err, all)
	}
	// Memory, and one of each row.
	var back Report
	if err := json.Unmarshal(reporttest.Page(t, page.String(), 1+4, "<b>all", "<b>n1</b>", "'<script>"), &back); err != nil || back.Schema != Schema || len(back.Sizes) != 2 || back.Command != rep.Command {
		t.Errorf("the report in the page: %v", err)
	}
	for _, want := range []string{"github.com/kubernetes/enhancements", "requests to the webhook 1234", "p50 10.0 ms", "1 error, 2 of the other client"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("no %q in the page", want)
		}
	}
	// Reports of little have all forms too.
	one, none := sample(t), sample(t)
	one.Sizes, one.Growth, one.Published = one.Sizes[:1], nil, nil
	none.Sizes, none.Growth = nil, nil
	for figures, rep := range map[int]*Report{5: one, 0: none} {
		page.Reset()
		if err := errors.Join(rep.Doc().WriteTable(&table), rep.Doc().WriteHTML(&page), rep.WriteCSV(&lines)); err != nil {
			t.Error(err)
		}
		reporttest.Page(t, page.String(), figures)
	}
}

func TestHistograms(t *testing.T) {
	dir := t.TempDir()
	files := sample(t).Histograms()
	if err := measure.WriteFiles(dir, "scale", files); err != nil || len(files) != 2*2 || files[0].Name != "kep2340-1000-get" {
		t.Fatalf("%v, %v", files, err)
	}
	for _, f := range files {
		if raw, err := os.ReadFile(filepath.Join(dir, "scale-"+f.Name+".hgrm")); err != nil || !strings.Contains(string(raw), "Total count    =          100") {
			t.Errorf("%s: %v\n%s", f.Name, err, raw)
		}
	}
}
