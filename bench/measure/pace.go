package measure

import (
	"context"
	"math/rand/v2"
	"runtime"
	"time"
)

// Stopwatch tells the time since a run began, by the monotonic clock.
type Stopwatch struct{ began time.Time }

// NewStopwatch begins now.
func NewStopwatch() *Stopwatch { return &Stopwatch{time.Now()} }

// Now is the time since the beginning.
func (s *Stopwatch) Now() time.Duration { return time.Since(s.began) }

// Pace calls fire at random times, rate per second on average, as many
// independent clients would (a Poisson process). The times do not depend on how
// long anything takes: if fire or the machine is late, the next calls come at
// once, and due says when they should have come. fire must not block. Times are
// of clock, from begin up to end.
func Pace(ctx context.Context, clock *Stopwatch, rate float64, begin, end time.Duration, fire func(due time.Duration)) {
	// Go's timers are rounded up to a millisecond when a program idles; that would
	// be the largest part of a fast read.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for due := begin + gap(rate); due < end && ctx.Err() == nil; due += gap(rate) {
		if !clock.Await(ctx, due) {
			return
		}
		fire(due)
	}
}

// Await waits until a time, to about 50 microseconds, and blocks its thread meanwhile. It reports
// false if ctx ended before.
func (s *Stopwatch) Await(ctx context.Context, at time.Duration) bool {
	for wait := at - s.Now(); wait > 0; wait = at - s.Now() {
		sleepExactly(min(wait, 50*time.Millisecond)) // in pieces: ctx may end
		if ctx.Err() != nil {
			return false
		}
	}
	return true
}

// gap is the random time between two arrivals.
func gap(rate float64) time.Duration {
	return time.Duration(rand.ExpFloat64() / rate * float64(time.Second))
}

// Pause waits for d, or until ctx ends.
func Pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
