package fairness

import (
	"container/heap"
	"sync"
	"sync/atomic"
	"time"
)

// serviceTime is what a request is assumed to take until it has ended.
const serviceTime = 3 * time.Millisecond

// level is one priority level: seats, and queues for those who find none free.
//
// The queues share the seats like this (fair queuing for server requests): r is a
// clock that runs as fast as each active queue may be served, in seat-seconds.
// Each queue has the reading at which its next request would begin if it had been
// given exactly its share. The queue whose oldest request would end first by that
// reckoning is the next.
type level struct {
	name string
	now  func() time.Duration

	mu     sync.Mutex
	exempt bool
	// Queuing: requests are dealt to the first queues; more may still drain.
	deck, hand, length int
	queues             []*queue
	busy               []*queue // those with requests that wait
	turn               int      // where in busy the last search ended
	dealt              int
	active             int // queues with requests that wait or run

	limit          int // seats now
	inUse          int // seats of requests that run or linger
	wideInUse      int // of these, those of wide requests
	waitingSeats   int
	running        int
	waiting        int
	r              float64 // seat-nanoseconds
	at             time.Duration
	lingering      lingering
	timer          *time.Timer
	lastStart      float64 // reading of the last dispatch, for the metrics
	lastDispatched float64

	// Sharing with other levels; guarded by Controller.mu, but for demand.
	shares               int
	lends, borrows       int // percent
	nominal, low, high   int
	seatsNow             int
	smoothed, target     float64
	demand               integral
	demandAverage        float64
	demandDeviation      float64
	demandPeak           float64
	mostSeats            atomic.Int64 // of one request; zero: no bound of the level's
	wanted               bool         // false: it is to go when it is idle
	flows                map[string]*flow
	seatsUsed, runs      occupancy
	waits, demandOfSeats occupancy
}

// queue holds requests of the flows that were dealt to it, oldest first.
type queue struct {
	waiting []*Ticket
	work    float64 // of those that wait
	running int
	next    float64 // reading of the level's clock at which the next one begins
}

func (q *queue) idle() bool { return q.running == 0 && len(q.waiting) == 0 }

func newLevel(name string, now func() time.Duration) *level {
	l := &level{name: name, now: now, flows: map[string]*flow{}, at: now()}
	l.demand = integral{since: l.at, at: l.at}
	l.seatsUsed = newOccupancy(l.at, 0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1)
	l.runs = newOccupancy(l.at, 0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.25, 0.5, 0.75, 1)
	l.waits = newOccupancy(l.at, 0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.25, 0.5, 0.75, 1)
	l.demandOfSeats = newOccupancy(l.at, 0.2, 0.4, 0.6, 0.8, 1, 1.2, 1.4, 1.7, 2, 2.8, 4, 6)
	return l
}

// enter lets a request run, queues it (then t.ready is not nil) or refuses it.
func (l *level) enter(t *Ticket, hash uint64) Reason {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.sync()
	t.arrived, t.arrivedAt = now, l.r
	switch {
	case l.exempt:
		l.start(t, now)
	case l.deck == 0:
		if !l.fits(t.seats) {
			return l.refuse(t, ConcurrencyLimit)
		}
		l.start(t, now)
	default:
		return l.queueUp(t, hash, now)
	}
	return Admitted
}

func (l *level) queueUp(t *Ticket, hash uint64, now time.Duration) Reason {
	q := l.choose(hash)
	// A queue is only ever left with requests that found no seats.
	if len(q.waiting) >= l.length {
		return l.refuse(t, QueueFull)
	}
	if q.idle() {
		q.next = l.r
		l.active++
	}
	t.queue = q
	t.flow.lengths.Observe(float64(len(q.waiting) + 1))
	if l.waiting == 0 && l.fits(t.seats) {
		q.next = max(q.next, l.r)
		l.dispatched(t, now)
		return Admitted
	}
	if len(q.waiting) == 0 {
		l.busy = append(l.busy, q)
	}
	t.ready = make(chan struct{})
	q.waiting = append(q.waiting, t)
	q.work += t.work
	l.countWaiting(t, 1, now)
	l.bound(q)
	l.dispatch(now)
	return Admitted
}

func (l *level) refuse(t *Ticket, why Reason) Reason {
	t.flow.refused[why]++
	return why
}

// choose picks the queue of the flow's hand in which the least work waits.
func (l *level) choose(hash uint64) *queue {
	var cards [maxHand]int
	hand := deal(hash, l.deck, l.hand, &cards)
	first := l.dealt % len(hand)
	l.dealt++
	best := l.queues[hand[first]]
	for i := 1; i < len(hand) && best.work > 0; i++ {
		if q := l.queues[hand[(first+i)%len(hand)]]; q.work < best.work {
			best = q
		}
	}
	return best
}

// dispatch starts what may run.
func (l *level) dispatch(now time.Duration) {
	for l.waiting > 0 && l.dispatchOne(now) {
	}
	l.awaitLingering(now)
}

func (l *level) dispatchOne(now time.Duration) bool {
	q := l.busy[l.nextBusy(false)]
	if t := q.waiting[0]; !l.fits(t.seats) {
		t.flow.noSeats++
		if q = l.besideWide(t); q == nil {
			return false
		}
	}
	t := q.waiting[0]
	l.take(t, now)
	l.dispatched(t, now)
	l.bound(q)
	close(t.ready)
	return true
}

// nextBusy finds the queue whose oldest request would be the first to end; of those
// whose oldest request is narrow, if so wanted (-1: there is none). Equal ones take
// turns.
func (l *level) nextBusy(narrow bool) int {
	best, end := -1, 0.0
	n := len(l.busy)
	for i := range n {
		at := (l.turn + 1 + i) % n
		q := l.busy[at]
		if narrow && isWide(q.waiting[0].seats) {
			continue
		}
		if e := q.next + q.waiting[0].work; best < 0 || e < end {
			best, end = at, e
		}
	}
	if best >= 0 {
		l.turn = best
	}
	return best
}

// take removes a request from its queue.
func (l *level) take(t *Ticket, now time.Duration) {
	q := t.queue
	for i, other := range q.waiting {
		if other == t {
			copy(q.waiting[i:], q.waiting[i+1:])
			q.waiting[len(q.waiting)-1] = nil
			q.waiting = q.waiting[:len(q.waiting)-1]
			break
		}
	}
	q.work -= t.work
	if len(q.waiting) == 0 {
		q.work = 0 // no rounding stays behind
		for i, other := range l.busy {
			if other == q {
				l.busy = append(l.busy[:i], l.busy[i+1:]...)
				break
			}
		}
	}
	l.countWaiting(t, -1, now)
}

// dispatched starts a request of a queue.
func (l *level) dispatched(t *Ticket, now time.Duration) {
	if t.after > 0 && t.afterSeats > l.limit && l.limit > 0 {
		// The same work on the seats that there are.
		t.after = t.after * time.Duration(t.afterSeats) / time.Duration(l.limit)
		t.afterSeats = l.limit
	}
	l.lastDispatched, l.lastStart = l.r, t.queue.next
	t.queue.next += t.work
	t.queue.running++
	l.start(t, now)
}

// start gives a request its seats.
func (l *level) start(t *Ticket, now time.Duration) {
	t.started = now
	t.holds = true
	l.running++
	t.flow.running++
	t.flow.dispatched++
	l.useSeats(t.flow, t.seats, now)
}

func (l *level) useSeats(f *flow, seats int, now time.Duration) {
	l.inUse += seats
	if isWide(seats) {
		l.wideInUse += seats
	}
	f.seats += seats
	l.noteUse(now)
}

func (l *level) noteUse(now time.Duration) {
	l.seatsUsed.set(now, l.inUse, l.limit)
	l.runs.set(now, l.running, l.limit)
	l.noteDemand(now)
}

func (l *level) countWaiting(t *Ticket, n int, now time.Duration) {
	l.waiting += n
	t.flow.waiting += n
	l.waitingSeats += n * t.seats
	t.flow.waitingSeats += n * t.seats
	l.waits.set(now, l.waiting, max(1, l.deck)*max(1, l.length))
	l.noteDemand(now)
}

func (l *level) noteDemand(now time.Duration) {
	wanted := l.inUse + l.waitingSeats
	l.demand.set(now, float64(wanted))
	l.demandOfSeats.set(now, wanted, l.nominal)
}

// finish takes a request's seats back, at once or when its consequences are over.
func (l *level) finish(t *Ticket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.sync()
	t.holds = false
	l.running--
	t.flow.running--
	if q := t.queue; q != nil {
		// What it was charged with more or less than it took.
		q.next -= float64(t.initial) * float64(serviceTime-(now-t.started))
		l.bound(q)
		q.running--
		if q.idle() {
			l.active--
		}
	}
	if t.after > 0 && !l.exempt {
		l.runs.set(now, l.running, l.limit)
		heap.Push(&l.lingering, linger{until: now + t.after, seats: t.seats, flow: t.flow})
	} else {
		l.useSeats(t.flow, -t.seats, now)
	}
	l.dispatch(now)
}

// cancel ends the wait of a request. It reports whether the request was let in
// after all, in the last moment.
func (l *level) cancel(t *Ticket, why Reason) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.sync()
	if t.holds {
		return true
	}
	l.take(t, now)
	l.bound(t.queue)
	if t.queue.idle() {
		l.active--
	}
	l.refuse(t, why)
	l.dispatch(now)
	return false
}

// bound keeps a queue from saving up: its next request never begins, by the
// level's clock, before it came.
func (l *level) bound(q *queue) {
	if len(q.waiting) > 0 {
		q.next = max(q.next, q.waiting[0].arrivedAt)
	}
}

// sync moves the level's clock and gives back seats whose time is over. It is
// called with the lock, before anything else changes.
func (l *level) sync() time.Duration {
	now := l.now()
	if l.active > 0 {
		rate := float64(min(l.inUse+l.waitingSeats, l.limit)) / float64(l.active)
		l.r += rate * float64(now-l.at)
	}
	l.at = now
	for len(l.lingering) > 0 && l.lingering[0].until <= now {
		over := heap.Pop(&l.lingering).(linger)
		l.useSeats(over.flow, -over.seats, now)
	}
	return now
}

// awaitLingering makes sure that waiting requests are given seats that become free
// without anybody's doing.
func (l *level) awaitLingering(now time.Duration) {
	if l.waiting == 0 || len(l.lingering) == 0 {
		return
	}
	d := l.lingering[0].until - now
	if l.timer == nil {
		l.timer = time.AfterFunc(d, l.wake)
		return
	}
	l.timer.Reset(d)
}

func (l *level) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dispatch(l.sync())
}

func (l *level) setLimit(seats int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.sync()
	l.limit = seats
	l.noteUse(now)
	l.dispatch(now)
}

func (l *level) idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sync()
	return l.running == 0 && l.waiting == 0 && len(l.lingering) == 0
}

// linger is seats that stay in use after their request.
type linger struct {
	until time.Duration
	seats int
	flow  *flow
}

// lingering is a heap, the first to end on top.
type lingering []linger

func (h lingering) Len() int           { return len(h) }
func (h lingering) Less(i, j int) bool { return h[i].until < h[j].until }
func (h lingering) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *lingering) Push(x any)        { *h = append(*h, x.(linger)) }
func (h *lingering) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}
