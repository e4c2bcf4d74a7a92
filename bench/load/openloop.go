package load

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/bench/measure"
)

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
