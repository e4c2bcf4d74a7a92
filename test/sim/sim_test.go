package sim

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/test/judges/check"
	"github.com/quorate/quorate/test/judges/history"
	drawn "github.com/quorate/quorate/test/judges/report"
)

var (
	oneSeed   = flag.Int64("seed", -1, "play this seed alone, and say what happens with -v")
	firstSeed = flag.Uint64("first", 1, "first seed")
	seeds     = flag.Uint64("seeds", 200, "how many seeds")
	outDir    = flag.String("out", "", "where failing seeds leave their history and report (default: a new temporary directory)")
	keepDir   = flag.String("keep", os.Getenv("QUORATE_HISTORIES"), "keep every history in this directory, for other judges")
	nodeLogs  = flag.Bool("logs", false, "print what the nodes log")
)

// TestChaos plays seeds, each in its own bubble of virtual time.
func TestChaos(t *testing.T) {
	first, n := *firstSeed, *seeds
	if *oneSeed >= 0 {
		first, n = uint64(*oneSeed), 1
	}
	if testing.Short() {
		n = min(n, 20)
	}
	s := newSuite(t)
	s.run(first, n)
	t.Log(s.summary())
}

// suite is many seeds and what they come to.
type suite struct {
	t       *testing.T
	scratch string
	began   time.Time

	mu     sync.Mutex
	total  check.Verdict
	ends   map[string]int
	failed []uint64
}

func newSuite(t *testing.T) *suite {
	thriftyGC(t)
	return &suite{t: t, scratch: scratch(t), began: time.Now(), ends: map[string]int{}}
}

// thriftyGC trades memory for time: a seed's heap is small, and gone with it.
func thriftyGC(t *testing.T) {
	before := debug.SetGCPercent(400)
	t.Cleanup(func() { debug.SetGCPercent(before) })
}

// scratch is a directory in memory, if there is one.
func scratch(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "quorate-sim-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// run plays seeds on all cores.
func (s *suite) run(first, n uint64) {
	var next atomic.Uint64
	next.Store(first)
	s.t.Run("seeds", func(t *testing.T) {
		for i := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				for {
					seed := next.Add(1) - 1
					if seed >= first+n {
						return
					}
					s.one(t, seed)
				}
			})
		}
	})
}

// one plays a seed and judges it.
func (s *suite) one(t *testing.T, seed uint64) (found []string) {
	t.Helper()
	r := play(t, seed, s.scratch)
	verdict := judge(r)
	keep(t, r, fmt.Sprintf("sim-%d", seed))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total.Counts.Add(&verdict.Counts)
	if r.Left {
		// Close does not wait for proposals that Raft never answers.
		s.ends["runs that left a proposal without an answer from Raft"]++
	}
	for why, k := range r.Ends {
		s.ends[why] += k
	}
	if len(r.Broken) == 0 && verdict.OK() {
		return nil
	}
	s.failed = append(s.failed, seed)
	report(t, r, &verdict)
	return verdict.Checks()
}

// play runs one seed in a bubble. A bubble that is stuck in real time is ended
// with everything: virtual time does not pass behind a mutex, so that such a hang
// is a fault of the simulation.
func play(t *testing.T, seed uint64, scratch string) (r *Result) {
	t.Helper()
	watchdog := time.AfterFunc(stuck, func() {
		buf := make([]byte, 64<<20)
		buf = buf[:runtime.Stack(buf, true)]
		name := fmt.Sprintf("%s/quorate-sim-stuck-%d.txt", os.TempDir(), seed)
		_ = os.WriteFile(name, buf, 0o600)
		fmt.Fprintf(os.Stderr, "seed %d does not get on: goroutines in %s\n", seed, name)
		os.Exit(1)
	})
	defer watchdog.Stop()
	var output io.Writer
	if *nodeLogs {
		output = os.Stderr
	}
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if r == nil || !strings.Contains(fmt.Sprint(p), "blocked goroutines remain") {
			panic(p)
		}
		r.Left = true
	}()
	synctest.Test(t, func(*testing.T) { r = Run(seed, scratch, output) })
	return r
}

// keep saves the histories of a run for other judges: test/judges/README.md.
func keep(t *testing.T, r *Result, name string) {
	t.Helper()
	if *keepDir == "" {
		return
	}
	for i, h := range r.Histories {
		if err := history.Save(fmt.Sprintf("%s/%s-%d.json.gz", *keepDir, name, i+1), h); err != nil {
			t.Error(err)
		}
	}
}

// stuck is how long one seed may take: hundreds of times what it does, for a machine that
// is short of memory can stop for minutes.
const stuck = 15 * time.Minute

func judge(r *Result) check.Verdict {
	var total check.Verdict
	total.Name, total.Seed = "sim", r.Seed
	for _, h := range r.Histories {
		total.Merge(check.All(h))
	}
	return total
}

// report prints a failing seed and leaves what it takes to look at it.
func report(t *testing.T, r *Result, v *check.Verdict) {
	dir := *outDir
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "quorate-sim-"); err != nil {
			t.Error(err)
			return
		}
	}
	for i, h := range r.Histories {
		name := fmt.Sprintf("%s/seed-%d-%d", dir, r.Seed, i+1)
		if err := errors.Join(history.Save(name+".json", h), drawn.File(name+".html", h, check.All(h))); err != nil {
			t.Error(err)
		}
	}
	for _, b := range r.Broken {
		t.Errorf("seed %d (%s): %s", r.Seed, r.Profile, b)
	}
	for i, x := range v.Violations {
		if i == 10 {
			t.Errorf("and %d more", len(v.Violations)-i)
			break
		}
		t.Errorf("seed %d (%s): %s: %s", r.Seed, r.Profile, x.Check, x.Text)
	}
	t.Errorf("seed %d failed; its history and report are in %s; play it again with\n  go test ./test/sim -run TestChaos -seed %d -v", r.Seed, dir, r.Seed)
}

func (s *suite) summary() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := fmt.Sprintf("%d seeds in %v", s.total.Counts.Runs, time.Since(s.began).Round(time.Millisecond))
	for _, why := range slices.Sorted(maps.Keys(s.ends)) {
		text += fmt.Sprintf("\n%d: %s", s.ends[why], why)
	}
	return text + "\n" + s.total.String()
}
