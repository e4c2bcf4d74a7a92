//go:build linux && amd64

package chaos

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

var (
	pattern = flag.String("scenarios", "", "run the scenarios of the campaign whose names match this expression")
	seed    = flag.Uint64("seed", 1, "of the runs")
	length  = flag.Float64("length", 1, "multiplies how long the faults last")
	keep    = flag.Bool("keep", false, "keep directories and logs")
)

// build builds the binary under test once.
func build(t *testing.T) string {
	t.Helper()
	if bin := os.Getenv("QUORATE_BIN"); bin != "" {
		return bin
	}
	bin := filepath.Join(t.TempDir(), "quorate")
	if out, err := exec.Command("go", "build", "-o", bin, "../../cmd/node").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return bin
}

func workDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "quorate-chaos-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if *keep {
			t.Logf("kept: %s", dir)
		} else if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func play(t *testing.T, s Scenario, bin string) *Result {
	t.Helper()
	s.Length = time.Duration(float64(s.Length) * *length)
	res, err := Play(t.Context(), s, *seed, bin, workDir(t))
	if err != nil {
		t.Fatalf("%s: %v", s.Name, err)
	}
	for _, f := range res.Failures {
		t.Errorf("%s: %s", s.Name, f)
	}
	if !res.Verdict.OK() {
		t.Errorf("%s: %v", s.Name, res.Verdict.Checks())
	}
	t.Logf("%s, seed %d, %s (%s judging)\n%s%v", s.Name, *seed, res.Took.Round(time.Second), res.Verdict.Elapsed.Round(time.Millisecond), res.Verdict, res.Counts)
	return res
}

// TestScenarios runs what -scenarios asks for.
func TestScenarios(t *testing.T) {
	if *pattern == "" {
		t.Skip("runs with -scenarios")
	}
	match, err := regexp.Compile("^(" + *pattern + ")$")
	if err != nil {
		t.Fatal(err)
	}
	bin := build(t)
	for _, s := range Scenarios {
		if match.MatchString(s.Name) {
			t.Run(s.Name, func(t *testing.T) { play(t, s, bin) })
		}
	}
	fmt.Println()
}
