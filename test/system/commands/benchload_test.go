package commands

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quorate/quorate/test/harness/cluster"
)

// loadReport is what these tests read of a report.
type loadReport struct {
	Schema string
	Nodes  []string
	Rows   []loadRow
	Runs   []struct {
		Rows   []loadRow
		Sweeps []struct {
			KneePerSecond float64
			Points        []struct{ Rate, OperationsPerSecond float64 }
		}
	}
	Stopped bool
}

type loadRow struct {
	Scenario                             string
	Operations, Errors                   int64
	OperationsPerSecond, CPUPerOperation float64
	Latency                              struct{ P50Ms, MaxMs float64 }
	Parts                                []struct {
		Verb    string
		Latency struct{ Count int64 }
	}
}

func readLoadReport(t *testing.T, file string) (r loadReport) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(raw, &r)
	}
	if err != nil || r.Schema != "quorate.bench.load/v1" {
		t.Fatalf("%v: %.200s", err, raw)
	}
	return r
}

// browse lets a browser without a window read a page, and returns what it made of it.
func browse(t *testing.T, file string) string {
	t.Helper()
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Log("no chromium: the page is not read by a browser")
		return ""
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--user-data-dir="+filepath.Join(t.TempDir(), "profile"),
		"--dump-dom", "file://"+file).Output()
	if err != nil {
		t.Fatalf("chromium: %v", err)
	}
	return string(out)
}

// readsPage checks that a browser finds in a page the figures that were written, and nothing
// twice, lost or out of place.
func readsPage(t *testing.T, file string, figures int) {
	t.Helper()
	page, err := os.ReadFile(file)
	shown, _, _ := bytes.Cut(page, []byte("<script")) // what follows is the report, for programs
	if err != nil || !bytes.Contains(page, []byte("</html>")) || bytes.Contains(shown, []byte("://")) {
		t.Fatalf("%s: %d bytes, %v", file, len(page), err)
	}
	if n := bytes.Count(page, []byte("<svg")); n != figures {
		t.Errorf("%s: %d figures, want %d", file, n, figures)
	}
	dom := browse(t, file)
	if dom == "" {
		return
	}
	for _, element := range []string{"<svg", "<line", "<circle", "<polyline", "<tr", "<td", "<h2", "<script"} {
		if was, is := strings.Count(string(page), element), strings.Count(dom, element); was != is {
			t.Errorf("%s: the browser finds %d of %s, %d were written", file, is, element, was)
		}
	}
}

// TestBenchLoad measures rows on a cluster of its own: what was asked for and nothing else is
// there, in all forms.
func TestBenchLoad(t *testing.T) {
	cluster.SkipInShort(t, "it runs what measures")
	report := t.TempDir()
	b := startBench(t, "load", "--objects", "100", "--duration", "300ms", "--rows", "create,get,page,update,watch", "--repeat", "2", "--output-dir", report)
	out := b.ends(t, 0)
	for _, want := range []string{"run 2 of 2", "update (PUT with resourceVersion)", "n1+n2+n3", "resident memory"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	r := readLoadReport(t, filepath.Join(report, "load.json"))
	if len(r.Rows) != 5 || len(r.Runs) != 2 || len(r.Nodes) != 3 || r.Stopped {
		t.Fatalf("%d rows, %d runs, %v, stopped %v", len(r.Rows), len(r.Runs), r.Nodes, r.Stopped)
	}
	for _, x := range r.Rows {
		// A row of 300 ms may cost less than the kernel's unit of CPU time.
		if x.Operations == 0 || x.Errors > 0 || x.OperationsPerSecond <= 0 || x.Latency.P50Ms <= 0 || x.Latency.MaxMs < x.Latency.P50Ms || x.Scenario == "watch" && x.CPUPerOperation <= 0 {
			t.Errorf("%+v", x)
		}
		if _, err := os.Stat(filepath.Join(report, "load-"+x.Scenario+".hgrm")); err != nil {
			t.Error(err)
		}
	}
	if r.Rows[0].Operations != 200 || r.Rows[4].Operations != 2*200*1000 {
		t.Errorf("%d creates, %d events", r.Rows[0].Operations, r.Rows[4].Operations)
	}
	if lines, err := os.ReadFile(filepath.Join(report, "load.csv")); err != nil || bytes.Count(lines, []byte("\n")) != 1+2*5 {
		t.Errorf("the CSV: %s, %v", lines, err)
	}
	readsPage(t, filepath.Join(report, "load.html"), 1+5)
}

// TestBenchLoadOfRunningCluster: a mix at a rate through a kubeconfig with certificates, and a
// sweep with a token; the cluster is as it was afterwards. What is not known is not said.
func TestBenchLoadOfRunningCluster(t *testing.T) {
	cluster.SkipInShort(t, "it runs what measures")
	c := cluster.Start(t, 1)
	n := c.Nodes()[0]
	before := n.Kubectl(t, "get", "namespaces", "-o", "name")
	report := t.TempDir()
	out := startBench(t, "load", "--kubeconfig", filepath.Join(c.Dir, "kubeconfig"), "--objects", "50", "--duration", "1s", "--rate", "200",
		"--mix", "get=5,get0=1,list=1,list0=1,page=1,create=1,update=2,patch=2,apply=2,watch=1", "--output-dir", report).ends(t, 0)
	r := readLoadReport(t, filepath.Join(report, "load.json"))
	if len(r.Rows) != 1 || len(r.Rows[0].Parts) != 10 || r.Rows[0].Operations < 100 || r.Rows[0].CPUPerOperation != 0 || !strings.Contains(out, "nothing is said about CPU") {
		t.Errorf("%+v\n%s", r.Rows, out)
	}
	for _, p := range r.Rows[0].Parts {
		if _, err := os.Stat(filepath.Join(report, "load-mix-"+p.Verb+".hgrm")); err != nil {
			t.Error(err)
		}
	}

	n.Kubectl(t, "create", "serviceaccount", "bench")
	n.Kubectl(t, "create", "clusterrolebinding", "bench", "--clusterrole=cluster-admin", "--serviceaccount=default:bench")
	token := strings.TrimSpace(n.Kubectl(t, "create", "token", "bench"))
	withToken := filepath.Join(report, "token")
	ca := filepath.Join(c.Dir, "pki", "api-ca.crt")
	text := `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],
"clusters":[{"name":"c","cluster":{"server":"` + n.API + `","certificate-authority":"` + ca + `"}}],"users":[{"name":"u","user":{"token":"` + token + `"}}]}`
	if err := os.WriteFile(withToken, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	startBench(t, "load", "--kubeconfig", withToken, "--objects", "50", "--duration", "200ms", "--rows", "get", "--sweep", "--rate", "20", "--sweep-p99", "1ms", "--output-dir", report).ends(t, 0)
	r = readLoadReport(t, filepath.Join(report, "load.json"))
	if len(r.Rows) != 0 || len(r.Runs) != 1 || len(r.Runs[0].Sweeps) != 1 || len(r.Runs[0].Sweeps[0].Points) == 0 {
		t.Errorf("%+v", r)
	}
	readsPage(t, filepath.Join(report, "load.html"), 2)

	cluster.Await(t, 20*time.Second, "the namespaces are gone", func() string {
		if now := n.Kubectl(t, "get", "namespaces", "-o", "name"); now != before {
			return now
		}
		return ""
	})
	// Rules of the cluster are gone too.
	startBench(t, "load", "--data-dir", c.Dir, "--objects", "50", "--rows", "create-policies,create-webhooks,create-quota").ends(t, 0)
	if left := n.Kubectl(t, "get", "validatingadmissionpolicies,validatingadmissionpolicybindings,validatingwebhookconfigurations,mutatingwebhookconfigurations", "-o", "name"); strings.Contains(left, "bench-") {
		t.Errorf("left behind: %s", left)
	}
}

// TestBenchLoadStops: Ctrl-C ends it with what was measured, and removes what it made.
func TestBenchLoadStops(t *testing.T) {
	cluster.SkipInShort(t, "it runs what measures")
	report := t.TempDir()
	b := startBench(t, "load", "--voters", "1", "--objects", "50", "--rows", "create,get", "--duration", "10m", "--output-dir", report)
	b.awaitPrinted(t, "measuring get")
	began := time.Now()
	if err := b.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	out := b.ends(t, 130)
	if !strings.Contains(out, "stopped before its end") || !strings.Contains(out, "create (POST)") {
		t.Errorf("it says\n%s", out)
	}
	//wall: patience for a command that was told to stop; the run would take minutes
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it took %s to stop", took)
	}
	if r := readLoadReport(t, filepath.Join(report, "load.json")); !r.Stopped || len(r.Rows) == 0 || r.Rows[0].Operations != 50 {
		t.Errorf("%+v", r)
	}
}
