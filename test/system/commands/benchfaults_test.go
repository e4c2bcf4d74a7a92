package commands

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/slowsync"
	"github.com/quorate/quorate/test/harness/cluster"
)

// TestBenchFaults kills the leader and restarts a follower: nothing is lost, both come back,
// and all forms of the report are there.
func TestBenchFaults(t *testing.T) {
	cluster.SkipInShort(t, "it runs what measures")
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

// TestBenchFaultsCut cuts the leader off, then lets it hear nothing, and makes the disk of the next
// one slow. The other nodes go on under another leader, the one that is cut off refuses until the end,
// and writes wait for the disk.
func TestBenchFaultsCut(t *testing.T) {
	cluster.SkipInShort(t, "it runs what measures")
	b := startBench(t, "faults", "--fault", "partition:leader@2s+4s,partition=in:leader@11s+4s,slow-disk=50ms:leader@20s+3s", "--after", "4s", "--writes", "40", "--reads", "10", "--json", "-")
	out := b.ends(t, 0)
	_, raw, _ := strings.Cut(out, "{")
	type latency struct {
		Count int
		P50Ms float64
	}
	type seen struct {
		GapMs         float64
		GapOpen       bool
		RecoveredMs   *float64
		Errors        map[string]int64
		Before, While latency
	}
	var r struct {
		Repeats []struct {
			Faults []struct {
				Kind, How, Role string
				WroteMs         float64
				SyncsDelayed    int64
				Services        map[string]struct{ OtherNodes, Node seen }
			}
		}
	}
	if err := json.NewDecoder(strings.NewReader("{" + raw)).Decode(&r); err != nil || len(r.Repeats) != 1 || len(r.Repeats[0].Faults) != 3 {
		t.Fatalf("%v: %s", err, out)
	}
	for i, how := range []string{"", "in"} {
		f := r.Repeats[0].Faults[i]
		if f.Kind != "partition" || f.How != how || f.Role != "leader" || f.WroteMs <= 0 {
			t.Errorf("%+v", f)
		}
		for _, service := range []string{"write", "most-recent"} {
			// Nobody else writes for as long as it takes to find out, and the node itself until the end.
			s := f.Services[service]
			if o := s.OtherNodes; o.GapMs < 500 || o.GapMs > 3000 || o.GapOpen || o.RecoveredMs == nil {
				t.Errorf("partition %s: %s on the other nodes: %+v", how, service, o)
			}
			if n := s.Node; n.GapMs < 3500 || n.GapOpen || n.Errors["refused"] == 0 || n.RecoveredMs == nil {
				t.Errorf("partition %s: %s on the node: %+v", how, service, n)
			}
		}
		if n := f.Services["any"].Node; n.GapMs > 2000 || n.While.Count == 0 {
			t.Errorf("partition %s: any state of the node: %+v", how, n)
		}
	}
	f := r.Repeats[0].Faults[2]
	if f.Kind != "slow-disk" || f.How != "50ms" || f.SyncsDelayed < 10 || f.WroteMs <= 0 {
		t.Errorf("%+v", f)
	}
	for _, s := range []seen{f.Services["write"].Node, f.Services["write"].OtherNodes} {
		if s.While.Count == 0 || s.While.P50Ms < 50 || s.Errors["refused"] > 0 {
			t.Errorf("writes while syncs of the leader took 50 ms longer: %+v", s)
		}
	}
}

// TestBenchFaultsStopsInCut: Ctrl-C while the leader is cut off ends everything at once.
func TestBenchFaultsStopsInCut(t *testing.T) {
	cluster.SkipInShort(t, "it runs what measures")
	b := startBench(t, "faults", "--fault", "partition:leader@2s+1m,slow-disk=1m:leader@2m+1m", "--writes", "20", "--reads", "5")
	b.awaitPrinted(t, "making")
	lost := regexp.MustCompile(`no leader: campaigning" term=\d+ lost=[0-9a-f]`) // of the first election nobody is
	cluster.Await(t, 60*time.Second, "a leader is lost", func() string {
		logs, err := filepath.Glob(filepath.Join(b.dir, "*", "n*.log"))
		if err != nil {
			return err.Error()
		}
		for _, name := range logs {
			if log, err := os.ReadFile(name); err == nil && lost.Match(log) {
				return ""
			}
		}
		return fmt.Sprint("none of ", logs, " says so")
	})
	began := time.Now()
	if err := b.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if out := b.ends(t, 130); !strings.Contains(out, "stopped") {
		t.Errorf("it says\n%s", out)
	}
	//wall: patience for a command that was told to stop; the run would take minutes
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it took %s to stop", took)
	}
}

// TestBenchFaultsCannotSlow: where the kernel does not ask, nothing is started. Here another listener is before it.
func TestBenchFaultsCannotSlow(t *testing.T) {
	cluster.SkipInShort(t, "it runs what measures")
	d, err := slowsync.New()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(cluster.Binary(), "bench", "faults", "--fault", "slow-disk:leader")
	var out bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = append(cluster.CleanEnv(), "TMPDIR="+t.TempDir()), &out, &out
	err = d.Start(cmd)
	if err == nil {
		_ = cmd.Wait()
		err = d.Close()
	}
	if code := cmd.ProcessState.ExitCode(); err != nil || code != 2 || !strings.Contains(out.String(), "a disk cannot be slow here") || strings.Contains(out.String(), "starting") {
		t.Errorf("exit code %d (%v), and it says\n%s", code, err, out.String())
	}
}

// TestBenchFaultsStops: Ctrl-C between two faults ends everything at once.
func TestBenchFaultsStops(t *testing.T) {
	cluster.SkipInShort(t, "it runs what measures")
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
	cluster.SkipInShort(t, "it runs what measures")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--fault", "explode:leader"}, "the kind must be kill, restart, pause, partition, slow-disk"},
		{[]string{"--fault", "partition=off:leader"}, "must be in (the node hears nothing) or out"},
		{[]string{"--fault", "partition:leader", "--data-dir", "/nonexistent"}, "cannot be cut off"},
		{[]string{"--fault", "kill:leader,slow-disk:leader", "--data-dir", "/nonexistent"}, "nor their disks slowed"},
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
