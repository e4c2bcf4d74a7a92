package probe

import (
	"sort"
	"sync"
	"sync/atomic"
	"time"
)

// Ledger holds the acknowledged writes of all probes. A probe has one write at a
// time under way; its writes are numbered from 0, the one that created it. A
// number whose write was never acknowledged is not there, even if the write
// happened.
type Ledger struct {
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

// NewLedger makes the ledger of so many probes.
func NewLedger(probes int) *Ledger { return &Ledger{probes: make([]probe, probes)} }

// Len is how many probes there are.
func (l *Ledger) Len() int { return len(l.probes) }

// Acknowledged notes a write after its answer has arrived.
func (l *Ledger) Acknowledged(k int, number int64, revision uint64, at time.Duration) {
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

// Snapshot is what had been acknowledged at one moment: of the probes from first
// on, so many writes of each.
type Snapshot struct {
	// Revision covers them all.
	Revision uint64

	first int
	lens  []int
	at    time.Duration
}

// Now takes a snapshot of all probes into into, which is reused. now() is read
// last: a write acknowledged before the snapshot is in it.
func (l *Ledger) Now(into *Snapshot, now func() time.Duration) { l.now(into, 0, len(l.probes), now) }

// NowOf takes a snapshot of one probe.
func (l *Ledger) NowOf(into *Snapshot, k int, now func() time.Duration) { l.now(into, k, 1, now) }

func (l *Ledger) now(into *Snapshot, first, n int, now func() time.Duration) {
	into.first, into.lens = first, into.lens[:0]
	for k := range n {
		p := &l.probes[first+k]
		p.mu.RLock()
		into.lens = append(into.lens, len(p.acks))
		p.mu.RUnlock()
	}
	into.Revision = l.newest.Load()
	into.at = now()
}

// Staleness is how far an answer was behind what had been acknowledged when it
// was asked for.
type Staleness struct {
	Versions int64         // acknowledged writes that it lacks
	Age      time.Duration // since the first of them was acknowledged; zero if it lacks none
}

// Behind compares an answer's number of probe k with a snapshot. A number above
// the snapshot's is of a write that was under way: it lacks nothing.
func (l *Ledger) Behind(s *Snapshot, k int, number int64) Staleness {
	p := &l.probes[k]
	p.mu.RLock()
	acks := p.acks[:s.lens[k-s.first]]
	p.mu.RUnlock()
	first := sort.Search(len(acks), func(i int) bool { return acks[i].number > number })
	if first == len(acks) {
		return Staleness{}
	}
	// The clock was read after the snapshot, so the age cannot be negative.
	return Staleness{Versions: int64(len(acks) - first), Age: s.at - acks[first].at}
}

// Add is the staleness of two probes together: all writes that are lacking, and
// the age of the first.
func (s Staleness) Add(o Staleness) Staleness {
	return Staleness{Versions: s.Versions + o.Versions, Age: max(s.Age, o.Age)}
}
