package commands

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/quorate/quorate/test/harness/cluster"
)

// benchModes is a `quorate bench modes`, or another bench command, whose temporary cluster lies below dir.
type benchModes struct {
	cmd *exec.Cmd
	dir string

	mu  sync.Mutex // guards out
	out bytes.Buffer
}

// Write takes what the command prints.
func (b *benchModes) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.out.Write(p)
}

func (b *benchModes) printed() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.out.String()
}

func startBenchModes(t *testing.T, args ...string) *benchModes {
	t.Helper()
	return startBench(t, "modes", args...)
}

// startBench starts a bench command, `modes` or another one.
func startBench(t *testing.T, command string, args ...string) *benchModes {
	t.Helper()
	dir, err := os.MkdirTemp(cluster.RunDir(), "bench-")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), cluster.CommandWithin)
	t.Cleanup(cancel)
	b := &benchModes{dir: dir, cmd: exec.CommandContext(ctx, cluster.Binary(), append([]string{"bench", command}, args...)...)}
	b.cmd.Env = append(cluster.CleanEnv(), "TMPDIR="+dir)
	b.cmd.Stdout, b.cmd.Stderr = b, b
	if err := b.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return b
}

// ends waits for its end and its exit code, and checks that nothing is left.
func (b *benchModes) ends(t *testing.T, code int) string {
	t.Helper()
	err := b.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if got := b.cmd.ProcessState.ExitCode(); got != code {
		t.Errorf("exit code %d, want %d:\n%s", got, code, b.printed())
	}
	b.leavesNothing(t)
	return b.printed()
}

func (b *benchModes) leavesNothing(t *testing.T) {
	t.Helper()
	if left := cluster.ProcessesOf(b.dir); len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}
	entries, err := os.ReadDir(b.dir)
	if err != nil || len(entries) > 0 {
		t.Errorf("left in the temporary directory: %v (%v)", entries, err)
	}
}

// awaitPrinted waits until the command has said something.
func (b *benchModes) awaitPrinted(t *testing.T, text string) {
	t.Helper()
	cluster.Await(t, 40*time.Second, "bench modes says "+text, func() string {
		if out := b.printed(); !strings.Contains(out, text) {
			return "so far: " + out
		}
		return ""
	})
}

// TestBenchModes measures every mode for two seconds: all cells get answers, no
// promise is broken, and the three forms of the report are there.
func TestBenchModes(t *testing.T) {
	cluster.SkipInShort(t, "it runs what measures")
	report := t.TempDir()
	b := startBenchModes(t, "--duration", "2s", "--rate", "10", "--writes", "40", "--objects", "20", "--output-dir", report)
	out := b.ends(t, 0)
	for _, want := range []string{"Most Recent − Any", "ok      Most Recent is never stale", "ok      Any is no staler", "ok      Every request was answered", "ok      Most Recent and Not older never go back from node to node", "ok      Most Recent on a follower costs one question to the leader", "leader n", "follower n", "nonvoter n4"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	var r struct {
		Schema string
		Cells  []struct {
			Mode, Verb, Role string
			Latency          struct {
				Count        int64
				P50Ms, MaxMs float64
			}
			Staleness struct{ StaleReads int64 }
		}
		MonotonicReads []struct {
			Mode                   string
			Pairs, OlderThanBefore int64
			Ways                   []struct{ From, To string }
		}
		Writes          struct{ AcknowledgedPerSecond float64 }
		MostRecentCosts []struct {
			Role                                 string
			Reads, IndexCalls, QuorumRounds      int64
			WaitForIndexMs, IndexMs, RoundTripMs float64
		}
	}
	raw, err := os.ReadFile(filepath.Join(report, "modes.json"))
	if err == nil {
		err = json.Unmarshal(raw, &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	if r.Schema != "quorate.bench.modes/v1" || len(r.Cells) != 21 || r.Writes.AcknowledgedPerSecond < 1 {
		t.Errorf("%s: %d cells, %g writes/s", r.Schema, len(r.Cells), r.Writes.AcknowledgedPerSecond)
	}
	for _, c := range r.Cells {
		if c.Latency.Count == 0 || c.Latency.P50Ms <= 0 || c.Latency.MaxMs < c.Latency.P50Ms || c.Mode != "any" && c.Staleness.StaleReads > 0 {
			t.Errorf("%+v", c)
		}
	}
	if len(r.MonotonicReads) != 3 {
		t.Errorf("%+v", r.MonotonicReads)
	}
	for _, m := range r.MonotonicReads {
		if m.Pairs == 0 || len(m.Ways) == 0 || m.Mode != "any" && m.OlderThanBefore > 0 {
			t.Errorf("%+v", m)
		}
	}
	for _, c := range r.MostRecentCosts {
		if c.Reads == 0 || c.IndexCalls == 0 || c.WaitForIndexMs <= 0 || c.IndexMs <= 0 || c.RoundTripMs <= 0 {
			t.Errorf("%+v", c)
		}
		if asks := c.QuorumRounds > 0; asks != (c.Role == "leader") {
			t.Errorf("the %s asked voters %d times", c.Role, c.QuorumRounds)
		}
	}
	if lines, err := os.ReadFile(filepath.Join(report, "modes.csv")); err != nil || bytes.Count(lines, []byte("\n")) != 1+21 {
		t.Errorf("the CSV: %d lines, %v", bytes.Count(lines, []byte("\n")), err)
	}
	if _, err := os.Stat(filepath.Join(report, "modes-get-any-n4-staleness.hgrm")); err != nil {
		t.Error(err)
	}
	// Three of ranges, six of percentiles, the costs, two of staleness, two over the run.
	readsPage(t, filepath.Join(report, "modes.html"), 3+6+1+2+2)
}

// TestBenchModesStops: Ctrl-C while it measures ends everything at once.
func TestBenchModesStops(t *testing.T) {
	cluster.SkipInShort(t, "it runs what measures")
	b := startBenchModes(t, "--duration", "10m", "--voters", "1", "--rate", "5")
	b.awaitPrinted(t, "measuring")
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

// TestBenchModesKilled: nodes do not outlive a measurement that was killed.
func TestBenchModesKilled(t *testing.T) {
	cluster.SkipInShort(t, "it runs what measures")
	b := startBenchModes(t, "--duration", "10m", "--voters", "1", "--nonvoters", "0", "--rate", "5")
	b.awaitPrinted(t, "measuring")
	if len(cluster.ProcessesOf(b.dir)) == 0 {
		t.Fatal("no node runs")
	}
	if err := b.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = b.cmd.Wait()
	cluster.Await(t, 10*time.Second, "the node is gone", func() string {
		if left := cluster.ProcessesOf(b.dir); len(left) > 0 {
			return "it runs"
		}
		return ""
	})
}

// TestBenchModesOfRunningCluster measures a cluster that was there, leaves it as
// it was, and gives up when a node of it dies.
func TestBenchModesOfRunningCluster(t *testing.T) {
	cluster.SkipInShort(t, "it runs what measures")
	c := cluster.Start(t, 3)
	before := c.Nodes()[0].Kubectl(t, "get", "namespaces", "-o", "name")
	out := startBenchModes(t, "--data-dir", c.Dir, "--duration", "1s", "--modes", "any,most-recent", "--nodes", "n2,n3", "--rate", "10").ends(t, 0)
	if strings.Contains(out, "nonvoter") || strings.Contains(out, "Exact N  ") || strings.Contains(out, " n1  ") {
		t.Errorf("it measured what was not asked for:\n%s", out)
	}
	cluster.Await(t, 20*time.Second, "its namespace is gone", func() string {
		if now := c.Nodes()[0].Kubectl(t, "get", "namespaces", "-o", "name"); now != before {
			return now
		}
		return ""
	})

	// The same servers, named one by one: they say their roles, and whose the processes are is not known.
	var servers []string
	for _, n := range c.Nodes() {
		servers = append(servers, n.API)
	}
	report := t.TempDir()
	startBenchModes(t, "--kubeconfig", filepath.Join(c.Dir, "kubeconfig"), "--server", strings.Join(servers, ","), "--duration", "1s", "--modes", "any", "--rate", "10", "--output-dir", report).ends(t, 0)
	var r struct {
		Nodes []struct {
			Name, Role string
			CoresUsed  float64
		}
		Cells []struct{ Role string }
	}
	if raw, err := os.ReadFile(filepath.Join(report, "modes.json")); err != nil || json.Unmarshal(raw, &r) != nil || len(r.Nodes) != 3 || len(r.Cells) != 4 || "https://"+r.Nodes[0].Name != servers[0] || r.Nodes[0].CoresUsed != 0 {
		t.Errorf("%v: %+v", err, r)
	}

	b := startBenchModes(t, "--data-dir", c.Dir, "--duration", "10m", "--rate", "50")
	b.awaitPrinted(t, "measuring")
	c.Kill(t, c.Others(c.Leader(t))[0])
	if out := b.ends(t, 2); !strings.Contains(out, "given up after 50 errors") {
		t.Errorf("it says\n%s", out)
	}
}

// TestBenchModesRefuses: bad flags start nothing.
func TestBenchModesRefuses(t *testing.T) {
	cluster.SkipInShort(t, "it runs what measures")
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--duration", "0s"}, 2, "duration 0s: must be 1s to 1h"},
		{[]string{"--load", "full"}, 2, "--load \"full\": must be half"},
		{[]string{"--load", "half", "--rate", "5"}, 2, "--load and --rate exclude each other"},
		{[]string{"--modes", "latest"}, 2, `there is no mode "latest"`},
		{[]string{"--voters", "0"}, 2, "0"},
		{[]string{"--data-dir", "/nonexistent"}, 2, "there is no playground cluster in /nonexistent"},
		{[]string{"--html", "/nonexistent/a.html"}, 2, "/nonexistent"},
		{[]string{"--server", "https://127.0.0.1:1"}, 2, "--server needs --kubeconfig"},
		{[]string{"--kubeconfig", "/nonexistent", "--voters", "1"}, 2, "--kubeconfig and --voters exclude each other"},
		{[]string{"--set", "no-such=1"}, 2, `there is no setting "no-such"`},
		{[]string{"--wirtes", "3"}, 2, "unknown flag: --wirtes"},
		{[]string{"--rate", "many"}, 2, "invalid argument"},
		{[]string{"more"}, 2, `unexpected argument "more"`},
	} {
		b := startBenchModes(t, c.args...)
		if out := b.ends(t, c.code); !strings.Contains(out, c.want) || strings.Contains(out, "starting") {
			t.Errorf("%v: %s", c.args, out)
		}
	}
}
