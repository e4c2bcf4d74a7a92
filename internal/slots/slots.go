// Package slots bounds how much of what requests compute is ready to run at a time, so that Raft, which shares the
// process, gets its turn.
//
// The types to know:
//
//   - Slots are the places, and who gets the next one.
//   - Turn is a request's part in them. A context has it, for what waits deep inside: see Waiting.
package slots

import (
	"container/heap"
	"context"
	"errors"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"
)

const (
	// usageHalves is after what time half of what somebody has used is forgotten.
	usageHalves = 5 * time.Second
	// usageEpoch is for how long usage is counted in one scale: it grows by 2 for each half-life.
	usageEpoch = 100 * usageHalves
	// usageKept bounds how many users, and how many connections of one, are remembered that neither hold a slot nor
	// wait for one.
	usageKept = 1024
	// lightRoom is how many light requests compute beside each slot.
	lightRoom = 8
	// lent is for how long a slot counts. Who holds one for longer waits for something that slots does not know of, or has no
	// processor: the others must not wait for it, too.
	lent = 500 * time.Millisecond
	// lentAgain bounds how many slots count no more, for each slot that does.
	lentAgain = 4
	// yieldAfter is for how long a request that yields has a slot before others get it: as long as Go has a goroutine run.
	yieldAfter = 10 * time.Millisecond
	// yieldKeeps is for how long a request that yields keeps its slot while others wait. Most pieces of a list are written in a
	// tenth of it, and a client that reads slowly costs others no more.
	yieldKeeps = 2 * time.Millisecond
)

// Slots bound how many requests compute at a time: one less than there are processors. Go runs what is ready in the
// order in which it became ready, up to ten milliseconds each, and knows no priorities: with 300 requests ready, each
// step of Raft waits for all of them, and three such waits in a row end a leader's term. Seats (see level) are no such
// bound, because they are held while a request waits for Raft, webhooks and clients.
//
// A slot is held around what computes, and never while a request waits for anything. A free one goes to the user who has
// used the least lately, and of those requests that wait for him, to the connection that has. So one request of somebody
// who is not part of a burst waits for one step of it, whoever sends the burst, administrators included, who need no
// seats. Light requests do not wait, as long as they are few. Safe for concurrent use.
type Slots struct {
	now    func() time.Duration
	waited func(time.Duration)
	count  func() int // how many slots there shall be

	mu      sync.Mutex
	slots   int
	holders []*Turn
	lights  int           // light requests that compute without a slot
	looks   *time.Timer   // looks for slots that others can have, while somebody waits
	looksAt time.Duration // when looks does so next; 0: it does not run
	epoch   time.Duration // when the scale of usage was 1
	users   map[string]*slotUser
	waiting slotHeap // of users
	waiters int
}

// slotUse is a user, or a connection of one: what it has used, and its place in the heap of those for whom requests wait.
type slotUse struct {
	used float64 // in seconds, times the scale at their time
	at   int     // in the heap, or -1
	busy int     // requests that hold a slot or wait for one
}

func (u *slotUse) use() *slotUse { return u }

type slotUser struct {
	slotUse
	lights  int // of s.lights
	conns   map[string]*slotConn
	waiting slotHeap // of connections
}

type slotConn struct {
	slotUse
	turns []*Turn // that wait, those that have begun before the others, each the oldest first
	again int     // how many of them have begun
}

// NewSlots returns slots for as many processors as there are. waited is told of each wait; it must be quick.
func NewSlots(waited func(time.Duration)) *Slots {
	born := time.Now()
	s := newSlots(procs(), func() time.Duration { return time.Since(born) })
	s.waited, s.count = waited, procs
	return s
}

// procs is one slot less than there are processors by now: the quota of the control group may change.
func procs() int { return max(1, runtime.GOMAXPROCS(0)-1) }

func newSlots(n int, now func() time.Duration) *Slots {
	return &Slots{now: now, waited: func(time.Duration) {}, count: func() int { return n }, slots: n, users: map[string]*slotUser{}}
}

// Turn is a request's part in the slots. Its zero value, without slots, never waits. Of, Take, Enter, Pause, Resume and End are
// for the request's own goroutine; what it has others do may call Waiting and Replicating, also several at a time: while one of
// them waits, none has the slot.
type Turn struct {
	slots *Slots
	names [2]string
	light bool
	// object is the one that the request changes.
	object Writer

	// Guarded by slots.mu.
	user    *slotUser
	conn    *slotConn
	began   time.Duration // of the slot that it holds
	charged time.Duration // up to when its time is counted
	wants   bool          // it has a slot, or gets it back when nothing pauses it
	holds   bool
	beside  bool // what it holds is not a slot, but the room of light requests
	again   bool // it waits for a slot that it had before
	paused  int
	yields  bool          // it keeps its slot though it is paused
	yielded time.Duration // since when
	slow    bool          // it has lost its slot so
	ready   chan struct{} // of a turn that is queued; closed when it is not any more
}

// Of makes a turn one of a user's request on a connection, light or not. It holds nothing. Users are told apart by what is
// one owner of requests (auth.User.Owner).
func (t *Turn) Of(s *Slots, user, conn string, light bool) {
	t.slots, t.names, t.light = s, [2]string{user, conn}, light
}

// ErrNoSlot is returned by Take when the request has waited for as long as it may.
var ErrNoSlot = errors.New("this node has too much to compute")

// Take waits for a slot until a time, unless the request has one. Errors: ErrNoSlot, the context's.
func (t *Turn) Take(ctx context.Context, until time.Time) error {
	s := t.slots
	if s == nil {
		return nil
	}
	s.mu.Lock()
	if t.wants {
		s.mu.Unlock()
		return nil
	}
	t.wants = true
	s.enter(t, false)
	ready := t.ready
	s.mu.Unlock()
	if ready == nil {
		return nil
	}
	began := s.now()
	defer func() { s.waited(s.now() - began) }()
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	err := ErrNoSlot
	select {
	case <-ready:
		return nil
	case <-timer.C:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.holds {
		return nil // in the last moment
	}
	t.wants = false
	if t.ready != nil {
		s.leave(t)
	}
	return err
}

// Enter waits until it is the request's turn to change an object, until a time. The request has a slot, gives it back
// meanwhile, and gets it again, unless the time is over: who waits for a slot holds no object, because others may have the next
// slot, and want that object. Errors: ErrNoTurn, the context's.
func (t *Turn) Enter(ctx context.Context, w *Writers, key string, until time.Time) error {
	return w.Enter(ctx, &t.object, key, t.names[0], until, func() func() {
		t.Pause()
		return func() {
			ctx, cancel := context.WithDeadline(ctx, until)
			defer cancel()
			t.Resume(ctx)
		}
	})
}

// Give gives the slot back, if the request has one.
func (t *Turn) Give() {
	s := t.slots
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t.wants = false
	s.drop(t)
}

// End gives everything back. It may be called again.
func (t *Turn) End() {
	t.Give()
	t.object.Done()
}

// Pause gives the slot back until Resume.
func (t *Turn) Pause() {
	s := t.slots
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t.paused++
	s.drop(t)
}

// Yield is Pause for what mostly takes no time, as to write a piece of an answer: two lists that gave each other the slot at
// each piece would wake each other dozens of times. While others wait, the request keeps the slot for yieldKeeps at a time, and
// for yieldAfter in all. When it has taken longer once, Yield is Pause.
func (t *Turn) Yield() {
	s := t.slots
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t.paused++
	now := s.now()
	if !t.holds || t.beside || t.slow || s.waiters > 0 && now-t.began >= yieldAfter {
		s.drop(t)
		return
	}
	s.charge(t) // what follows is the client's time
	t.yields, t.yielded = true, now
	if s.waiters > 0 {
		s.lookAt(now + yieldKeeps)
	}
}

// Resume waits for the slot that the last Pause or Yield has ended, before those of the connection that have not begun: what is
// half done holds memory. It does not fail. A request whose context ends goes on without a slot, to its end.
func (t *Turn) Resume(ctx context.Context) {
	s := t.slots
	if s == nil {
		return
	}
	s.mu.Lock()
	if t.yields {
		t.yields, t.charged = false, s.now()
		if s.waiters == 0 {
			t.began = t.charged // nobody had to wait for it
		}
	}
	if t.paused--; t.paused == 0 && t.wants && !t.holds && t.ready == nil {
		s.enter(t, true)
	}
	ready := t.ready
	s.mu.Unlock()
	if ready == nil {
		return
	}
	began := s.now()
	defer func() { s.waited(s.now() - began) }()
	select {
	case <-ready:
		return
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.ready == ready { // and not that of another wait of the same request
		s.leave(t)
	}
}

// key is what a context has the turn of its request under.
type key struct{}

// Key is what a request's own context has its turn under, in Value.
var Key any = key{}

// Waiting is called before a request waits for others: a webhook, a client, what another request makes. It gives back the
// request's slot, until the function that it returns is called, and the object that the request changes, for good: nobody
// waits for a webhook that somebody else has called.
//
//	defer slots.Waiting(ctx)()
//
// A request that holds what others wait for must not wait for a slot meanwhile: such a part is within one Waiting, and
// what bounds it bounds what it computes.
func Waiting(ctx context.Context) (over func()) {
	t := turnOf(ctx)
	if t == nil {
		return func() {}
	}
	t.object.Done()
	t.Pause()
	return func() { t.Resume(ctx) }
}

// Replicating is Waiting before a request waits for Raft. It keeps the object unless over is told that the write is applied.
func Replicating(ctx context.Context) (over func(applied bool)) {
	t := turnOf(ctx)
	if t == nil {
		return func(bool) {}
	}
	t.Pause()
	return func(applied bool) {
		if applied {
			t.object.Done()
		}
		t.Resume(ctx)
	}
}

// Fork has a part of a request compute in a slot of its own, for which it waits. The request itself must be Waiting.
func Fork(ctx context.Context) (_ context.Context, end func()) {
	t := turnOf(ctx)
	if t == nil {
		return ctx, func() {}
	}
	part := &Turn{slots: t.slots, names: t.names, light: t.light, wants: true, paused: 1}
	part.Resume(ctx)
	return context.WithValue(ctx, Key, part), part.End
}

// Without is a context whose work is not that of one request, and needs no slot.
func Without(ctx context.Context) context.Context {
	if turnOf(ctx) == nil {
		return ctx
	}
	return context.WithValue(ctx, Key, (*Turn)(nil))
}

func turnOf(ctx context.Context) *Turn {
	if t, _ := ctx.Value(Key).(*Turn); t != nil && t.slots != nil {
		return t
	}
	return nil
}

// find gives a turn the counts of its user and its connection. mu is held, as in what follows.
func (s *Slots) find(t *Turn) {
	u := s.users[t.names[0]]
	if u == nil {
		forget(s.users, s.idleUse())
		u = &slotUser{slotUse: slotUse{at: -1}, conns: map[string]*slotConn{}}
		s.users[t.names[0]] = u
	}
	c := u.conns[t.names[1]]
	if c == nil {
		forget(u.conns, s.idleUse())
		c = &slotConn{slotUse: slotUse{at: -1}}
		u.conns[t.names[1]] = c
	}
	t.user, t.conn = u, c
	u.busy++
	c.busy++
}

// idleUse is what counts as little, at the present scale: a millisecond.
func (s *Slots) idleUse() float64 { return time.Millisecond.Seconds() * s.scale(s.now()) }

// forget drops those that are not busy when there are many: those that have used little lately, and all of them if that
// is not enough.
func forget[K comparable, V interface{ use() *slotUse }](all map[K]V, little float64) {
	for _, most := range []float64{little, math.Inf(1)} {
		if len(all) < usageKept {
			return
		}
		for name, x := range all {
			if u := x.use(); u.busy == 0 && u.used <= most {
				delete(all, name)
			}
		}
	}
}

// enter gives a turn a slot, or queues it, before those of its connection that have not begun if it has: then t.ready is
// not nil, and is closed when the turn is not queued any more.
func (s *Slots) enter(t *Turn, again bool) {
	s.find(t)
	t.again = again
	if t.light && s.lights < lightRoom*s.slots && t.user.lights < lightRoom*s.slots/2 {
		s.lights++
		t.user.lights++
		t.holds, t.beside, t.began = true, true, s.now()
		t.charged = t.began
		return
	}
	if s.waiters == 0 && len(s.holders) < s.slots {
		s.grant(t)
		return
	}
	s.queue(t)
	s.fill()
}

// fill gives free slots to those who wait. Beside slots that count no more, it gives others only to those who have none of
// these: who computes for long does not get all.
func (s *Slots) fill() {
	for s.waiters > 0 {
		late := s.late(s.now())
		if len(s.holders)-len(late) >= s.slots || len(s.holders) >= s.slots*(1+lentAgain) {
			return
		}
		if len(s.holders) < s.slots {
			late = nil
		}
		var next *slotUser
		for _, x := range s.waiting {
			u := x.(*slotUser)
			if (next == nil || u.used < next.used) && !slices.Contains(late, u) {
				next = u
			}
			if len(late) == 0 {
				break // the first one has used the least
			}
		}
		if next == nil {
			return
		}
		t := next.waiting[0].(*slotConn).turns[0]
		s.dequeue(t)
		s.grant(t)
	}
}

// late are the users of the slots that count no more, one for each slot.
func (s *Slots) late(now time.Duration) (users []*slotUser) {
	for _, t := range s.holders {
		if now-t.began >= lent {
			users = append(users, t.user)
		}
	}
	return users
}

func (s *Slots) grant(t *Turn) {
	s.holders = append(s.holders, t)
	t.holds, t.began = true, s.now()
	t.charged = t.began
}

// drop takes away what a turn holds, or its place in the queue, and gives the slot to who is next.
func (s *Slots) drop(t *Turn) {
	switch {
	case t.ready != nil:
		s.leave(t)
	case !t.holds:
	default:
		if !t.yields {
			s.charge(t)
		}
		if t.beside {
			s.lights--
			t.user.lights--
		} else {
			i := slices.Index(s.holders, t)
			s.holders = slices.Delete(s.holders, i, i+1)
		}
		t.holds, t.beside, t.yields = false, false, false
		s.release(t)
		s.fill()
	}
}

// release forgets a turn that neither holds a slot nor waits.
func (s *Slots) release(t *Turn) {
	t.user.busy--
	t.conn.busy--
	t.user, t.conn = nil, nil
}

// look gives others the slots that they can have, again and again while somebody waits.
func (s *Slots) look() {
	n := s.count()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slots, s.looksAt = n, 0
	if s.waiters == 0 {
		return
	}
	now := s.now()
	var slow []*Turn
	for _, t := range s.holders {
		switch {
		case !t.yields:
			s.charge(t)
		case now-t.yielded >= yieldKeeps:
			slow = append(slow, t)
		}
	}
	for _, t := range slow {
		t.slow = true
		s.drop(t)
	}
	if s.fill(); s.waiters > 0 {
		s.lookLater(now)
	}
}

// lookLater has look called when others can have a slot that they cannot have now.
func (s *Slots) lookLater(now time.Duration) {
	at := now + lent
	for _, t := range s.holders {
		if t.yields {
			at = min(at, t.yielded+yieldKeeps)
		}
	}
	s.lookAt(at)
}

// lookAt has look called at a time, unless it is called before.
func (s *Slots) lookAt(at time.Duration) {
	if s.looksAt != 0 && s.looksAt <= at {
		return
	}
	s.looksAt = at
	if in := at - s.now(); s.looks == nil {
		s.looks = time.AfterFunc(in, s.look)
	} else {
		s.looks.Reset(in)
	}
}

func (s *Slots) queue(t *Turn) {
	t.ready = make(chan struct{})
	at := len(t.conn.turns)
	if t.again {
		at = t.conn.again
		t.conn.again++
	}
	t.conn.turns = slices.Insert(t.conn.turns, at, t)
	s.waiters++
	s.lookLater(s.now())
	if t.conn.at < 0 {
		heap.Push(&t.user.waiting, t.conn)
	}
	if t.user.at < 0 {
		heap.Push(&s.waiting, t.user)
	}
}

// leave ends the wait of a turn that gets no slot.
func (s *Slots) leave(t *Turn) {
	s.dequeue(t)
	s.release(t)
}

// dequeue takes a turn from its place among those of its connection, and wakes who waits for that.
func (s *Slots) dequeue(t *Turn) {
	u, c := t.user, t.conn
	i := slices.Index(c.turns, t)
	c.turns = slices.Delete(c.turns, i, i+1)
	if t.again {
		c.again--
	}
	s.waiters--
	if len(c.turns) == 0 {
		heap.Remove(&u.waiting, c.at)
	}
	if len(u.waiting) == 0 {
		heap.Remove(&s.waiting, u.at)
	}
	close(t.ready)
	t.ready = nil
}

// charge adds what a turn has used since it was charged last. Usage is weighed by when it was, so that what was used long
// ago counts for less, and the order of those that use nothing stays.
func (s *Slots) charge(t *Turn) {
	now := s.now()
	if now-s.epoch > usageEpoch {
		s.rescale(now)
	}
	more := (now - t.charged).Seconds() * s.scale(now)
	t.charged = now
	t.conn.used += more
	if t.conn.at >= 0 {
		heap.Fix(&t.user.waiting, t.conn.at)
	}
	t.user.used += more
	if t.user.at >= 0 {
		heap.Fix(&s.waiting, t.user.at)
	}
}

// scale is what usage at a time is multiplied with.
func (s *Slots) scale(at time.Duration) float64 {
	return math.Exp2(float64(at-s.epoch) / float64(usageHalves))
}

func (s *Slots) rescale(now time.Duration) {
	by := 1 / s.scale(now)
	s.epoch = now
	for _, u := range s.users {
		u.used *= by
		for _, c := range u.conns {
			c.used *= by
		}
	}
}

// slotHeap is a heap of users or connections, who has used the least on top.
type slotHeap []interface{ use() *slotUse }

func (h slotHeap) Len() int           { return len(h) }
func (h slotHeap) Less(i, j int) bool { return h[i].use().used < h[j].use().used }
func (h slotHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].use().at, h[j].use().at = i, j
}

func (h *slotHeap) Push(x any) {
	u := x.(interface{ use() *slotUse })
	u.use().at = len(*h)
	*h = append(*h, u)
}

func (h *slotHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	last.use().at = -1
	return last
}
