package ecosystem

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/go-logr/logr"
	"github.com/quorate/quorate/test/harness/cluster"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

var (
	suiteFlag       = flag.String("suite", "", "run the `SUITE` of testdata/envtest.txt")
	serverFlag      = flag.String("server", "quorate", "`SERVER` that envtest starts: quorate or upstream ('make peers')")
	controllersFlag = flag.String("controllers", "none", "`LIST` of controllers that Quorate runs, as --quorate-controllers")
	packagesFlag    = flag.String("packages", "", "these of the suite's packages, `PATTERN,...` (default: all)")
	runFlag         = flag.String("only", "", "these of its tests, as -run of go test")
	outputFlag      = flag.String("output", "", "`FILE` for what the tests print")
	copyFlag        = flag.String("copy", "", "`DIR` that is made again for the copy of the module: a second run there need not compile it again (default: a new one)")
)

// judged is what another project holds an API server against: packages of tests, that start
// their servers by envtest or are given one that envtest has started.
type judged struct {
	module    string
	workspace bool // whether it is built with the Kubernetes libraries of test/modules/clients
	paths     bool // whether it asks where its sources are
	minutes   int  // that a package may take
	steps     []goTest
	copies    [][]string // module, directory there, directory here
	cuts      [][]string // file, what its first line has, what its last line has
	skips     [][]string // file, test
	without   []string   // tests that need more than an API server
	fails     []string   // tests that fail, on the server that the flag names
}

// goTest is one call of go test.
type goTest struct {
	tags     string
	crds     string // a directory of definitions: the server is started with them, and named in KUBECONFIG
	packages []string
}

// readJudged reads a suite of testdata/envtest.txt. Its lines are explained there.
func readJudged(t *testing.T, name, server string) judged {
	t.Helper()
	var j judged
	here := false
	for _, f := range table(t, "testdata/envtest.txt") {
		switch {
		case f[0] == "suite":
			here = f[1] == name
			if here {
				j.module = f[2]
				j.minutes = 15
				for _, word := range f[3:] {
					if m, ok := strings.CutPrefix(word, "minutes="); ok {
						n, err := strconv.Atoi(m)
						noError(t, err)
						j.minutes = n
					}
					j.workspace = j.workspace || word == "workspace"
					j.paths = j.paths || word == "paths"
				}
			}
		case !here:
		case f[0] == "run":
			var s goTest
			for _, word := range f[1:] {
				if v, ok := strings.CutPrefix(word, "tags="); ok {
					s.tags = v
				} else if v, ok := strings.CutPrefix(word, "crds="); ok {
					s.crds = v
				} else {
					s.packages = append(s.packages, word)
				}
			}
			j.steps = append(j.steps, s)
		case f[0] == "copy":
			j.copies = append(j.copies, f[1:])
		case f[0] == "cut":
			j.cuts = append(j.cuts, f[1:])
		case f[0] == "skip":
			j.skips = append(j.skips, f[1:3])
		case f[0] == "without":
			j.without = append(j.without, f[1])
		case f[0] == "fails":
			if f[1] == server || f[1] == "both" {
				j.fails = append(j.fails, f[2])
			}
		default:
			t.Fatalf("testdata/envtest.txt: %q", f)
		}
	}
	if j.module == "" {
		t.Fatalf("testdata/envtest.txt has no suite %q", name)
	}
	return j
}

// TestEnvtest runs a suite of testdata/envtest.txt as its project does, on the server that
// -server names: envtest finds kube-apiserver and etcd where KUBEBUILDER_ASSETS says, and
// knows of nothing else. It prints what became of each package.
func TestEnvtest(t *testing.T) {
	if *suiteFlag == "" {
		t.Skip("is asked for by -suite")
	}
	j := readJudged(t, *suiteFlag, *serverFlag)
	dir := *copyFlag
	if dir == "" {
		dir = t.TempDir()
	}
	noError(t, os.RemoveAll(dir))
	copyTo(t, dir, j.module)
	for _, c := range j.copies {
		to := filepath.Join(dir, c[2])
		entries, err := os.ReadDir(filepath.Join(moduleDir(t, c[0]), c[1]))
		noError(t, err)
		for _, e := range entries {
			b, err := os.ReadFile(filepath.Join(moduleDir(t, c[0]), c[1], e.Name()))
			noError(t, err)
			noError(t, os.WriteFile(filepath.Join(to, e.Name()), b, 0o600))
		}
	}
	for _, c := range j.cuts {
		cutLines(t, filepath.Join(dir, c[0]), c[1], c[2])
	}
	for _, s := range j.skips {
		skipTest(t, filepath.Join(dir, s[0]), s[1])
	}
	makeExecutable(t, dir)
	output := io.Discard
	if *outputFlag != "" {
		f, err := os.Create(*outputFlag)
		noError(t, err)
		defer f.Close()
		output = f
	}
	assets := assetsOf(t, *serverFlag)
	t.Setenv("KUBEBUILDER_ASSETS", assets)
	// As envtest has it: nobody makes accounts, collects garbage or finalizes namespaces.
	t.Setenv("QUORATE_CONTROLLERS", *controllersFlag)
	t.Setenv("GOWORK", "off")
	if j.workspace {
		t.Setenv("GOWORK", workspace(t, dir))
	}
	all := tallies{}
	for _, s := range j.steps {
		s.run(t, j, dir, output, all)
	}
	t.Logf("%s on %s:\n%s", *suiteFlag, *serverFlag, all)
	failed := all.failed()
	for _, name := range failed {
		if !slices.Contains(j.fails, name) {
			t.Errorf("%s fails", name)
		}
	}
	for _, name := range j.fails {
		if *packagesFlag == "" && *runFlag == "" && !slices.Contains(failed, name) {
			t.Errorf("%s passes", name)
		}
	}
}

// cutLines takes the lines of a file away from the first that contains one text to the next
// that contains another.
func cutLines(t *testing.T, path, from, to string) {
	t.Helper()
	b, err := os.ReadFile(path)
	noError(t, err)
	lines := strings.Split(string(b), "\n")
	begin := slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, from) })
	if begin < 0 {
		t.Fatalf("%s has no line with %q", path, from)
	}
	n := slices.IndexFunc(lines[begin:], func(l string) bool { return strings.Contains(l, to) })
	if n < 0 {
		t.Fatalf("%s has no line with %q behind %q", path, to, from)
	}
	noError(t, os.WriteFile(path, []byte(strings.Join(slices.Delete(lines, begin, begin+n+1), "\n")), 0o600))
}

// skipTest has a test of a file skip itself. -skip of go test would skip the tests of other packages
// that have the same name.
func skipTest(t *testing.T, path, test string) {
	t.Helper()
	b, err := os.ReadFile(path)
	noError(t, err)
	line := "func " + test + "(t *testing.T) {\n"
	if strings.Count(string(b), line) != 1 {
		t.Fatalf("%s does not have %q once", path, line)
	}
	noError(t, os.WriteFile(path, []byte(strings.Replace(string(b), line, line+"\tt.SkipNow()\n", 1)), 0o600))
}

// makeExecutable lets scripts run that tests call: a module's files have lost their modes.
func makeExecutable(t *testing.T, dir string) {
	t.Helper()
	noError(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil || !bytes.HasPrefix(b, []byte("#!")) {
			return err
		}
		return os.Chmod(path, 0o700)
	}))
}

// assetsOf is a directory as setup-envtest downloads it.
func assetsOf(t *testing.T, server string) string {
	t.Helper()
	dir := t.TempDir()
	link := map[string]string{"kubectl": cluster.KubectlPath(), "etcd": cluster.Binary(), "kube-apiserver": cluster.Binary()}
	switch server {
	case "quorate":
	case "upstream":
		link["etcd"], link["kube-apiserver"] = binary(t, "ETCD", "etcd"), binary(t, "KUBE_APISERVER", "kube-apiserver")
	default:
		t.Fatalf("there is no server %q", server)
	}
	for name, path := range link {
		noError(t, os.Symlink(path, filepath.Join(dir, name)))
	}
	return dir
}

// run runs a step, and adds what becomes of its packages.
func (s goTest) run(t *testing.T, j judged, dir string, output io.Writer, all tallies) {
	t.Helper()
	env := os.Environ()
	if s.crds != "" {
		env = append(env, "KUBECONFIG="+startedByEnvtest(t, filepath.Join(dir, s.crds)))
	}
	packages := s.packages
	if *packagesFlag != "" {
		packages = strings.Split(*packagesFlag, ",")
	}
	// With -trimpath what others compile here is shared. It makes runtime.Caller blind: packages of
	// a module that asks keep their paths, what they import does not.
	args := []string{"test", "-json", "-trimpath", "-vet=off", "-count=1", "-p", "1", "-tags", s.tags, "-timeout", fmt.Sprintf("%dm", j.minutes)}
	if j.paths {
		args = append(args, keepPaths(pinned(t, j.module)[1], dir))
	}
	if len(j.without) > 0 {
		args = append(args, "-skip", skipped(j.without))
	}
	if *runFlag != "" {
		args = append(args, "-run", *runFlag)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Hour)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", append(args, packages...)...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = dir, env, time.Second
	cmd.Stderr = output
	pipe, err := cmd.StdoutPipe()
	noError(t, err)
	noError(t, cmd.Start())
	label := ""
	if s.tags != "" {
		label = " (" + s.tags + ")"
	}
	noError(t, all.read(pipe, output, label))
	// What fails is in the tallies, also packages that cannot be built.
	if err := cmd.Wait(); err != nil && len(all.failed()) == 0 {
		t.Error(err)
	}
}

// keepPaths is a flag of go test with -trimpath by which the packages of a module in dir keep their
// paths. It names the directory: what is compiled is cached by its flags and not by the directory,
// and another copy of the module would be told where this one was.
func keepPaths(module, dir string) string {
	return fmt.Sprintf("-gcflags=%s/...=-trimpath=%s=>%s", module, dir, dir)
}

// skipped is what -skip of go test takes for tests and parts of tests: an expression for each
// level, as a slash inside of parentheses would be a part of a name.
func skipped(tests []string) string {
	var all []string
	for _, test := range tests {
		var levels []string
		for level := range strings.SplitSeq(test, "/") {
			levels = append(levels, "^"+regexp.QuoteMeta(level)+"$")
		}
		all = append(all, strings.Join(levels, "/"))
	}
	return strings.Join(all, "|")
}

// startedByEnvtest starts a server as envtest does, with definitions, and returns a kubeconfig
// for it.
func startedByEnvtest(t *testing.T, crds string) string {
	t.Helper()
	log.SetLogger(logr.Discard()) // which would print a stack otherwise
	e := &envtest.Environment{CRDDirectoryPaths: []string{crds}, ErrorIfCRDPathMissing: true}
	_, err := e.Start()
	t.Cleanup(func() { noError(t, e.Stop()) })
	noError(t, err)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	noError(t, os.WriteFile(path, e.KubeConfig, 0o600))
	return path
}

// tally is what became of a package's tests: of those functions and parts of them that have no
// parts themselves, and of Ginkgo's specs in place of the function that runs them.
type tally struct {
	passed, failed, skipped int
	names                   []string // of what failed
	ended                   string   // pass, fail or skip
	seconds                 float64
}

type tallies map[string]*tally

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64
}

// read takes the lines of go test -json; what tests print goes to output.
func (all tallies) read(r io.Reader, output io.Writer, label string) error {
	results := map[string]map[string]string{} // package, test: pass, fail or skip
	printed := map[string]map[string]*strings.Builder{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return fmt.Errorf("a line of go test: %w", err)
		}
		if e.Output != "" {
			if _, err := io.WriteString(output, e.Output); err != nil {
				return err
			}
		}
		if e.Package == "" {
			continue
		}
		if results[e.Package] == nil {
			results[e.Package], printed[e.Package] = map[string]string{}, map[string]*strings.Builder{}
		}
		switch {
		case e.Action == "output" && e.Test != "":
			b := printed[e.Package][e.Test]
			if b == nil {
				b = new(strings.Builder)
				printed[e.Package][e.Test] = b
			}
			b.WriteString(e.Output)
		case e.Action != "pass" && e.Action != "fail" && e.Action != "skip":
		case e.Test != "":
			results[e.Package][e.Test] = e.Action
		default:
			all[e.Package+label] = tallyOf(results[e.Package], printed[e.Package], e)
		}
	}
	return lines.Err()
}

var (
	specsEnd = regexp.MustCompile(`(\d+) Passed \| (\d+) Failed \| (\d+) Pending \| (\d+) Skipped`)
	// Ginkgo's summary of what failed, and where.
	specName = regexp.MustCompile(`(?m)^ *\[(?:FAIL|PANICKED!|TIMEDOUT|INTERRUPTED)\] (.*?)\s*$`)
)

func tallyOf(results map[string]string, printed map[string]*strings.Builder, end event) *tally {
	out := &tally{ended: end.Action, seconds: end.Elapsed}
	parents := map[string]bool{}
	for test := range results {
		for i, c := range test {
			if c == '/' {
				parents[test[:i]] = true
			}
		}
	}
	for _, test := range slices.Sorted(maps.Keys(results)) {
		text := ""
		if b := printed[test]; b != nil {
			text = colours.ReplaceAllString(b.String(), "")
		}
		if m := specsEnd.FindStringSubmatch(text); m != nil {
			out.passed += number(m[1])
			out.failed += number(m[2])
			out.skipped += number(m[3]) + number(m[4])
			for _, m := range specName.FindAllStringSubmatch(text, -1) {
				out.names = append(out.names, strings.ReplaceAll(m[1], " ", "_"))
			}
			if results[test] == "fail" && len(out.names) == 0 {
				out.names = append(out.names, test)
			}
			continue
		}
		if parents[test] {
			continue
		}
		switch results[test] {
		case "pass":
			out.passed++
		case "skip":
			out.skipped++
		default:
			out.failed++
			out.names = append(out.names, test)
		}
	}
	// A package that panics, does not end in time or cannot be built names no test.
	if out.ended == "fail" && len(out.names) == 0 {
		out.names = append(out.names, end.Package)
	}
	slices.Sort(out.names)
	out.names = slices.Compact(out.names)
	return out
}

func number(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}

// failed are the names of all that fails, in order.
func (all tallies) failed() []string {
	var out []string
	for _, t := range all {
		out = append(out, t.names...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// String is a table of the packages that have tests.
func (all tallies) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "package\tpassed\tfailed\tskipped\tseconds")
	var sum tally
	n := 0
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t := all[name]
		if t.ended == "skip" && t.passed+t.failed+t.skipped == 0 {
			continue
		}
		n++
		sum.passed, sum.failed, sum.skipped, sum.seconds = sum.passed+t.passed, sum.failed+t.failed, sum.skipped+t.skipped, sum.seconds+t.seconds
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%.1f\n", name, t.passed, t.failed, t.skipped, t.seconds)
	}
	fmt.Fprintf(w, "%d packages\t%d\t%d\t%d\t%.1f\n", n, sum.passed, sum.failed, sum.skipped, sum.seconds)
	w.Flush()
	for _, name := range all.failed() {
		fmt.Fprintf(&b, "fails: %s\n", name)
	}
	return b.String()
}
