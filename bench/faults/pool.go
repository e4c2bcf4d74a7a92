package faults

import (
	"math/rand/v2"
	"sync"
)

// pool hands out the probes to write. Each has one write under way at most, so that
// what is acknowledged last is what must be read.
type pool struct {
	mu      sync.Mutex // guards what follows
	free    []int      // those without a write under way; the last one is handed out next
	numbers []int64    // of the newest write of each probe
	recent  []int      // those that were acknowledged last, for readers: it is where a stale answer shows
	at      int        // where in recent the next one goes
}

// recentProbes is among how many probes readers choose.
const recentProbes = 8

func newPool(probes int) *pool {
	p := &pool{numbers: make([]int64, probes), recent: make([]int, min(recentProbes, probes))}
	for k := range probes {
		p.free = append(p.free, k)
	}
	for i := range p.recent {
		p.recent[i] = i
	}
	return p
}

// take returns a probe and the number of its next write; false if none is free.
func (p *pool) take() (k int, number int64, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) == 0 {
		return 0, 0, false
	}
	last := len(p.free) - 1
	k = p.free[last]
	p.free = p.free[:last]
	p.numbers[k]++
	return k, p.numbers[k], true
}

// acknowledged gives a probe back whose write was acknowledged. refused gives one back
// whose write has not happened and will not. One of which nobody knows stays out: its
// write may still happen, and would undo a later one.
func (p *pool) acknowledged(k int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, k)
	p.recent[p.at] = k
	p.at = (p.at + 1) % len(p.recent)
}

func (p *pool) refused(k int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, k)
}

// toRead is a probe to read.
func (p *pool) toRead() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.recent[rand.IntN(len(p.recent))]
}
