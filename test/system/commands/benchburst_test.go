package commands

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/quorate/quorate/test/harness/cluster"
)

// TestBenchBurst sends all kinds of patches, as a tenant: none is lost, and the JSON has what the table shows.
func TestBenchBurst(t *testing.T) {
	cluster.SkipInShort(t, "it runs what measures")
	b := startBench(t, "burst", "--duration", "2s", "--clients", "8", "--objects", "12", "--user", "tenant", "--patches", "apply,json,strategic,merge", "--json", "-")
	out := b.ends(t, 0)
	var r struct {
		Schema                string
		Answers               map[string]int
		Others                []struct{ Latency struct{ Count int } }
		RaftDelay             struct{ Count int }
		WatchEvents           int
		CPUMicrosPerPatch     float64
		LostWrites            []string
		Elections, WatchesCut int
	}
	if err := json.Unmarshal([]byte(out[strings.Index(out, "{"):]), &r); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	patches := r.Answers["200"]
	if r.Schema != "quorate.bench.burst/v1" || patches < 8 || r.WatchEvents < 3*patches || r.RaftDelay.Count == 0 || r.CPUMicrosPerPatch <= 0 || len(r.LostWrites) > 0 {
		t.Errorf("%+v", r)
	}
	for i, o := range r.Others {
		if o.Latency.Count == 0 {
			t.Errorf("others, number %d: none was served", i)
		}
	}
}

// TestBenchBurstRefuses: bad flags start nothing.
func TestBenchBurstRefuses(t *testing.T) {
	cluster.SkipInShort(t, "it runs what measures")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--user", "nobody"}, `--user "nobody": must be administrator or tenant`},
		{[]string{"--patches", "put"}, `--patches "put": must be of apply, json, merge, strategic`},
		{[]string{"--clients", "0"}, "--clients 0: must be 1 to 10000"},
		{[]string{"--data-dir", "x", "--voters", "5"}, "--data-dir and --voters exclude each other"},
		{[]string{"more"}, `unexpected argument "more"`},
	} {
		if out := startBench(t, "burst", c.args...).ends(t, 2); !strings.Contains(out, c.want) || strings.Contains(out, "starting") {
			t.Errorf("%v: %s", c.args, out)
		}
	}
}
