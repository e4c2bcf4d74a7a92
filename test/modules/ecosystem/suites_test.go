package ecosystem

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/test/harness/cluster"
)

// likeEnvtest are the settings that make a node what controller-runtime's envtest
// starts: a kube-apiserver without kube-controller-manager, and without the plugin
// that wants every Pod's service account to be there.
var likeEnvtest = []string{
	"disable-admission-plugins=ServiceAccount",
	"controllers=-namespace-controller,-garbage-collector-controller,-serviceaccount-controller,-root-ca-certificate-publisher-controller,-clusterrole-aggregation-controller",
}

// suites are the packages of tests of another project that are run unchanged against
// three nodes.
type suites struct {
	module   string
	flags    []string // of the nodes, beside likeEnvtest
	packages []suite
}

// suite is a package of tests that use an API server, most of them with webhooks.
type suite struct {
	dir       string
	passes    int               // at least
	otherwise map[string]string // tests that fail here, and why
	skips     []string          // tests that no server of our version lets end
}

// readSuites reads testdata/suites.txt.
func readSuites(t *testing.T) []suites {
	t.Helper()
	var all []suites
	for _, fields := range table(t, "testdata/suites.txt") {
		if fields[0] == "module" {
			all = append(all, suites{module: fields[1], flags: fields[2:]})
			continue
		}
		packages := &all[len(all)-1].packages
		switch fields[0] {
		case "fails":
			(*packages)[len(*packages)-1].otherwise[fields[1]] = strings.Join(fields[2:], " ")
		case "skips":
			last := &(*packages)[len(*packages)-1]
			last.skips = append(last.skips, fields[1])
		default:
			n, err := strconv.Atoi(fields[1])
			noError(t, err)
			*packages = append(*packages, suite{dir: fields[0], passes: n, otherwise: map[string]string{}})
		}
	}
	return all
}

// TestWebhookSuites runs the tests of projects that build on controller-runtime's
// envtest. The environment takes three nodes for a cluster that exists: it installs
// definitions and webhooks there, and the nodes call the test's process. Each package
// is a subtest below its module, with nodes of its own.
func TestWebhookSuites(t *testing.T) {
	onlyInFull(t)
	for _, m := range readSuites(t) {
		t.Run(m.module, func(t *testing.T) {
			dir := copyOf(t, m.module)
			for _, s := range m.packages {
				t.Run(s.dir, func(t *testing.T) { s.run(t, dir, m.flags) })
			}
		})
	}
}

// copyOf is a module of testdata/modules.txt in a directory where it may be built:
// its tests choose their dependencies themselves, and read files beside them. A
// module that replaces a part of itself by a directory gets that directory.
func copyOf(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	copyTo(t, dir, name)
	return dir
}

// copyTo is copyOf, to a directory that may be missing.
func copyTo(t *testing.T, dir, name string) {
	t.Helper()
	noError(t, os.CopyFS(dir, os.DirFS(moduleDir(t, name))))
	for _, fields := range table(t, "testdata/modules.txt") {
		if part, ok := strings.CutPrefix(fields[0], name+"/"); ok {
			noError(t, os.CopyFS(filepath.Join(dir, part), os.DirFS(moduleDir(t, fields[0]))))
		}
	}
}

// workspace is a workspace of a copy and of test/modules/clients: the newer of two versions of a
// dependency counts, so that all suites use the Kubernetes libraries of this
// repository, which are compiled once.
func workspace(t *testing.T, dir string) string {
	t.Helper()
	clients, err := filepath.Abs("../clients")
	noError(t, err)
	path := filepath.Join(t.TempDir(), "go.work")
	text := fmt.Sprintf("go 1.26.0\nuse %q\nuse %q\nreplace github.com/quorate/quorate => %q\n", dir, clients, filepath.Dir(filepath.Dir(clients)))
	noError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func (s suite) run(t *testing.T, dir string, flags []string) {
	c := cluster.Start(t, 3, slices.Concat(likeEnvtest, flags)...)
	follower := c.Others(c.Leader(t))[0]
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	// Suites find their definitions by runtime.Caller, which -trimpath makes blind.
	args := []string{"test", "-trimpath=false", "-vet=off", "-count=1", "-v", "-timeout", "15m"}
	if len(s.skips) > 0 {
		args = append(args, "-skip", "^("+strings.Join(s.skips, "|")+")$")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./"+s.dir)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "USE_EXISTING_CLUSTER=true", "KUBECONFIG="+kubeconfigOf(t, c, follower), "GOWORK="+workspace(t, dir))
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	passed, failed := outcome(string(out))
	t.Logf("%s: %d pass, %q fail", s.dir, passed, failed)
	if want := slices.Sorted(maps.Keys(s.otherwise)); !slices.Equal(failed, want) {
		t.Errorf("%q fail, want %q", failed, want)
	}
	if passed < s.passes {
		t.Errorf("%d pass, want %d", passed, s.passes)
	}
	if err != nil && len(failed) == 0 {
		t.Error(err)
	}
	if t.Failed() {
		t.Log(tail(string(out), 20000))
	}
}

var (
	testLine  = regexp.MustCompile(`(?m)^( *)--- (PASS|FAIL): (\S+)`)
	specsLine = regexp.MustCompile(`(?m)(\d+) Passed`)
	specLine  = regexp.MustCompile(`(?m)^ *\[FAIL\] (.*?) \[`)
	colours   = regexp.MustCompile("\x1b\\[[0-9;]*m")
)

// outcome counts what passed of a run of go test -v, and names what failed: test
// functions and their parts, and Ginkgo's specs beside the function that runs them.
func outcome(out string) (passed int, failed []string) {
	out = colours.ReplaceAllString(out, "")
	for _, m := range specsLine.FindAllStringSubmatch(out, -1) {
		n, _ := strconv.Atoi(m[1])
		passed += n
	}
	for _, m := range specLine.FindAllStringSubmatch(out, -1) {
		failed = append(failed, strings.ReplaceAll(strings.TrimSpace(m[1]), " ", "_"))
	}
	for _, m := range testLine.FindAllStringSubmatch(out, -1) {
		switch {
		case m[2] == "FAIL":
			failed = append(failed, m[3])
		case m[1] == "":
			passed++
		}
	}
	slices.Sort(failed)
	return passed, slices.Compact(failed)
}

func tail(s string, n int) string {
	if len(s) > n {
		return fmt.Sprintf("... %d bytes\n%s", len(s)-n, s[len(s)-n:])
	}
	return s
}
