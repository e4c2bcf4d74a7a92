package fairness

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Reason says why a request was refused.
type Reason int

// Reasons, in the words of the metrics.
const (
	Admitted         Reason = iota
	QueueFull               // as many wait in its queue as may
	ConcurrencyLimit        // the level has no queues and no free seat
	TimedOut                // it has waited for as long as it may
	Cancelled               // the client has gone
	reasons
)

func (r Reason) String() string {
	return [...]string{"admitted", "queue-full", "concurrency-limit", "time-out", "cancelled"}[r]
}

// flow counts the requests of one schema in one level. Counts are guarded by the
// level's lock.
type flow struct {
	schema string
	level  *level

	running, seats        int
	waiting, waitingSeats int
	dispatched            uint64
	noSeats               uint64
	refused               [reasons]uint64

	lengths, estimates, watchers prometheus.Observer
	waited                       [2]prometheus.Observer // refused, let in
	took                         [2]prometheus.Observer // regular, watch
}

// Class is what a request was classified as.
type Class struct {
	flow   *flow
	schema *schema
	hash   uint64
}

// Headers are the values of the headers that name the schema and the level by
// their uids, as slices that are shared and must not be changed. Names are not told:
// they may say more than a client should know.
func (c *Class) Headers() (schemaUID, levelUID []string) { return c.schema.uid, c.schema.levelUID }

// Names are the names of the schema and the level. They are for tests.
func (c *Class) Names() (schema, level string) { return c.flow.schema, c.flow.level.name }

// Ticket is a request's place in its level. The zero value is ready for Enter; it
// must not be copied after that.
type Ticket struct {
	level *level
	flow  *flow
	queue *queue // nil: the level has none
	ready chan struct{}

	seats, initial, afterSeats int
	after                      time.Duration
	work                       float64 // seat-nanoseconds

	arrived, started time.Duration
	arrivedAt        float64     // reading of the level's clock
	holds            bool        // seats are taken; guarded by level.mu
	owes             atomic.Bool // admitted, and not yet released
	watch            bool
}

// Enter lets a request run, at once or after a wait of at most that long, or says
// why not. After Admitted, Release must be called; a ticket that was refused holds
// nothing. watch tells the metrics that only the request's beginning is counted.
func (c *Class) Enter(ctx context.Context, t *Ticket, w Work, wait time.Duration, watch bool) Reason {
	seats := w.seats()
	*t = Ticket{
		level: c.flow.level, flow: c.flow, watch: watch,
		seats: seats, initial: w.Seats, afterSeats: w.AfterSeats, after: w.After,
		work: float64(seats)*float64(serviceTime) + float64(w.AfterSeats)*float64(w.After),
	}
	c.flow.estimates.Observe(float64(seats))
	why := t.level.enter(t, c.hash)
	if why == Admitted && t.ready != nil {
		why = t.await(ctx, wait)
	}
	t.owes.Store(why == Admitted)
	if !c.schema.exempt {
		c.observeWait(t, why)
	}
	return why
}

func (c *Class) observeWait(t *Ticket, why Reason) {
	if why == Admitted {
		c.flow.waited[1].Observe((t.started - t.arrived).Seconds())
		return
	}
	c.flow.waited[0].Observe((t.level.now() - t.arrived).Seconds())
}

// await waits for the level to let the request in.
func (t *Ticket) await(ctx context.Context, wait time.Duration) Reason {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	why := TimedOut
	select {
	case <-t.ready:
		return Admitted
	case <-timer.C:
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.Canceled) {
			why = Cancelled
		}
	}
	if t.level.cancel(t, why) {
		return Admitted
	}
	return why
}

// Release gives the seats back, if the request was admitted and has not done so yet.
// It may be called while the request runs, by somebody else.
func (t *Ticket) Release() {
	if !t.owes.CompareAndSwap(true, false) {
		return
	}
	l := t.level
	kind := 0
	if t.watch {
		kind = 1
	}
	t.flow.took[kind].Observe((l.now() - t.started).Seconds())
	l.finish(t)
}
