package commands

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestBenchScale measures 1,000 and 2,000 ConfigMaps: the cluster has them, all nodes do, and all
// forms of the report are there.
func TestBenchScale(t *testing.T) {
	dir := t.TempDir()
	out := startBench(t, "scale", "configmaps", "--size", "0.001,0.002", "--duration", "1s", "--json", filepath.Join(dir, "r.json"), "--csv", filepath.Join(dir, "r.csv")).ends(t, 0)
	for _, want := range []string{"2000 ConfigMaps", "join: n3 is ready", "start: n3 is ready with its own state", "Exponents of growth"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	var r struct {
		Schema string
		Sizes  []struct {
			N    int
			Rows []struct {
				Name                 string
				Count, Errors, Bytes int64
				Other                struct{ Count int64 }
			}
		}
	}
	raw, err := os.ReadFile(filepath.Join(dir, "r.json"))
	if err == nil {
		err = json.Unmarshal(raw, &r)
	}
	if err != nil || r.Schema != "quorate.bench.scale/v1" || len(r.Sizes) != 2 || r.Sizes[1].N != 2000 {
		t.Fatalf("%v: %.300s", err, raw)
	}
	for _, row := range r.Sizes[1].Rows {
		if strings.HasPrefix(row.Name, "consistent list of all") {
			// 2,000 objects of more than 1 KiB in each answer.
			if row.Count == 0 || row.Bytes/row.Count < 2000*1024 || row.Other.Count == 0 {
				t.Errorf("%+v", row)
			}
		}
	}
	if rows, err := os.ReadFile(filepath.Join(dir, "r.csv")); err != nil || !strings.HasPrefix(string(rows), "point,n,row,") {
		t.Errorf("%v: %.100s", err, rows)
	}
}

// TestBenchScaleRefuses: bad flags start nothing.
func TestBenchScaleRefuses(t *testing.T) {
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
