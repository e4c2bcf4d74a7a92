package load

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/quorate/quorate/bench/measure"
)

// operation is one call of worker w; n counts that worker's calls from 0. It says which part
// of the row it belongs to, and returns errDone when the worker has nothing left to do.
type operation func(ctx context.Context, w, n int) (part int, err error)

var errDone = errors.New("done")

// tally is what came of operations.
type tally struct {
	mu      sync.Mutex // guards what follows
	parts   []part
	late    measure.Histogram // how long after they were due operations were sent; open loops only
	elapsed time.Duration
	errors  int64
	first   error
	due     int64 // open loops only: all that were due,
	unsent  int64 // those of them that were not sent, since too many were under way,
	within  int64 // and those that had succeeded when the time was up
	open    bool
	cut     bool // it was stopped before its end
}

// part is one verb of a mix, or the whole.
type part struct {
	latency measure.Histogram
	errors  int64
}

func newTally(parts int) *tally {
	t := &tally{late: measure.NewHistogram()}
	for range parts {
		t.parts = append(t.parts, part{latency: measure.NewHistogram()})
	}
	return t
}

// note takes the outcome of an operation, and returns how many have failed.
func (t *tally) note(part int, took time.Duration, err error) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		t.parts[part].latency.RecordTime(took)
		return t.errors
	}
	t.errors++
	t.parts[part].errors++
	if t.first == nil {
		t.first = err
	}
	return t.errors
}

// all is the latency of all parts.
func (t *tally) all() measure.Histogram {
	if len(t.parts) == 1 {
		return t.parts[0].latency
	}
	h := measure.NewHistogram()
	for _, p := range t.parts {
		h.Merge(p.latency.Histogram)
	}
	return h
}

// counts are the successes and errors up to now.
func (t *tally) counts() (ok, failed int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.parts {
		ok += p.latency.TotalCount()
	}
	return ok, t.errors
}

// maxErrors is how many errors a row of a closed loop may have before it is given up.
const maxErrors = 100

// closedLoop lets each worker call op again and again, one call after the other, until the
// time is up or op is done; no limit if d is zero. What was under way when ctx ended is
// nobody's error.
func closedLoop(ctx context.Context, workers int, d time.Duration, t *tally, op operation) {
	var wg sync.WaitGroup
	begin := time.Now()
	for w := range workers {
		wg.Go(func() {
			failed := int64(0)
			for n := 0; (d == 0 || time.Since(begin) < d) && failed < maxErrors && ctx.Err() == nil; n++ {
				start := time.Now()
				part, err := op(ctx, w, n)
				if errors.Is(err, errDone) || errors.Is(ctx.Err(), context.Canceled) {
					break
				}
				failed = t.note(part, time.Since(start), err)
			}
		})
	}
	wg.Wait()
	t.elapsed, t.cut = time.Since(begin), errors.Is(ctx.Err(), context.Canceled)
}
