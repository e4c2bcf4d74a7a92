package commands

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestBenchFaults kills the leader and restarts a follower: nothing is lost, both come back,
// and all forms of the report are there.
func TestBenchFaults(t *testing.T) {
	report := t.TempDir()
	b := startBench(t, "faults", "--fault", "kill:leader@2s+1s,restart:follower@8s", "--after", "5s", "--writes", "40", "--reads", "10", "--output-dir", report)
	out := b.ends(t, 0)
	for _, want := range []string{"kill:leader@2s+1s (n", "restart:follower@8s (n", "ok      No acknowledged write is lost", "ok      Most Recent is never stale", "ok      Every node came back"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	var r struct {
		Schema  string
		Repeats []struct {
			Faults []struct {
				Role                     string
				GoneMs, ReadyMs, WroteMs float64
				Services                 map[string]struct{ Node struct{ GapMs float64 } }
			}
		}
	}
	raw, err := os.ReadFile(filepath.Join(report, "faults.json"))
	if err == nil {
		err = json.Unmarshal(raw, &r)
	}
	if err != nil || r.Schema != "quorate.bench.faults/v1" || len(r.Repeats) != 1 || len(r.Repeats[0].Faults) != 2 {
		t.Fatalf("%v: %.200s", err, raw)
	}
	kill, restart := r.Repeats[0].Faults[0], r.Repeats[0].Faults[1]
	// The process was away for a second, whatever else was slow.
	if kill.Role != "leader" || kill.ReadyMs <= 0 || kill.WroteMs < kill.ReadyMs || kill.Services["write"].Node.GapMs < 1000 {
		t.Errorf("%+v", kill)
	}
	if restart.Role != "follower" || restart.GoneMs <= 0 || restart.ReadyMs < restart.GoneMs {
		t.Errorf("%+v", restart)
	}
	readsPage(t, filepath.Join(report, "faults.html"), 1+3)
	if lines, err := os.ReadFile(filepath.Join(report, "faults.csv")); err != nil || bytes.Count(lines, []byte("\n")) != 1+4*130 {
		t.Errorf("the CSV: %d lines, %v", bytes.Count(lines, []byte("\n")), err)
	}
}

// TestBenchFaultsStops: Ctrl-C between two faults ends everything at once.
func TestBenchFaultsStops(t *testing.T) {
	b := startBench(t, "faults", "--fault", "restart:leader@2s,pause:leader@10s+1m")
	b.awaitPrinted(t, "back after")
	if err := b.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if out := b.ends(t, 130); !strings.Contains(out, "stopped") {
		t.Errorf("it says\n%s", out)
	}
}

// TestBenchFaultsRefuses: bad flags start nothing.
func TestBenchFaultsRefuses(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--fault", "explode:leader"}, "the kind must be kill, restart, pause"},
		{[]string{"--fault", "kill:leader@1s"}, "begins too early"},
		{[]string{"--repeat", "0"}, "repeat 0: must be 1"},
		{[]string{"--data-dir", "x", "--voters", "5"}, "--data-dir and --voters exclude each other"},
		{[]string{"--data-dir", "/nonexistent"}, "there is no playground cluster in /nonexistent"},
		{[]string{"more"}, `unexpected argument "more"`},
	} {
		if out := startBench(t, "faults", c.args...).ends(t, 2); !strings.Contains(out, c.want) || strings.Contains(out, "starting") {
			t.Errorf("%v: %s", c.args, out)
		}
	}
}
