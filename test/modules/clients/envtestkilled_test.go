package clients

import (
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// envtestVariable makes this program a test that starts envtest with the programs of a directory, and then hangs.
const envtestVariable = "QUORATE_TEST_ENVTEST"

// beKilled starts envtest, says so, and waits to be killed.
func beKilled(programs string) error {
	env := &envtest.Environment{BinaryAssetsDirectory: programs}
	if _, err := env.Start(); err != nil {
		return err
	}
	fmt.Println("started")
	select {}
}

// left are the processes that name a directory in their command line, and the files in it.
type left struct {
	processes []string
	files     []string
	bytes     int64
}

// killed runs a test with envtest in a process of its own, kills it without a word, and returns what is
// left, at first and when nothing has changed for a while or all processes are gone.
func killed(t *testing.T, programs string) left {
	t.Helper()
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), envtestVariable+"="+programs, "TMPDIR="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, p := range processesOf(dir) {
			pid, _ := strconv.Atoi(strings.Fields(p)[0])
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "started\n" {
		t.Fatalf("%q, %v", line, err)
	}
	if n := len(processesOf(dir)); n != 2 {
		t.Fatalf("%d processes run, want 2: this test looks for the wrong ones", n)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	for end := time.Now().Add(10 * time.Second); len(processesOf(dir)) > 0 && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
	}
	out2 := left{processes: processesOf(dir)}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		out2.files = append(out2.files, name)
		out2.bytes += info.Size()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out2
}

// processesOf are those with a text in their command line: pid and name.
func processesOf(text string) (out []string) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range all {
		line, err := os.ReadFile(path)
		if err == nil && bytes.Contains(line, []byte(text)) {
			name, _, _ := bytes.Cut(line, []byte{0})
			out = append(out, filepath.Base(filepath.Dir(path))+" "+filepath.Base(string(name)))
		}
	}
	return out
}

// envtestsOwn are files that envtest itself writes, and removes when it is stopped.
var envtestsOwn = []string{"apiserver.crt", "apiserver.key", "sa-signer.crt", "sa-signer.key", "client-cert-auth-ca.crt", "tls.crt", "tls.key", "*.kubecfg"}

// TestEnvtestKilled: a test that is killed leaves no process of ours, and no file that we have made.
func TestEnvtestKilled(t *testing.T) {
	got := killed(t, assets(t))
	if len(got.processes) > 0 {
		t.Errorf("processes are left: %s", got.processes)
	}
	for _, name := range got.files {
		if !slices.ContainsFunc(envtestsOwn, func(own string) bool {
			ok, _ := filepath.Match(own, filepath.Base(name))
			return ok
		}) {
			t.Errorf("%s is left", name)
		}
	}
}

// TestEnvtestFigures measures, if FIGURES is how often: envtest's start and stop with our program and
// with kube-apiserver and etcd, in turns, and what is left of each when a test is killed.
func TestEnvtestFigures(t *testing.T) {
	times, _ := strconv.Atoi(os.Getenv("FIGURES"))
	if times == 0 {
		t.Skip("FIGURES is not set: how often to measure")
	}
	peers, err := filepath.Abs("../../../bin")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"kube-apiserver", "etcd"} {
		if _, err := os.Stat(filepath.Join(peers, name)); err != nil {
			t.Skipf("%v: make peers", err)
		}
	}
	programs := map[string]string{"quorate": assets(t), "kube-apiserver and etcd": peers}
	starts, stops := map[string][]time.Duration{}, map[string][]time.Duration{}
	for range times {
		for name, dir := range programs {
			env := &envtest.Environment{BinaryAssetsDirectory: dir}
			began := time.Now()
			if _, err := env.Start(); err != nil {
				t.Fatal(err)
			}
			starts[name] = append(starts[name], time.Since(began))
			began = time.Now()
			if err := env.Stop(); err != nil {
				t.Fatal(err)
			}
			stops[name] = append(stops[name], time.Since(began))
		}
	}
	for name, dir := range programs {
		l := killed(t, dir)
		t.Logf("%s: start %s, stop %s; a test that is killed leaves %d processes, %d files, %d bytes",
			name, medianOf(starts[name]), medianOf(stops[name]), len(l.processes), len(l.files), l.bytes)
	}
}

// medianOf is the median, with the shortest and the longest.
func medianOf(d []time.Duration) string {
	slices.Sort(d)
	round := func(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
	return fmt.Sprintf("%s (%s to %s)", round(d[len(d)/2]), round(d[0]), round(d[len(d)-1]))
}
