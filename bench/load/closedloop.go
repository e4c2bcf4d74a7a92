package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// operation is one call of worker w; n counts that worker's calls from 0. It
// returns errDone when the worker has nothing left to do.
type operation func(ctx context.Context, w, n int) error

var errDone = errors.New("done")

// outcome is what a set of workers did.
type outcome struct {
	latency *hdrhistogram.Histogram // in microseconds
	errors  int64
	first   error
	elapsed time.Duration
}

// newLatency covers a microsecond to a minute with three digits.
func newLatency() *hdrhistogram.Histogram { return hdrhistogram.New(1, 60_000_000, 3) }

// maxErrors is how many errors a row may have before it is given up.
const maxErrors = 100

// closedLoop lets each worker call op again and again, one call after the
// other, until the time is up or op is done; no limit if d is zero.
func closedLoop(ctx context.Context, workers int, d time.Duration, op operation) outcome {
	out := outcome{latency: newLatency()}
	var (
		wg     sync.WaitGroup
		failed atomic.Int64
		mu     sync.Mutex // guards out
		begin  = time.Now()
	)
	for w := range workers {
		wg.Go(func() {
			mine := newLatency()
			var first error
			for n := 0; (d == 0 || time.Since(begin) < d) && failed.Load() < maxErrors; n++ {
				start := time.Now()
				err := op(ctx, w, n)
				if errors.Is(err, errDone) {
					break
				}
				if err != nil {
					failed.Add(1)
					if first == nil {
						first = err
					}
					continue
				}
				// Above the histogram's range is still a minute.
				_ = mine.RecordValue(min(time.Since(start).Microseconds(), 60_000_000))
			}
			mu.Lock()
			defer mu.Unlock()
			out.latency.Merge(mine)
			if out.first == nil {
				out.first = first
			}
		})
	}
	wg.Wait()
	out.elapsed, out.errors = time.Since(begin), failed.Load()
	return out
}
