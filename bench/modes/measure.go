package modes

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/bench/measure"
)

const (
	// saturationWorkers is how many reads are under way while the throughput is
	// looked for.
	saturationWorkers = 32
	warmup            = time.Second
)

// saturateFor is how long the throughput is looked for, without the warm-up.
func (r *run) saturateFor() time.Duration {
	return max(2*time.Second, min(r.opt.Duration/4, 10*time.Second))
}

// measure makes the objects, starts the writes, finds the throughput if that is
// asked for, and reads.
func (r *run) measure() (*Report, error) {
	r.say("making %d objects of %d bytes", r.opt.Objects, r.opt.Size)
	if err := r.prepare(); err != nil {
		return nil, err
	}
	var wg sync.WaitGroup
	ctx, stop := context.WithCancel(r.ctx)
	defer wg.Wait()
	defer stop()
	for k := range r.ledger.Len() {
		wg.Go(func() { r.writers.write(ctx, k) })
	}
	if len(r.opt.Loads) == 0 {
		return r.at(0, r.opt.Rate*float64(r.units()), nil)
	}
	r.say("finding the throughput: %d readers without pauses for %s", saturationWorkers, r.saturateFor())
	peak := r.saturate()
	if peak == 0 {
		return nil, fmt.Errorf("no read was answered while the throughput was looked for")
	}
	var all []*Report
	for _, load := range r.opt.Loads {
		r.say("%.0f reads/s; measuring at %.0f", peak, peak*load)
		one, err := r.at(load, peak*load, &Saturation{ReadsPerSecond: peak, Workers: saturationWorkers})
		if err != nil {
			return nil, err
		}
		all = append(all, one)
		r.reset()
		measure.Pause(r.ctx, settle)
	}
	return joined(all), nil
}

// at measures at one rate of all reads together.
func (r *run) at(load, rate float64, peak *Saturation) (*Report, error) {
	report := r.newReport()
	report.Options.Load, report.Saturation = load, peak
	report.Options.RatePerCell = r.perCell(rate)
	if err := r.reads(report, rate); err != nil {
		return nil, err
	}
	r.fill(report)
	return report, nil
}

// saturate returns how many reads per second the cluster answers when the next
// one is sent as soon as one is answered. What is read is the same mix.
func (r *run) saturate() float64 {
	var (
		wg     sync.WaitGroup
		counts atomic.Bool
		done   atomic.Int64
	)
	ctx, cancel := context.WithCancel(r.ctx)
	for range saturationWorkers {
		wg.Go(func() {
			for ctx.Err() == nil {
				c, p := r.unit()
				if c == nil {
					if p != nil && p.read(ctx, false) == nil && counts.Load() {
						done.Add(2)
					}
					continue
				}
				a, err := c.read(ctx)
				if ctx.Err() != nil {
					return
				}
				if err != nil {
					r.failed(fmt.Errorf("%s: %w", c, err))
					continue
				}
				if a.violation != "" {
					r.brokenAtPeak(c, a)
				}
				if counts.Load() {
					done.Add(1)
				}
			}
		})
	}
	measure.Pause(ctx, warmup)
	begin := r.clock.Now()
	counts.Store(true)
	measure.Pause(ctx, r.saturateFor())
	n, took := done.Load(), r.clock.Now()-begin
	cancel()
	wg.Wait()
	return float64(n) / took.Seconds()
}

// brokenAtPeak counts a promise broken before the measurement: it is broken all
// the same.
func (r *run) brokenAtPeak(c *cell, a answer) {
	c.mu.Lock()
	c.violations++
	c.mu.Unlock()
	r.violated(fmt.Sprintf("%s at full load, before the measurement: %s", c, a.violation))
}

// reads sends the reads and waits for their answers. The numbers of the nodes
// are taken before and after.
func (r *run) reads(report *Report, rate float64) error {
	begin := r.clock.Now() + warmup
	end := begin + r.opt.Duration
	r.say("measuring %d cells for %s, %.1f reads/s each, under %g writes/s", len(r.cells), r.opt.Duration, r.perCell(rate), r.opt.Writes)
	before := make(chan *usage, 1)
	go func() {
		measure.Pause(r.ctx, begin-r.clock.Now())
		r.writers.measured(true)
		before <- r.usage(r.ctx)
	}()
	measure.Pace(r.ctx, r.clock, rate, begin-warmup, end, func(due time.Duration) {
		c, p := r.unit()
		if c == nil && p == nil {
			return
		}
		if r.running.Add(1) > maxInflight {
			r.running.Add(-1)
			r.mu.Lock()
			r.unsent++
			r.mu.Unlock()
			return
		}
		r.inflight.Go(func() {
			defer r.running.Add(-1)
			if c == nil {
				_ = p.read(r.ctx, due >= begin)
				return
			}
			if due < begin {
				_, err := c.read(r.ctx)
				if r.ctx.Err() == nil {
					r.failed(err)
				}
				return
			}
			c.measure(r.ctx, due, begin, end)
		})
	})
	r.writers.measured(false)
	was := <-before
	is := r.usage(r.ctx)
	r.inflight.Wait()
	if err := context.Cause(r.ctx); err != nil {
		return err
	}
	return report.between(r, was, is)
}
