//go:build linux && amd64

package chaos

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/chaos/clock"
	"github.com/quorate/quorate/test/judges/history"
	"github.com/quorate/quorate/test/judges/report"
)

var (
	pattern  = flag.String("scenarios", "", "play the scenarios of the campaign whose names match this expression")
	campaign = flag.Bool("campaign", false, "play the whole campaign")
	seed     = flag.Uint64("seed", 1, "of the runs")
	rounds   = flag.Uint64("rounds", 1, "plays of each scenario, each with the next seed")
	length   = flag.Float64("length", 1, "multiplies how long the faults last")
	outDir   = flag.String("out", "", "write histories and reports into this directory")
	simFile  = flag.String("sim", "", "what test/sim has counted (its -summary), for the table")
	keep     = flag.Bool("keep", false, "keep the directories of the nodes, with all logs")
)

// binaries builds what scenarios need, once.
type binaries struct {
	t            *testing.T
	plain, clock func() string
}

func newBinaries(t *testing.T) *binaries {
	dir := t.TempDir()
	return &binaries{t,
		sync.OnceValue(func() string {
			if bin := os.Getenv("QUORATE_BIN"); bin != "" {
				return bin
			}
			bin := filepath.Join(dir, "quorate")
			if out, err := exec.Command("go", "build", "-o", bin, "../../cmd/quorate").CombinedOutput(); err != nil {
				t.Fatalf("build: %v\n%s", err, out)
			}
			return bin
		}),
		sync.OnceValue(func() string {
			bin := filepath.Join(dir, "quorate-clock")
			if err := clock.Build("../..", "./cmd/quorate", bin, dir); err != nil {
				t.Fatal(err)
			}
			return bin
		}),
	}
}

func (b *binaries) of(s Scenario) string {
	if s.Shape.Clocks {
		return b.clock()
	}
	return b.plain()
}

func workDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "quorate-chaos-")
	must.OK(t, err)
	t.Cleanup(func() {
		if *keep || t.Failed() {
			t.Logf("kept: %s", dir)
		} else if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// needs skips a scenario that this machine cannot play, unless the campaign is
// asked for: that is the proof, and must not leave anything out.
func needs(t *testing.T, s Scenario) {
	t.Helper()
	if (s.Shape.Network || s.Shape.Disks) && os.Getuid() != 0 && !*campaign {
		t.Skip("namespaces, devices and mounts need root")
	}
}

// playOne plays a scenario and leaves its history and its page.
func playOne(t *testing.T, s Scenario, seed uint64, bin string) *Result {
	t.Helper()
	s.Length = time.Duration(float64(s.Length) * *length)
	res, err := Play(t.Context(), s, seed, bin, workDir(t))
	if err != nil {
		t.Fatalf("%s: %v", s.Name, err)
	}
	for _, f := range res.Failures {
		t.Errorf("%s: %s", s.Name, f)
	}
	if !res.Verdict.OK() {
		t.Errorf("%s: promises broken: %v", s.Name, res.Verdict.Checks())
	}
	t.Logf("%s, seed %d, took %s, judged in %s\n%s%v", s.Name, seed, res.Took.Round(time.Second), res.Verdict.Elapsed.Round(time.Millisecond), res.Verdict, res.Counts)
	if *outDir != "" {
		if err := history.Save(filepath.Join(*outDir, fileOf(s.Name, seed)+".json"), res.History); err != nil {
			t.Error(err)
		}
		if err := report.File(filepath.Join(*outDir, fileOf(s.Name, seed)+".html"), res.History, res.Verdict); err != nil {
			t.Error(err)
		}
	}
	return res
}

// TestScenarios plays what -scenarios asks for.
func TestScenarios(t *testing.T) {
	if *pattern == "" {
		t.Skip("plays what -scenarios names")
	}
	match, err := regexp.Compile("^(" + *pattern + ")$")
	must.OK(t, err)
	b := newBinaries(t)
	for n := range *rounds {
		for _, s := range Scenarios {
			if match.MatchString(s.Name) {
				t.Run(s.Name, func(t *testing.T) {
					needs(t, s)
					playOne(t, s, *seed+n, b.of(s))
				})
			}
		}
	}
}

// TestChaosShort is the part of the campaign that every `make test-all` runs.
func TestChaosShort(t *testing.T) {
	b := newBinaries(t)
	for _, name := range []string{"kill", "partition", "power"} {
		for _, s := range Scenarios {
			if s.Name == name {
				s.Length, s.Must = 10*time.Second, nil
				t.Run(name, func(t *testing.T) {
					needs(t, s)
					playOne(t, s, *seed, b.of(s))
				})
			}
		}
	}
}

func fileOf(name string, seed uint64) string {
	return fmt.Sprintf("%s-%d", strings.ReplaceAll(name, " ", "-"), seed)
}
