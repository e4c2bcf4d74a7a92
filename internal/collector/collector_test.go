package collector

import (
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"

	"github.com/quorate/quorate/internal/must"
)

func TestPercent(t *testing.T) {
	for live, want := range map[uint64]int{0: 100, 4 << 20: 100, 32 << 20: 100, 64 << 20: 50, 1 << 30: 35, 1 << 40: 35} {
		if got := percent(live, least); got != want {
			t.Errorf("%d MiB: %d %%, want %d", live>>20, got, want)
		}
	}
}

// TestJudge: a heap grows by more while collections are dear, by less when they are cheap, and within bounds.
func TestJudge(t *testing.T) {
	n := tuner{share: least}
	var at usage
	tick := func(program, collector float64) float64 {
		at.program += program
		at.collector += collector
		n.judge(at)
		n.last = at
		return n.share
	}
	for _, c := range []struct {
		what               string
		program, collector float64
		want               func(before, after float64) bool
	}{
		{"cheap", 1, 0.01, func(_, after float64) bool { return after == least }},
		{"dear", 1, 0.2, func(before, after float64) bool { return after > before }},
		{"in between", 1, 0.042, func(before, after float64) bool { return after == before }},
		{"too little to tell", 0.01, 0.01, func(before, after float64) bool { return after == before }},
		{"no collection", 5, 0, func(before, after float64) bool { return after == before }},
		{"it was cheap", 1, 0.01, func(before, after float64) bool { return after < before }},
	} {
		before := n.share
		if after := tick(c.program, c.collector); !c.want(before, after) {
			t.Errorf("%s: from %v to %v", c.what, before, after)
		}
	}
	for range 20 {
		tick(1, 1)
	}
	if n.share != most {
		t.Errorf("it ends at %v", n.share)
	}
	for range 100 {
		tick(1, 0.001)
	}
	if n.share != least {
		t.Errorf("it comes back to %v", n.share)
	}
}

func TestRests(t *testing.T) {
	var n tuner
	at := usage{live: 20 << 20}
	tick := func(what string, bytes uint64, want bool) {
		t.Helper()
		at.allocated += bytes
		if got := n.rests(at); got != want {
			t.Errorf("%s: a burst is over: %v", what, got)
		}
		n.last = at
	}
	for range 10 {
		tick("a burst", 50<<20, false)
	}
	for range restAfter - 1 {
		tick("not for long", 1<<20, false)
	}
	tick("for long enough", 1<<20, true)
	for range restAfter {
		tick("nothing since", 100<<10, false)
	}
	tick("another one", 100<<20, false)
	for range restAfter - 1 {
		tick("the other one's end", 0, false)
	}
	tick("the other one", 0, true)
	at.live = 8 << 30
	tick("little, beside what is live", 200<<20, false)
	for range 2 * restAfter {
		tick("little, beside what is live", 0, false)
	}
}

func TestGroupLimit(t *testing.T) {
	for what, c := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"no groups":      {nil, math.MaxInt64},
		"none":           {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, math.MaxInt64},
		"in a container": {map[string]string{"proc/self/cgroup": "0::/kubepods/x\n", "sys/fs/cgroup/memory.max": "1000\n"}, 1000},
		"the least of those above": {map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/memory.max": "500\n",
			"sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/memory.max": "700\n"}, 500},
		"version 1": {map[string]string{"proc/self/cgroup": "3:cpu:/c\n2:memory:/m\n", "sys/fs/cgroup/memory/m/memory.limit_in_bytes": "800\n",
			"sys/fs/cgroup/memory/c/memory.limit_in_bytes": "1\n"}, 800},
		"no number": {map[string]string{"proc/self/cgroup": "0::/\n:\n", "sys/fs/cgroup/memory.max": "-5\n"}, math.MaxInt64},
	} {
		root := t.TempDir()
		for name, content := range c.files {
			must.OK(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o700))
			must.OK(t, os.WriteFile(filepath.Join(root, name), []byte(content), 0o600))
		}
		if got := groupLimit(root); got != c.want {
			t.Errorf("%s: %d, want %d", what, got, c.want)
		}
	}
}

// TestMemory: what a process may take is the least that anything says.
func TestMemory(t *testing.T) {
	root := t.TempDir()
	for name, content := range map[string]string{
		"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/memory.max": "500\n", "sys/fs/cgroup/a/b/memory.max": "max\n",
	} {
		must.OK(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o700))
		must.OK(t, os.WriteFile(filepath.Join(root, name), []byte(content), 0o600))
	}
	for what, c := range map[string]struct {
		root                     string
		machine, collector, want int64
	}{
		"the machine's":       {t.TempDir(), 900, math.MaxInt64, 900},
		"the group's":         {root, 900, math.MaxInt64, 500},
		"the collector's":     {root, 900, 400, 400},
		"a small machine's":   {root, 300, 400, 300},
		"nothing known of it": {t.TempDir(), math.MaxInt64, math.MaxInt64, math.MaxInt64},
	} {
		if got := available(c.root, c.machine, c.collector); got != c.want {
			t.Errorf("%s: %d, want %d", what, got, c.want)
		}
	}
	before := Memory()
	if before <= 0 {
		t.Fatalf("this process may take %d", before)
	}
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(before / 2))
	if got := Memory(); got != before/2 {
		t.Errorf("with a limit of the collector: %d, want %d", got, before/2)
	}
}

// TestStart: it sets what is right for a small heap, leaves what the environment says, and puts back what was.
func TestStart(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(77))
	t.Setenv("GOMEMLIMIT", "off")
	t.Setenv("GOGC", "77")
	Start()()
	stop := func() func() { t.Setenv("GOGC", ""); return Start() }()
	if got := debug.SetGCPercent(100); got != 100 {
		t.Errorf("it is %d %%", got)
	}
	stop()
	if got := debug.SetGCPercent(77); got != 77 {
		t.Errorf("then %d %%, want 77", got)
	}
	if u := read(); u.allocated == 0 {
		t.Error("nothing was ever allocated")
	}
}
