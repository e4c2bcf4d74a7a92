package ecosystem

import (
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
