package consistency

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"
)

// Rounds shares one expensive call among many callers. A caller never gets the
// result of a round that was already running when it called: that is what makes
// a shared linearizable index sound, because the index must be taken after the
// caller asked.
//
// While few callers wait, each has a round of its own at once, beside those that
// run: it costs a call more, and waits for one call and not for the rest of
// another as well. When many wait, one round is in flight, and everybody who
// arrives meanwhile shares the next one, which lets those that are about to ask do so
// before it starts.
//
// All methods are safe for concurrent use.
type Rounds[T any] struct {
	run     func(context.Context) (T, error)
	timeout time.Duration
	few     int
	ctx     context.Context // ends with Close
	cancel  context.CancelCauseFunc

	mu       sync.Mutex
	served   int       // callers of the running rounds
	next     *round[T] // not started; nil if nobody waits for one
	starting bool      // a goroutine is about to start next
	crowd    bool      // the newest round began with many to be served
	closed   bool
	wg       sync.WaitGroup
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
// after timeout, when all its callers have gone, and with Close. A round starts
// while the running ones have fewer than few callers; with 1, one runs at a time.
func NewRounds[T any](timeout time.Duration, few int, run func(context.Context) (T, error)) *Rounds[T] {
	ctx, cancel := context.WithCancelCause(context.Background())
	return &Rounds[T]{run: run, timeout: timeout, few: few, ctx: ctx, cancel: cancel}
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
	r.startLocked()
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
	if mine.cancel == nil {
		return // it has not started
	}
	r.served--
	if mine.callers == 0 {
		mine.cancel()
	}
	r.startLocked()
}

// startLocked starts the next round, if somebody waits for it and few wait for
// those that run.
func (r *Rounds[T]) startLocked() {
	if r.mayStartLocked() {
		r.starting = true
		r.wg.Go(r.rounds)
	}
}

func (r *Rounds[T]) mayStartLocked() bool { return r.next != nil && !r.starting && r.served < r.few }

// yields is how many times a round lets others run before it takes its callers,
// behind a round of many. Who is about to ask then shares it. That is a wait that
// costs no timer, is as long as the processors are busy, and is nothing on a node
// with nothing else to do.
const yields = 3

// rounds makes the next round, and those that may follow it.
func (r *Rounds[T]) rounds() {
	for {
		r.mu.Lock()
		crowd := r.crowd
		r.mu.Unlock()
		if crowd {
			for range yields {
				runtime.Gosched()
			}
		}
		r.mu.Lock()
		mine := r.next
		r.next, r.starting = nil, false
		if mine.callers == 0 {
			r.mu.Unlock()
			return
		}
		ctx, cancel := context.WithTimeoutCause(r.ctx, r.timeout, errNoAnswer)
		mine.cancel = cancel
		r.served += mine.callers
		r.crowd = r.served > 1
		r.mu.Unlock()

		mine.value, mine.err = r.run(ctx)
		if mine.err != nil && ctx.Err() != nil {
			mine.err = fmt.Errorf("%w: %w", context.Cause(ctx), mine.err)
		}
		cancel()
		r.mu.Lock()
		// Who has not left by now has his answer, or is about to: it is not counted twice.
		r.served -= mine.callers
		mine.cancel = nil
		close(mine.done)
		more := r.mayStartLocked()
		r.starting = r.starting || more
		r.mu.Unlock()
		if !more {
			return
		}
	}
}

// Close ends the running rounds and fails every caller. It waits for the rounds'
// end.
func (r *Rounds[T]) Close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.cancel(ErrClosed)
	r.wg.Wait()
}
