package raftstore

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/quorate/quorate/proto"
)

// waiters lets callers wait until the state machine has applied an index.
type waiters struct {
	// next is the lowest index anybody waits for, or zero: the apply path reads
	// it alone when nobody waits.
	next atomic.Uint64

	mu     sync.Mutex
	heap   waiterHeap
	closed error
}

type waiter struct {
	index proto.Revision
	done  chan struct{}
	pos   int // in the heap; -1 when it is not there
	err   error
	left  bool // nobody waits any more
}

// wait returns when applied() has reached index. applied must be monotonic and
// must be moved before advance is called.
func (w *waiters) wait(ctx context.Context, index proto.Revision, applied func() proto.Revision) error {
	if applied() >= index {
		return nil
	}
	me := &waiter{index: index, done: make(chan struct{})}
	if err := w.add(me); err != nil {
		return err
	}
	// An index that was applied before the waiter was in the heap wakes nobody.
	if applied() >= index {
		w.remove(me)
		return nil
	}
	select {
	case <-me.done:
		return me.err
	case <-ctx.Done():
		w.remove(me)
		return fmt.Errorf("wait for index %d at %d: %w", index, applied(), context.Cause(ctx))
	}
}

// wake closes me.done when applied() has reached me.index, or nobody can wait any more. Who is woken looks
// which it is. It does not wait. me is not in the heap before.
func (w *waiters) wake(me *waiter, applied func() proto.Revision) {
	if applied() >= me.index || w.add(me) != nil {
		close(me.done)
	} else if applied() >= me.index && w.remove(me) {
		close(me.done)
	}
}

// errLeft is of a waiter that has left before it was added.
var errLeft = errors.New("nobody waits")

// leave is called by who does not wait any more for what wake may be called for, before this or after it:
// while a node lags, those who have given up are not kept.
func (w *waiters) leave(me *waiter) {
	w.mu.Lock()
	me.left = true
	w.mu.Unlock()
	w.remove(me)
}

func (w *waiters) add(me *waiter) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed != nil {
		return w.closed
	}
	if me.left {
		return errLeft
	}
	heap.Push(&w.heap, me)
	w.next.Store(uint64(w.heap[0].index))
	return nil
}

// remove reports whether the waiter had not been woken, and will not be.
func (w *waiters) remove(me *waiter) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if me.pos < 0 {
		return false
	}
	heap.Remove(&w.heap, me.pos)
	w.storeNextLocked()
	return true
}

// advance wakes everybody who waits for an index up to applied.
func (w *waiters) advance(applied proto.Revision) {
	if next := w.next.Load(); next == 0 || next > uint64(applied) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.heap) > 0 && w.heap[0].index <= applied {
		close(heap.Pop(&w.heap).(*waiter).done)
	}
	w.storeNextLocked()
}

func (w *waiters) close(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = err
	for len(w.heap) > 0 {
		me := heap.Pop(&w.heap).(*waiter)
		me.err = err
		close(me.done)
	}
	w.storeNextLocked()
}

func (w *waiters) storeNextLocked() {
	if len(w.heap) == 0 {
		w.next.Store(0)
		return
	}
	w.next.Store(uint64(w.heap[0].index))
}

type waiterHeap []*waiter

func (h waiterHeap) Len() int           { return len(h) }
func (h waiterHeap) Less(i, j int) bool { return h[i].index < h[j].index }
func (h waiterHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].pos, h[j].pos = i, j
}
func (h *waiterHeap) Push(x any) {
	me := x.(*waiter)
	me.pos = len(*h)
	*h = append(*h, me)
}
func (h *waiterHeap) Pop() any {
	old := *h
	me := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	me.pos = -1
	return me
}
