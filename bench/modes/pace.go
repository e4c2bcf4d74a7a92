package modes

import (
	"context"
	"math/rand/v2"
	"runtime"
	"time"
)

// pace calls fire at random times, rate per second on average, as many
// independent clients would (a Poisson process). The times do not depend on how
// long anything takes: if fire or the machine is late, the next calls come at
// once, and due says when they should have come. fire must not block. Times are
// of clock, from begin up to end.
func pace(ctx context.Context, clock *stopwatch, rate float64, begin, end time.Duration, fire func(due time.Duration)) {
	// Go's timers are rounded up to a millisecond when a program idles; that would
	// be the largest part of a fast read.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for due := begin + gap(rate); due < end && ctx.Err() == nil; due += gap(rate) {
		for wait := due - clock.now(); wait > 0; wait = due - clock.now() {
			sleepExactly(min(wait, 50*time.Millisecond)) // in pieces: ctx may end
			if ctx.Err() != nil {
				return
			}
		}
		fire(due)
	}
}

// gap is the random time between two arrivals.
func gap(rate float64) time.Duration {
	return time.Duration(rand.ExpFloat64() / rate * float64(time.Second))
}

// stopwatch tells the time since the run began, by the monotonic clock.
type stopwatch struct{ began time.Time }

func newStopwatch() *stopwatch { return &stopwatch{time.Now()} }

func (s *stopwatch) now() time.Duration { return time.Since(s.began) }
