package ecosystem

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A part of a test is left out by an expression for each level; go test splits at slashes
// before it looks at parentheses.
func TestSkipped(t *testing.T) {
	got := skipped([]string{"TestA", "TestB/part=1/of.it"})
	if want := `^TestA$|^TestB$/^part=1$/^of\.it$`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A test skips itself and nothing else does.
func TestSkipTest(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a_test.go")
	noError(t, os.WriteFile(path, []byte("func TestAB(t *testing.T) {\n}\n\nfunc TestA(t *testing.T) {\n\tt.Fail()\n}\n"), 0o600))
	skipTest(t, path, "TestA")
	got, err := os.ReadFile(path)
	noError(t, err)
	if want := "func TestAB(t *testing.T) {\n}\n\nfunc TestA(t *testing.T) {\n\tt.SkipNow()\n\tt.Fail()\n}\n"; string(got) != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// Each copy of a module that asks where its sources are is told so, though what was compiled of
// the one before is cached.
func TestKeepPaths(t *testing.T) {
	files := map[string]string{
		"go.mod":            "module example.com/here\n\ngo 1.26.0\n",
		"where/where.go":    "package where\n\nimport \"runtime\"\n\nfunc File() string {\n\t_, file, _, _ := runtime.Caller(0)\n\treturn file\n}\n",
		"here/here_test.go": "package here\n\nimport (\n\t\"os\"\n\t\"testing\"\n\n\t\"example.com/here/where\"\n)\n\nfunc TestHere(t *testing.T) {\n\tif got := where.File(); got != os.Getenv(\"WANT\") {\n\t\tt.Error(got)\n\t}\n}\n",
	}
	for range 2 {
		dir := t.TempDir()
		for name, text := range files {
			path := filepath.Join(dir, name)
			noError(t, os.MkdirAll(filepath.Dir(path), 0o700))
			noError(t, os.WriteFile(path, []byte(text), 0o600))
		}
		cmd := exec.CommandContext(t.Context(), "go", "test", "-trimpath", "-count=1", keepPaths("example.com/here", dir), "./...")
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOWORK=off", "WANT="+filepath.Join(dir, "where", "where.go"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("go test: %v\n%s", err, out)
		}
	}
}

// Every suite can be read, runs something, and names modules that are pinned.
func TestSuitesOfEnvtest(t *testing.T) {
	for _, f := range table(t, "testdata/envtest.txt") {
		if f[0] != "suite" {
			continue
		}
		j := readJudged(t, f[1], "quorate")
		pinned(t, j.module)
		for _, c := range j.copies {
			pinned(t, c[0])
		}
		if len(j.steps) == 0 {
			t.Errorf("%s runs nothing", f[1])
		}
	}
}

// What passes, fails and is skipped is counted by parts of functions, and by specs in place of
// the function that runs them; a package that ends without a failed test fails by its name.
func TestTallies(t *testing.T) {
	lines := []string{
		`{"Action":"run","Package":"a","Test":"TestParts"}`,
		`{"Action":"pass","Package":"a","Test":"TestParts/one"}`,
		`{"Action":"fail","Package":"a","Test":"TestParts/two"}`,
		`{"Action":"fail","Package":"a","Test":"TestParts"}`,
		`{"Action":"skip","Package":"a","Test":"TestSkips"}`,
		`{"Action":"fail","Package":"a","Elapsed":1.5}`,
		`{"Action":"output","Package":"b","Test":"TestSpecs","Output":"  [FAIL] [It] does not\n"}`,
		`{"Action":"output","Package":"b","Test":"TestSpecs","Output":"FAIL! -- 3 Passed | 1 Failed | 2 Pending | 4 Skipped\n"}`,
		`{"Action":"fail","Package":"b","Test":"TestSpecs"}`,
		`{"Action":"fail","Package":"b"}`,
		`{"Action":"pass","Package":"c","Test":"TestPasses"}`,
		`{"Action":"fail","Package":"c"}`,
	}
	var output strings.Builder
	all := tallies{}
	noError(t, all.read(strings.NewReader(strings.Join(lines, "\n")), &output, " (tag)"))
	if got, want := strings.Join(all.failed(), " "), "TestParts/two [It]_does_not c"; got != want {
		t.Errorf("%q fail, want %q", got, want)
	}
	for name, want := range map[string]tally{"a": {passed: 1, failed: 1, skipped: 1}, "b": {passed: 3, failed: 1, skipped: 6}, "c": {passed: 1}} {
		got := all[name+" (tag)"]
		if got == nil {
			t.Fatalf("%s has no tally", name)
		}
		if got.passed != want.passed || got.failed != want.failed || got.skipped != want.skipped {
			t.Errorf("%s: %d, %d, %d, want %+v", name, got.passed, got.failed, got.skipped, want)
		}
	}
	if !strings.Contains(output.String(), "does not") {
		t.Errorf("%q was printed", output.String())
	}
}
