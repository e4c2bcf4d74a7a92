package consistency

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Rounds shares one expensive call among many callers. One round is in flight
// at a time. A caller never gets the result of a round that was already running
// when it called: it shares the next one with everybody else who arrives
// meanwhile. That is what makes a shared linearizable index sound, because the
// index must be taken after the caller asked.
//
// All methods are safe for concurrent use.
type Rounds[T any] struct {
	run     func(context.Context) (T, error)
	timeout time.Duration
	ctx     context.Context // ends with Close
	cancel  context.CancelCauseFunc

	mu      sync.Mutex
	running bool
	next    *round[T] // not started; nil if nobody waits for one
	closed  bool
	wg      sync.WaitGroup
}

type round[T any] struct {
	done  chan struct{}
	value T
	err   error

	// Guarded by Rounds.mu:
	callers int
	cancel  context.CancelFunc // set when the round starts
}

// NewRounds returns Rounds that make each call with run. A call's context ends
// after timeout, when all its callers have gone, and with Close.
func NewRounds[T any](timeout time.Duration, run func(context.Context) (T, error)) *Rounds[T] {
	ctx, cancel := context.WithCancelCause(context.Background())
	return &Rounds[T]{run: run, timeout: timeout, ctx: ctx, cancel: cancel}
}

// Do waits for a round that starts after the call, and returns its result. The
// end of ctx ends the wait alone, with ctx's error: the others go on.
func (r *Rounds[T]) Do(ctx context.Context) (T, error) {
	var zero T
	if ctx.Err() != nil {
		return zero, context.Cause(ctx)
	}
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return zero, ErrClosed
	}
	if r.next == nil {
		r.next = &round[T]{done: make(chan struct{})}
	}
	mine := r.next
	mine.callers++
	if !r.running {
		r.running = true
		r.wg.Add(1)
		go r.loop()
	}
	r.mu.Unlock()

	select {
	case <-mine.done:
		return mine.value, mine.err
	case <-ctx.Done():
		r.leave(mine)
		return zero, context.Cause(ctx)
	}
}

// leave ends a round that nobody waits for any more.
func (r *Rounds[T]) leave(mine *round[T]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	mine.callers--
	if mine.callers == 0 && mine.cancel != nil {
		mine.cancel()
	}
}

// loop runs rounds as long as there are callers for one.
func (r *Rounds[T]) loop() {
	defer r.wg.Done()
	for {
		r.mu.Lock()
		mine := r.next
		r.next = nil
		if mine == nil {
			r.running = false
			r.mu.Unlock()
			return
		}
		if mine.callers == 0 {
			r.mu.Unlock()
			continue
		}
		ctx, cancel := context.WithTimeoutCause(r.ctx, r.timeout, errNoAnswer)
		mine.cancel = cancel
		r.mu.Unlock()

		mine.value, mine.err = r.run(ctx)
		if mine.err != nil && ctx.Err() != nil {
			mine.err = fmt.Errorf("%w: %w", context.Cause(ctx), mine.err)
		}
		cancel()
		close(mine.done)
	}
}

// Close ends the running round and fails every caller. It waits for the round's
// end.
func (r *Rounds[T]) Close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.cancel(ErrClosed)
	r.wg.Wait()
}
