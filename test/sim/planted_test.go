package sim

import (
	"flag"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/test/harness/planted"
	"github.com/quorate/quorate/test/judges/check"
)

var (
	bound   = flag.Uint64("bound", 500, "how many seeds a planted bug may take")
	enough  = flag.Int("found", 1, "how many seeds have to find a planted bug")
	onlyBug = flag.String("bug", "", "look for this planted bug alone")
)

// needsBugs skips a test in a build that has no bugs to plant.
func needsBugs(t *testing.T) {
	t.Helper()
	if !planted.Built {
		t.Skip("needs a build with bugs: go test -overlay $(go run ./test/harness/planted/overlay)")
	}
}

// TestPlanted plants each known bug and plays seeds until the checkers find it:
// the same seeds that are clean without it.
func TestPlanted(t *testing.T) {
	needsBugs(t)
	defer planted.Plant("")
	for bug := range provoked {
		if !slices.Contains(planted.All(), bug) {
			t.Errorf("there is no bug %q", bug)
		}
	}
	thriftyGC(t)
	var text strings.Builder
	for _, bug := range planted.All() {
		if test, _ := planted.FoundBy(bug); test != "" || *onlyBug != "" && bug != *onlyBug {
			continue
		}
		t.Run(bug, func(t *testing.T) {
			planted.Plant(bug)
			began := time.Now()
			seed, found := find(t, bug)
			if found == "" {
				t.Fatalf("not found in %d seeds, %v", *bound, time.Since(began).Round(time.Millisecond))
			}
			t.Logf("seed %d after %v: %s", seed, time.Since(began).Round(10*time.Millisecond), found)
			fmt.Fprintf(&text, "%-30s seed %4d  %8v  %s\n", bug, seed, time.Since(began).Round(10*time.Millisecond), found)
		})
	}
	t.Logf("planted bugs found:\n%s", text.String())
}

// TestPlantedNone shows that nothing is found where nothing is planted, in a build
// that could.
func TestPlantedNone(t *testing.T) {
	needsBugs(t)
	planted.Plant("")
	s := newSuite(t)
	s.run(1, 20)
}

// provoked are the bugs that hardly show without the faults of one profile.
var provoked = map[string]string{
	"heartbeat-fast-path":           "deposed",
	"vote-for-an-address":           "moved",
	"lost-log-votes":                "moved",
	"dead-entries-below-a-snapshot": "behind",
	"applied-entries-cut":           "behind",
	"watch-back-after-snapshot":     "behind",
	"second-snapshot-ends-node":     "behind",
	"rules-forgotten-at-start":      "crash",
	"old-directory-votes":           "put-back",
}

// shy are bugs that the judges of others see only in a part of the runs that our checkers refuse:
// that many times more runs are kept of them, so that one is among these.
var shy = map[string]int{
	"ack-before-fsync": 6, "event-dropped-at-compaction": 3, "mark-ahead-of-data": 3, "read-before-wait": 3,
}

// seedFor is the nth seed to look for a bug with.
func seedFor(bug string, n uint64) uint64 {
	name := provoked[bug]
	if name == "" {
		return n
	}
	at := slices.IndexFunc(favours, func(f favour) bool { return f.name == name })
	return (n-1)*uint64(len(favours)) + uint64(at)
}

// find plays seeds on all cores until one fails, and says what failed first.
func find(t *testing.T, bug string) (seed uint64, what string) {
	var (
		next atomic.Uint64
		mu   sync.Mutex
		dir  = scratch(t)

		found int
		want  = *enough
	)
	if want > 1 {
		want *= max(1, shy[bug])
	}
	next.Store(1)
	// A seed that breaks may end in the middle, with tasks that nobody waits for:
	// each in a subtest of its own.
	t.Run("seeds", func(t *testing.T) {
		for i := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				for {
					at := next.Add(1) - 1
					n := seedFor(bug, at)
					mu.Lock()
					done := found >= want || at > *bound
					mu.Unlock()
					if done {
						return
					}
					r := play(t, n, dir)
					v := judge(r)
					if len(r.Broken) == 0 && v.OK() {
						continue
					}
					keep(t, r, fmt.Sprintf("%s-%d", bug, n))
					mu.Lock()
					found++
					if what == "" || n < seed {
						seed, what = n, first(r, &v)
					}
					mu.Unlock()
				}
			})
		}
	})
	return seed, what
}

// first is what was found, in one line.
func first(r *Result, v *check.Verdict) string {
	var all []string
	for _, b := range r.Broken {
		_, text, _ := strings.Cut(b, ": ")
		if len(all) == 0 {
			all = append(all, "sim: "+strings.TrimSpace(text))
		}
	}
	all = append(all, v.Checks()...)
	text := strings.Join(all, "; ")
	if len(v.Violations) > 0 {
		text += ": " + v.Violations[0].Text
	}
	return text[:min(len(text), 300)]
}
