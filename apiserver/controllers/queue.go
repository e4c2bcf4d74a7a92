package controllers

import (
	"context"
	"sync"
	"time"
)

// queue gives keys to workers: each key once however often it is added, never to
// two workers at a time, and again after a pause if it failed. Safe for concurrent
// use.
type queue struct {
	work    func(ctx context.Context, key string) error
	failed  func(key string, err error)
	workers int
	// Pauses after failures, the first one and the longest.
	first, most time.Duration

	ctx context.Context
	wg  sync.WaitGroup

	mu      sync.Mutex
	ready   []string
	items   map[string]*item
	running int
	closed  bool
}

type item struct {
	queued, running bool
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
	q.ready = append(q.ready, key)
	q.startLocked()
}

// startLocked starts a worker if there is more to do than there are workers. They
// end when there is nothing left: an idle queue has no goroutines.
func (q *queue) startLocked() {
	if q.running < q.workers && len(q.ready) > 0 {
		q.running++
		q.wg.Go(q.run)
	}
}

func (q *queue) run() {
	for {
		q.mu.Lock()
		if len(q.ready) == 0 || q.closed {
			q.running--
			q.mu.Unlock()
			return
		}
		key := q.ready[0]
		q.ready = q.ready[1:]
		it := q.items[key]
		it.queued, it.running = false, true
		q.startLocked()
		q.mu.Unlock()
		q.done(key, q.work(q.ctx, key))
	}
}

func (q *queue) done(key string, err error) {
	if err != nil && q.ctx.Err() == nil {
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
