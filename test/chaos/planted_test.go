//go:build linux && amd64

package chaos

import (
	"flag"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
)

var plantedBugs = flag.Bool("planted", false, "plant known bugs in the product and demand that they are found")

// TestPlanted plants bugs that real processes show quickly, and plays the
// scenario that must find each. Package test/harness/planted says what they are;
// test/sim finds all of them.
func TestPlanted(t *testing.T) {
	if !*plantedBugs {
		t.Skip("plays with -planted")
	}
	bin := filepath.Join(t.TempDir(), "quorate-planted")
	if out, err := exec.Command("go", "run", "../harness/planted/overlay", "-build", bin).CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	const tries = 3
	for _, x := range []struct {
		bug, scenario string
		checks        []string // one of them finds it; nil: a node does, which ends
	}{
		{"", "power", nil},
		{"ack-before-fsync", "power", []string{"log/acknowledged", "order/writes", "read/stale", "order/reused"}},
		{"bookmark-before-event", "kill", []string{"watch/bookmark", "watch/reliable"}},
		// The state that lacks a version does not load: a restarted node refuses it.
		{"event-dropped-at-compaction", "floor", nil},
		{"read-before-wait", "stale", []string{"read/stale"}},
	} {
		t.Run(x.scenario+" "+x.bug, func(t *testing.T) {
			at := slices.IndexFunc(Scenarios, func(s Scenario) bool { return s.Name == x.scenario })
			s := Scenarios[at]
			needs(t, s)
			s.Shape.Env = []string{"QUORATE_PLANTED=" + x.bug}
			began := time.Now()
			for try := range tries {
				dir := t.TempDir()
				res, err := Play(t.Context(), s, *seed+uint64(try), bin, dir)
				must.OK(t, err)
				found := res.Verdict.Checks()
				t.Logf("seed %d: %v %.300q", *seed+uint64(try), found, res.Failures)
				if x.bug == "" {
					if !res.OK() {
						t.Error("found something where nothing is planted")
					}
					return
				}
				if x.checks == nil && len(res.Failures) > 0 {
					t.Logf("%s: found after %s, in %d runs: %.500s", x.bug, time.Since(began).Round(time.Second), try+1, res.Failures[0])
					return
				}
				if slices.ContainsFunc(x.checks, func(c string) bool { return slices.Contains(found, c) }) {
					t.Logf("%s: found by %v after %s, in %d runs: %s", x.bug, found, time.Since(began).Round(time.Second), try+1, res.Verdict.Violations[0].Text)
					return
				}
			}
			t.Errorf("%s was not found in %d runs", x.bug, tries)
		})
	}
}
