package apiserver

import (
	"context"
	"sync"
	"time"

	"github.com/quorate/quorate/internal/slots"
)

// timeLimit is the context of a request that has one: that of its stream, until a time. Most reads wait for nobody, so
// the timer and what belongs to it are made when somebody asks for Done: they were an eighth of what a read from memory
// allocates. Until then Err looks at the clock. Safe for concurrent use.
type timeLimit struct {
	stream context.Context
	at     time.Time
	turn   *slots.Turn // the request's

	mu     sync.Mutex
	waited context.Context // nil: nobody has asked for Done
	cancel context.CancelFunc
	ended  bool // the request has
}

// Deadline implements context.Context.
func (d *timeLimit) Deadline() (time.Time, bool) {
	if at, ok := d.stream.Deadline(); ok && at.Before(d.at) {
		return at, true
	}
	return d.at, true
}

// Done implements context.Context.
func (d *timeLimit) Done() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.waited != nil:
	case d.ended:
		d.waited, d.cancel = context.WithCancel(d.stream)
		d.cancel()
	default:
		d.waited, d.cancel = context.WithDeadline(d.stream, d.at)
	}
	return d.waited.Done()
}

// Err implements context.Context.
func (d *timeLimit) Err() error {
	if waited := d.timed(); waited != nil {
		return waited.Err()
	}
	if err := d.stream.Err(); err != nil {
		return err
	}
	d.mu.Lock()
	ended := d.ended
	d.mu.Unlock()
	switch {
	case ended:
		return context.Canceled
	case !time.Now().Before(d.at):
		return context.DeadlineExceeded
	}
	return nil
}

// Value implements context.Context. Contexts that are made of this one find the timer by it.
func (d *timeLimit) Value(key any) any {
	if key == slots.Key {
		return d.turn
	}
	if waited := d.timed(); waited != nil {
		return waited.Value(key)
	}
	return d.stream.Value(key)
}

func (d *timeLimit) timed() context.Context {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.waited
}

// end ends the request.
func (d *timeLimit) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended = true
	if d.cancel != nil {
		d.cancel()
	}
}
