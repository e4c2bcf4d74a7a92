package controllers

import (
	"context"
	"errors"
	"sync"
	"time"
)

// queue gives keys to workers: each key once however often it is added, never to
// two workers at a time, and again after a pause if it failed. A key whose work ends
// with errSlow is given at once to one of other workers, so that it keeps no other
// key waiting, and stays with them until it is done. Safe for concurrent use.
type queue struct {
	work    func(ctx context.Context, key string, slow bool) error
	failed  func(key string, err error)
	workers int // slowFactor times as many for slow keys, which wait
	// Pauses after failures, the first one and the longest.
	first, most time.Duration

	ctx context.Context
	wg  sync.WaitGroup

	mu     sync.Mutex
	lanes  [2]lane // of ordinary keys, and of slow ones
	items  map[string]*item
	closed bool
}

const slowFactor = 4

type lane struct {
	ready   []string
	running int
}

// errSlow is the end of work that may take longer than others are to wait.
var errSlow = errors.New("this may take long")

type item struct {
	queued, running bool
	slow            int  // its lane
	again           bool // added while it ran
	failures        int
	timer           *time.Timer // of the pause after a failure
}

// add puts a key into the queue. A pause after a failure ends.
func (q *queue) add(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.addLocked(key)
}

func (q *queue) addLocked(key string) {
	if q.closed {
		return
	}
	it := q.items[key]
	if it == nil {
		it = &item{}
		q.items[key] = it
	}
	switch {
	case it.running:
		it.again = true
		return
	case it.queued:
		return
	}
	if it.timer != nil {
		it.timer.Stop()
		it.timer = nil
	}
	it.queued = true
	q.lanes[it.slow].ready = append(q.lanes[it.slow].ready, key)
	q.startLocked(it.slow)
}

// startLocked starts a worker if there is more to do than there are workers. They
// end when there is nothing left: an idle queue has no goroutines.
func (q *queue) startLocked(slow int) {
	if l := &q.lanes[slow]; l.running < q.workers*[...]int{1, slowFactor}[slow] && len(l.ready) > 0 {
		l.running++
		q.wg.Go(func() { q.run(slow) })
	}
}

func (q *queue) run(slow int) {
	l := &q.lanes[slow]
	for {
		q.mu.Lock()
		if len(l.ready) == 0 || q.closed {
			l.running--
			q.mu.Unlock()
			return
		}
		key := l.ready[0]
		l.ready = l.ready[1:]
		it := q.items[key]
		it.queued, it.running = false, true
		q.startLocked(slow)
		q.mu.Unlock()
		q.done(key, q.work(q.ctx, key, slow == 1))
	}
}

func (q *queue) done(key string, err error) {
	q.mu.Lock()
	slow := errors.Is(err, errSlow) && q.items[key].slow == 0
	q.mu.Unlock()
	if err != nil && !slow && q.ctx.Err() == nil {
		q.failed(key, err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	it := q.items[key]
	it.running = false
	if err == nil {
		it.failures = 0
	}
	switch {
	case q.closed:
	case slow:
		it.slow, it.again = 1, false
		q.addLocked(key)
	case it.again:
		it.again = false
		q.addLocked(key)
	case err == nil:
		delete(q.items, key)
	default:
		pause := q.most
		if it.failures < 30 {
			pause = min(q.first<<it.failures, q.most)
		}
		it.failures++
		it.timer = time.AfterFunc(pause, func() { q.add(key) })
	}
}

// open makes the queue take keys until close.
func (q *queue) open(ctx context.Context) {
	q.ctx, q.items = ctx, map[string]*item{}
}

// close waits for the workers. Its context must have ended.
func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	for _, it := range q.items {
		if it.timer != nil {
			it.timer.Stop()
		}
	}
	q.mu.Unlock()
	q.wg.Wait()
}
