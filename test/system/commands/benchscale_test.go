package commands

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/quorate/quorate/test/harness/cluster"
)

// scaleReport is what these tests read of a report.
type scaleReport struct {
	Schema string
	Sizes  []struct {
		N    int
		Rows []scaleRow
	}
}

type scaleRow struct {
	Row                  string
	Count, Errors, Bytes int64
	Other                struct{ Count int64 }
	Figures              []struct {
		Name  string
		Value float64
	}
}

// measureScale runs the command, and reads the last size of its report by the names of rows.
func measureScale(t *testing.T, sizes, n int, args ...string) (dir, out string, rows map[string]scaleRow) {
	t.Helper()
	dir = t.TempDir()
	out = startBench(t, "scale", append([]string{"--output-dir", dir}, args...)...).ends(t, 0)
	var r scaleReport
	raw, err := os.ReadFile(filepath.Join(dir, "scale.json"))
	if err == nil {
		err = json.Unmarshal(raw, &r)
	}
	if err != nil || r.Schema != "quorate.bench.scale/v2" || len(r.Sizes) != sizes || r.Sizes[sizes-1].N != n {
		t.Fatalf("%v: %.300s", err, raw)
	}
	rows = map[string]scaleRow{}
	for _, row := range r.Sizes[sizes-1].Rows {
		rows[row.Row] = row
	}
	return dir, out, rows
}

// TestBenchScale measures 1,000 and 2,000 ConfigMaps: the cluster has them, all nodes do, and all
// forms of the report are there.
func TestBenchScale(t *testing.T) {
	cluster.SkipInShort(t, "it runs what measures")
	dir, out, rows := measureScale(t, 2, 2000, "configmaps", "--size", "0.001,0.002", "--duration", "1s")
	for _, want := range []string{"2000 ConfigMaps", "join: n3 is ready", "start: n3 is ready with its own state", "Exponents of growth", "scale-*.hgrm"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	// 2,000 objects of more than 1 KiB in each answer.
	if row := rows["list"]; row.Count == 0 || row.Bytes/row.Count < 2000*1024 || row.Other.Count == 0 {
		t.Errorf("%+v", row)
	}
	if rows, err := os.ReadFile(filepath.Join(dir, "scale.csv")); err != nil || !strings.HasPrefix(string(rows), "point,n,row,") {
		t.Errorf("%v: %.100s", err, rows)
	}
	if _, err := os.Stat(filepath.Join(dir, "scale-configmaps-2000-get.hgrm")); err != nil {
		t.Error(err)
	}
	// Memory, two joins, a start, idle, get, patch, page, list.
	readsPage(t, filepath.Join(dir, "scale.html"), 9)
}

// TestBenchScaleConversion: what is read in the version that is not stored has been through the
// webhook, 100 at a time in a list, and in a patch the one or it and what it was before.
func TestBenchScaleConversion(t *testing.T) {
	cluster.SkipInShort(t, "it runs what measures")
	_, _, rows := measureScale(t, 1, 300, "conversion", "--size", "0.003", "--duration", "1s")
	if row := rows["list-stored"]; row.Count == 0 || len(row.Figures) > 0 {
		t.Errorf("the version that is stored: %+v", row)
	}
	// Each of the nodes converts them once, and keeps them.
	if row := rows["first"]; row.Count != 3 || len(row.Figures) == 0 || row.Figures[0].Value < 9 || row.Figures[2].Value < 75 {
		t.Errorf("a list in the other: %+v", row)
	}
	if row := rows["list"]; row.Count == 0 || len(row.Figures) > 0 {
		t.Errorf("a list that was converted before: %+v", row)
	}
	if row := rows["patch"]; row.Count == 0 || len(row.Figures) == 0 || row.Figures[0].Value < float64(row.Count) || row.Figures[2].Value < 1 || row.Figures[2].Value > 2 {
		t.Errorf("a patch in the other: %+v", row)
	}
	for _, name := range []string{"page", "get", "watch"} {
		if rows[name].Count == 0 {
			t.Errorf("%s: %+v", name, rows[name])
		}
	}
}

// TestBenchScaleServices: there are as many Services as there are to be of so many Pods, each with
// an address, and new ones get others.
func TestBenchScaleServices(t *testing.T) {
	cluster.SkipInShort(t, "it runs what measures")
	_, out, rows := measureScale(t, 1, 600, "sig", "--size", "0.004", "--duration", "1s")
	if row := rows["service-create"]; row.Count == 0 || row.Errors > 0 {
		t.Errorf("%+v\n%s", row, out)
	}
	if row := rows["services"]; row.Count == 0 || row.Bytes/row.Count < 40*300 {
		t.Errorf("%+v", row)
	}
}

// TestBenchScaleStops: what Ctrl-C cuts short is no measurement, and nothing is written of it.
func TestBenchScaleStops(t *testing.T) {
	cluster.SkipInShort(t, "it runs what measures")
	dir := t.TempDir()
	b := startBench(t, "scale", "configmaps", "--size", "0.001", "--duration", "1m", "--output-dir", dir)
	b.awaitPrinted(t, "start: n3 is ready with its own state") // the rows that take a minute are next
	if err := b.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if out := b.ends(t, 130); !strings.Contains(out, "stopped") {
		t.Errorf("it says\n%s", out)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("%v, and there is %v", err, files)
	}
}

// TestBenchScaleRefuses: bad flags start nothing.
func TestBenchScaleRefuses(t *testing.T) {
	cluster.SkipInShort(t, "it runs what measures")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"everything"}, "must be one of configmaps"},
		{[]string{"configmaps", "--size", "1,0.1"}, "sizes must rise"},
		{[]string{"configmaps", "--size", "none"}, "must be above 0"},
		{[]string{"configmaps", "--duration", "1ms"}, "must be 1s to 5m"},
	} {
		if out := startBench(t, "scale", c.args...).ends(t, 2); !strings.Contains(out, c.want) || strings.Contains(out, "starting") {
			t.Errorf("%v: %s", c.args, out)
		}
	}
}
