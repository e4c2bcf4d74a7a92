package load

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
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

// openLoop sends operations when they are due, at random times that do not depend on the
// answers. Their latency counts from when they were due: a server that stalls is charged for
// every operation that it made wait.
type openLoop struct {
	rate    float64
	length  time.Duration
	timeout time.Duration // of an operation, from when it was due
	clock   *measure.Stopwatch
	// pace calls fire at the times: measure.Pace.
	pace func(ctx context.Context, clock *measure.Stopwatch, rate float64, begin, end time.Duration, fire func(due time.Duration))
	// one begins operation n, which is the caller's to make by do; nil if there is nothing
	// to make it with.
	one func(n int) (do func(ctx context.Context) (part int, err error))
}

// maxInflight bounds the operations under way. Those that are due beyond it are not sent, and
// counted.
const maxInflight = 8192

// run sends the operations and waits for their answers.
func (l *openLoop) run(ctx context.Context, t *tally) {
	var (
		inflight sync.WaitGroup
		running  atomic.Int64
		begin    = l.clock.Now()
		end      = begin + l.length
		n        int
	)
	l.pace(ctx, l.clock, l.rate, begin, end, func(due time.Duration) {
		t.mu.Lock()
		t.due++
		t.mu.Unlock()
		var do func(context.Context) (int, error)
		if running.Add(1) <= maxInflight {
			do = l.one(n)
			n++
		}
		if do == nil {
			running.Add(-1)
			t.mu.Lock()
			t.unsent++
			t.mu.Unlock()
			return
		}
		inflight.Go(func() {
			defer running.Add(-1)
			sent := l.clock.Now()
			one, cancel := context.WithTimeout(ctx, l.timeout-(sent-due))
			defer cancel()
			part, err := do(one)
			at := l.clock.Now()
			if ctx.Err() != nil {
				return // it was stopped: nobody knows what would have come of it
			}
			t.note(part, at-due, err)
			t.mu.Lock()
			defer t.mu.Unlock()
			t.late.RecordTime(sent - due)
			if err == nil && at <= end {
				t.within++
			}
		})
	})
	t.mu.Lock()
	t.open, t.cut = true, ctx.Err() != nil
	t.elapsed = min(l.length, l.clock.Now()-begin)
	t.mu.Unlock()
	inflight.Wait()
}

// each lets workers call op once for each of n objects.
func each(ctx context.Context, workers, n int, t *tally, op func(ctx context.Context, w, i int) error) {
	closedLoop(ctx, workers, 0, t, func(ctx context.Context, w, k int) (int, error) {
		i := k*workers + w
		if i >= n {
			return 0, errDone
		}
		return 0, op(ctx, w, i)
	})
}

// pool hands out the objects to write: each has one write under way at most.
type pool struct {
	mu    sync.Mutex     // guards free
	later sync.WaitGroup // objects that are given back behind somebody's back
	free  []int          // the one that was given back longest ago is first
	next  int
}

func newPool(objects int) *pool {
	p := &pool{free: make([]int, objects)}
	for i := range p.free {
		p.free[i] = i
	}
	return p
}

// take returns an object; false if none is free.
func (p *pool) take() (int, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == len(p.free) {
		return 0, false
	}
	i := p.free[p.next]
	if p.next++; p.next > len(p.free)/2 {
		p.free = append(p.free[:0], p.free[p.next:]...)
		p.next = 0
	}
	return i, true
}

func (p *pool) give(i int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, i)
}
