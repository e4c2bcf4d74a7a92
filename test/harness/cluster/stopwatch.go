package cluster

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// Stopwatch measures how long something takes that people are promised, on a machine that may be busy with other things.
type Stopwatch struct {
	began  time.Time
	waited time.Duration
}

// StartStopwatch begins to measure.
func StartStopwatch() Stopwatch { return Stopwatch{time.Now(), waited()} }

// Allowed is how long it may take if limit is promised: longer by half of the time in which some task of the machine had to
// wait for a processor or for the disk, and so at most twice as long. Where the kernel does not say how long
// that was, limit.
func (s Stopwatch) Allowed(limit time.Duration) time.Duration {
	took := time.Since(s.began)
	return limit + min(waited()-s.waited, took)/2
}

// waited is the time in which some task had to wait, since the machine was started (the kernel's pressure stall information).
func waited() (total time.Duration) {
	for _, of := range []string{"cpu", "io"} {
		text, err := os.ReadFile("/proc/pressure/" + of)
		if err != nil {
			continue
		}
		some, _, _ := strings.Cut(string(text), "\n")
		_, value, _ := strings.Cut(some, "total=")
		if us, err := strconv.ParseInt(value, 10, 64); err == nil {
			total += time.Duration(us) * time.Microsecond
		}
	}
	return total
}
