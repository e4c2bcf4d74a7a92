package local

import (
	"sync"
	"sync/atomic"
)

// Leadership is what a node knows about who leads.
type Leadership struct {
	// term in which this node leads and has committed an entry of its own; zero
	// otherwise. Only then are its commit index and its reads worth anything.
	term atomic.Uint64

	mu      sync.Mutex
	changed chan struct{} // closed at the next change of anything here
}

// LeadsIn is the term in which this node leads and has committed an entry of its own, or zero.
func (l *Leadership) LeadsIn() uint64 { return l.term.Load() }

// Ready reports whether this node leads and has committed an entry of its term.
func (l *Leadership) Ready() bool { return l.term.Load() != 0 }

// SetTerm is told that this node is ready in a term, or, with zero, leads no more. It returns the term before.
func (l *Leadership) SetTerm(term uint64) (was uint64) {
	was = l.term.Swap(term)
	l.Notify()
	return was
}

// Changed returns a channel that is closed at the next change.
func (l *Leadership) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

// Notify tells who waits that something has changed.
func (l *Leadership) Notify() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.changed)
	l.changed = make(chan struct{})
}
