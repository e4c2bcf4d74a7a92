package raftstore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/raftstore/mvcc"
	"github.com/quorate/quorate/raftstore/replication"
)

// batches forms what Raft writes, syncs and sends at once. Raft's main loop takes all that waits
// when it looks, and it looks at once: under load many batches were small, and each costs a sync
// and a message to every follower. So while a batch is under way the next proposals wait until it
// is answered, and go together. That is for a leader that is busy: where few proposals are under way on
// average nobody waits, for it would cost them time and save little. And nobody waits for longer
// than hold: that is what long distances add at most.
//
// Where a write of the log takes long, even one that is under way is waited for. Raft's main loop
// is at the disk then, and what it finds behind that is the next batch or the news that this one is
// committed; it takes either, so that a commit waits for one more write of the log, or for two.
//
// Raft bounds what it writes at once by the number of entries, which may be of a megabyte each. So it
// is given mostBytes at a time; what is above that waits until some of it is answered.
type batches struct {
	mu sync.Mutex
	// waiting are held back. They go when a batch is answered, or when the timer ends, which runs
	// while there are any, unless the first of them waits for room.
	waiting  []*proposal
	underWay int // proposals that were given to Raft and are not answered
	bytes    int // of those
	timer    *time.Timer
	closed   bool           // no batch is given any more
	giving   sync.WaitGroup // those who give one; none begins once closed
	// load is how many are waiting or under way when another one comes, smoothed, in sixteenths.
	load int
}

const (
	// holdFor is how long a proposal may wait for those before it, beside holdWrites times what a write
	// of the log takes: that of a batch is one of this node's and one of a follower's. holdMost is the most.
	holdFor    = 2 * time.Millisecond
	holdWrites = 3
	holdMost   = 100 * time.Millisecond
	// fewUnderWay on average are not worth waiting.
	fewUnderWay = 4
	// mostBytes are given to Raft at a time, or one proposal that has more: so its leader writes no more
	// at once than its followers do, which are sent as much in a message, and stands no longer at a slow disk.
	mostBytes = 8 << 20
)

// proposal is an entry for this leader's log. r and err are valid once done is closed, or when then
// is called, which one of them has; then must not wait.
type proposal struct {
	frame []byte
	since time.Time
	done  chan struct{}
	then  func(*proposal)
	r     mvcc.Result
	err   error

	fate atomic.Int32 // whether it was answered or left first
}

const (
	answered = 1
	left     = 2
)

// leave is called by who does not wait any more. Raft may still have the frame in its buffer, for as long
// as a disk hangs, so it goes on to count as in flight until it is answered.
func (a *proposals) leave(p *proposal) {
	a.inFlight.Add(int64(len(p.frame)))
	if !p.fate.CompareAndSwap(0, left) {
		a.inFlight.Add(-int64(len(p.frame)))
	}
}

// answer gives a proposal its answer, for which it waits.
func (a *proposals) answer(p *proposal, future raft.ApplyFuture) {
	p.r, p.err = outcome(future)
	a.answered(p)
}

// refuse answers a proposal that Raft is not given.
func (a *proposals) refuse(p *proposal, err error) {
	p.err = err
	a.answered(p)
}

func (a *proposals) answered(p *proposal) {
	if p.then != nil {
		p.then(p) // nobody else waits for it
		return
	}
	if !p.fate.CompareAndSwap(0, answered) {
		a.inFlight.Add(-int64(len(p.frame)))
	}
	close(p.done)
}

// apply appends a frame to this leader's log and waits until it is applied here, Raft has given it
// up, or ctx or this store ends.
func (a *proposals) apply(ctx context.Context, frame []byte) (mvcc.Result, error) {
	p := &proposal{frame: frame, since: time.Now(), done: make(chan struct{})}
	a.begin(p)
	select {
	case <-p.done:
		return p.r, p.err
	case <-ctx.Done():
		a.leave(p)
		return mvcc.Result{}, errors.Join(ErrUnknownOutcome, context.Cause(ctx))
	case <-a.node.Ended():
		return mvcc.Result{}, errors.Join(ErrUnknownOutcome, ErrClosed)
	}
}

// begin has a proposal given to Raft, now or with others, and does not wait. One with then is answered
// whatever happens, by another goroutine or before begin returns.
func (a *proposals) begin(p *proposal) {
	a.applying.Add(1)
	batch, ok := a.batches.add(p, &a.writeTime, a.holdEnds)
	switch {
	case !ok && p.then != nil:
		p.endsWithStore()
	case batch != nil:
		go a.give(batch) // of its own: a future of Raft cannot be cancelled
	}
}

// endsWithStore answers a proposal that Raft was not given and will not be.
func (p *proposal) endsWithStore() {
	p.err = errors.Join(ErrUnknownOutcome, ErrClosed)
	p.then(p)
}

// hold is how long a proposal may wait for those before it.
func hold(w *replication.WriteTime) time.Duration {
	return min(holdFor+holdWrites*w.Mean(), holdMost)
}

// add returns the batch that goes now, if any. log is what writes of it take. It is not ok at the end
// of the store, which apply looks at.
func (b *batches) add(p *proposal, log *replication.WriteTime, holdEnds func()) (batch []*proposal, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, false
	}
	b.waiting = append(b.waiting, p)
	b.load += (16*(b.underWay+len(b.waiting)) - b.load) / 16
	switch {
	case b.underWay == 0 || b.load < 16*fewUnderWay && !log.Long():
		return b.take(), true
	case len(b.waiting) > 1: // the timer runs, or the first one waits for room
	case b.timer == nil:
		b.timer = time.AfterFunc(hold(log), holdEnds)
	default:
		b.timer.Reset(hold(log))
	}
	return nil, true
}

// take returns all that wait and for which there is room, as a batch that is under way then and has to
// be given. What is left goes when some of those under way are answered. b.mu is held.
func (b *batches) take() []*proposal {
	if b.closed {
		return nil
	}
	n := 0
	for _, p := range b.waiting {
		if b.underWay+n > 0 && b.bytes+len(p.frame) > mostBytes {
			break
		}
		b.bytes += len(p.frame)
		n++
	}
	if n == 0 {
		return nil
	}
	b.giving.Add(1)
	batch := b.waiting[:n:n]
	if b.waiting = b.waiting[n:]; len(b.waiting) == 0 {
		b.waiting = nil
	}
	b.underWay += n
	if b.timer != nil {
		b.timer.Stop()
	}
	return batch
}

// answered takes a batch of n with so many bytes off those under way and returns the next one, if any.
func (b *batches) answered(n, bytes int) []*proposal {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.underWay -= n
	b.bytes -= bytes
	return b.take()
}

// close ends all of it, once Raft has ended, and waits for those who give.
func (b *batches) close() {
	b.mu.Lock()
	b.closed = true
	if b.timer != nil {
		b.timer.Stop()
	}
	never := b.waiting
	b.waiting = nil
	b.mu.Unlock()
	for _, p := range never {
		if p.then != nil {
			p.endsWithStore()
		}
	}
	b.giving.Wait()
}

// holdEnds is called when the timer ends, on a goroutine of its own. If it comes late, those who wait
// since then wait for less.
func (a *proposals) holdEnds() {
	a.batches.mu.Lock()
	batch := a.batches.take()
	a.batches.mu.Unlock()
	a.give(batch)
}

// give gives a batch to Raft and hands out the answers, and then what came meanwhile.
func (a *proposals) give(batch []*proposal) {
	for len(batch) > 0 {
		n, bytes := len(batch), 0
		for _, p := range batch {
			bytes += len(p.frame)
		}
		var alone sync.WaitGroup
		given, futures := batch[:0], make([]raft.ApplyFuture, 0, n)
		for _, p := range batch {
			if err := a.disks.hasRoom(p.frame); err != nil {
				a.refuse(p, err)
				continue
			}
			began, patience := time.Now(), max(time.Millisecond, a.cfg.Timing.NoLeader-time.Since(p.since))
			future := a.node.Raft().Apply(p.frame, patience)
			endsWith(future, a.node.Ended())
			if time.Since(began) >= patience {
				// Most likely Raft has not taken it, for its buffer is full. That is said at once,
				// and not when those before it are answered.
				alone.Go(func() { a.answer(p, future) })
				continue
			}
			given, futures = append(given, p), append(futures, future)
		}
		for i, p := range given {
			a.answer(p, futures[i])
		}
		alone.Wait()
		batch = a.batches.answered(n, bytes)
		if a.applying.Add(-int64(n)) == 0 {
			a.transport.WakeUp()
		}
		a.batches.giving.Done()
	}
}

// outcome waits for what became of an entry.
func outcome(future raft.ApplyFuture) (mvcc.Result, error) {
	if err := future.Error(); err != nil {
		return mvcc.Result{}, classify(err)
	}
	r, ok := future.Response().(mvcc.Result)
	if !ok {
		return mvcc.Result{}, errors.Join(ErrUnknownOutcome, errors.New("the state machine gave no result"))
	}
	return r, nil
}
