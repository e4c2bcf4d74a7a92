package modes

import (
	"sort"
	"sync"
	"sync/atomic"
	"time"
)

// ledger holds the acknowledged writes of all probes. Probe k is written by one
// writer, one write after the other; its writes are numbered from 0, the one
// that created it. A number whose write was never acknowledged is not there,
// even if the write happened.
type ledger struct {
	probes []probe
	newest atomic.Uint64 // highest acknowledged resourceVersion of all probes
}

type probe struct {
	mu   sync.RWMutex
	acks []ack // by number, and so by time
}

// ack is one acknowledged write.
type ack struct {
	number int64
	at     time.Duration // since the run began
}

func newLedger(probes int) *ledger { return &ledger{probes: make([]probe, probes)} }

// acknowledged notes a write after its answer has arrived.
func (l *ledger) acknowledged(k int, number int64, revision uint64, at time.Duration) {
	// The revision first: a reader that sees the write in a snapshot asks for a
	// revision that covers it.
	for {
		old := l.newest.Load()
		if old >= revision || l.newest.CompareAndSwap(old, revision) {
			break
		}
	}
	p := &l.probes[k]
	p.mu.Lock()
	defer p.mu.Unlock()
	p.acks = append(p.acks, ack{number, at})
}

// snapshot is what had been acknowledged at one moment: the acknowledged writes
// of each probe are the first lens[k]. revision covers them all.
type snapshot struct {
	lens     []int
	revision uint64
	at       time.Duration
}

// now takes a snapshot into into, which is reused. now() is read last: a write
// acknowledged before the snapshot is in it.
func (l *ledger) now(into *snapshot, now func() time.Duration) {
	into.lens = into.lens[:0]
	for k := range l.probes {
		p := &l.probes[k]
		p.mu.RLock()
		into.lens = append(into.lens, len(p.acks))
		p.mu.RUnlock()
	}
	into.revision = l.newest.Load()
	into.at = now()
}

// staleness is how far an answer was behind what had been acknowledged when it
// was asked for.
type staleness struct {
	versions int64         // acknowledged writes that it lacks
	age      time.Duration // since the first of them was acknowledged; zero if it lacks none
}

// behind compares an answer's number of probe k with a snapshot. A number above
// the snapshot's is of a write that was under way: it lacks nothing.
func (l *ledger) behind(s *snapshot, k int, number int64) staleness {
	p := &l.probes[k]
	p.mu.RLock()
	acks := p.acks[:s.lens[k]]
	p.mu.RUnlock()
	first := sort.Search(len(acks), func(i int) bool { return acks[i].number > number })
	if first == len(acks) {
		return staleness{}
	}
	// The clock was read after the snapshot, so the age cannot be negative.
	return staleness{versions: int64(len(acks) - first), age: s.at - acks[first].at}
}

// add is the staleness of two probes together: all writes that are lacking, and
// the age of the first.
func (s staleness) add(o staleness) staleness {
	return staleness{versions: s.versions + o.versions, age: max(s.age, o.age)}
}
