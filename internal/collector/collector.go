// Package collector tells Go's garbage collector how much memory may be used, from what is live in the
// process: a node that holds many objects would else take twice their memory, by the default of 100 %.
//
// It goes by three rules. A heap may grow between two collections by as little as a third of its size, if
// that costs little: while collections take more than a twentieth of the process's CPU time it may grow by
// more, up to the whole of it, as by default. When a burst is over, what it has left is collected and
// given back. And a limit of the process's control
// group is the collector's limit too, less a tenth, so that it works harder before the kernel ends
// the process.
//
// GOGC and GOMEMLIMIT in the environment go before each of these.
//
// Memory is what bounds that follow from memory go by.
package collector

import (
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// freely is by how much any heap may grow between two collections, if that is not more than it has.
	freely = 32 << 20
	// least and most are by which share of it a large heap may.
	least, most = 0.35, 1
	// cheap and dear are shares of the CPU time that collections take: below the one there
	// may be more of them, above the other there are too many. busy is how much CPU time a second there must be to tell.
	cheap, dear = 0.03, 0.05
	busy        = 0.2

	every = time.Second
	// restful is how many bytes a second a process allocates at most when there is no burst, and
	// restAfter for how long that lasts before it is over.
	restful   = 2 << 20
	restAfter = 2
	// worthwhile is how much must have been allocated since what was left was collected last: so
	// much, or an eighth of what is live.
	worthwhile = 8 << 20
)

// Start begins to tune the process's collector, until stop is called.
func Start() (stop func()) {
	limit(os.Getenv, "/")
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	quit, done := make(chan struct{}), make(chan struct{})
	before := debug.SetGCPercent(percent(0, least))
	go func() {
		defer close(done)
		tick := time.NewTicker(every)
		defer tick.Stop()
		t := tuner{share: least}
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
			}
			t.tick(read())
		}
	}()
	return func() {
		close(quit)
		<-done
		debug.SetGCPercent(before)
	}
}

// percent is what a heap with so many live bytes may grow by, if it may grow by a share of it.
func percent(live uint64, share float64) int {
	if live <= freely {
		return 100
	}
	return int(100 * max(share, float64(freely)/float64(live)))
}

// usage is what is known of the heap.
type usage struct {
	live uint64 // of the last collection
	// Since the process began: bytes, and seconds of CPU time of the program and of the collector.
	allocated uint64
	program   float64
	collector float64
}

func read() usage {
	s := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"}, {Name: "/cpu/classes/user:cpu-seconds"}, {Name: "/cpu/classes/gc/total:cpu-seconds"},
	}
	metrics.Read(s)
	return usage{s[0].Value.Uint64(), s[1].Value.Uint64(), s[2].Value.Float64(), s[3].Value.Float64()}
}

// tuner follows the heap.
type tuner struct {
	percent   int
	share     float64
	last      usage  // at the last tick
	judged    usage  // when share was chosen
	collected uint64 // allocated when a burst's rest was collected
	quiet     int    // ticks in a row
}

// tick sets the percentage that is right for the heap, and collects what a burst has left.
func (t *tuner) tick(u usage) {
	t.judge(u)
	if p := percent(u.live, t.share); p != t.percent {
		t.percent = p
		debug.SetGCPercent(p)
	}
	if t.rests(u) {
		t.share = least
		debug.FreeOSMemory()
	}
	t.last = u
}

// judge chooses the share by what collections have cost. The times are known only after each collection.
func (t *tuner) judge(u usage) {
	program, collector := u.program-t.judged.program, u.collector-t.judged.collector
	if u.collector == t.last.collector || program < busy {
		return
	}
	t.judged = u
	switch part := collector / (program + collector); {
	case part > dear:
		t.share = min(most, t.share*1.5)
	case part < cheap:
		t.share = max(least, t.share*0.9)
	}
}

// rests reports whether a burst is over, once for each.
func (t *tuner) rests(u usage) bool {
	if t.quiet++; u.allocated-t.last.allocated > uint64(restful*every/time.Second) {
		t.quiet = 0
	}
	if t.quiet < restAfter || u.allocated-t.collected < max(worthwhile, u.live/8) {
		return false
	}
	t.collected, t.quiet = u.allocated, 0
	return true
}

// limit sets the collector's limit from that of the control group, found below root.
func limit(getenv func(string) string, root string) {
	if getenv("GOMEMLIMIT") != "" {
		return
	}
	if max := groupLimit(root); max < math.MaxInt64 {
		debug.SetMemoryLimit(max - max/10)
	}
}

// Memory is how many bytes this process may take: those of the machine, or what its control group or the collector's limit
// has, if that is less. 0: it is not known.
func Memory() int64 {
	var info syscall.Sysinfo_t
	machine := int64(math.MaxInt64)
	if syscall.Sysinfo(&info) == nil {
		machine = int64(info.Totalram) * int64(info.Unit)
	}
	if m := available("/", machine, debug.SetMemoryLimit(-1)); m < math.MaxInt64 {
		return m
	}
	return 0
}

// available is the least of a machine's memory, the collector's limit, and the limits of control groups below root.
func available(root string, machine, collector int64) int64 {
	return min(machine, collector, groupLimit(root))
}

// groupLimit is what the process's control group and those above it may use, as version 2 says it
// and, for memory alone, version 1.
func groupLimit(root string) int64 {
	least := int64(math.MaxInt64)
	look := func(dir, file string) {
		raw, err := os.ReadFile(filepath.Join(root, dir, file))
		if n, e := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64); err == nil && e == nil && n > 0 {
			least = min(least, n)
		}
	}
	raw, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return least
	}
	for line := range strings.Lines(string(raw)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		base, file := "sys/fs/cgroup", "memory.max"
		if parts[1] != "" {
			if parts[1] != "memory" {
				continue
			}
			base, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		}
		// In a container the path may be the host's: then only the root is there.
		for path := filepath.Clean("/" + parts[2]); ; path = filepath.Dir(path) {
			look(filepath.Join(base, path), file)
			if path == "/" {
				break
			}
		}
	}
	return least
}
