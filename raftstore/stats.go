package raftstore

import (
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/proto"
)

// observers are told what a Store does, for metrics.
type observers struct {
	onLogWrite, onCommit, onReadIx atomic.Pointer[func(time.Duration)]
	onDelay                        atomic.Pointer[func(time.Duration)]
	onRoundTrip                    atomic.Pointer[func(proto.NodeID, time.Duration)]
}

func observe(p *atomic.Pointer[func(time.Duration)], d time.Duration) {
	if f := p.Load(); f != nil && *f != nil {
		(*f)(d)
	}
}

func (o *observers) logWrite(d time.Duration)        { observe(&o.onLogWrite, d) }
func (o *observers) backendCommit(d time.Duration)   { observe(&o.onCommit, d) }
func (o *observers) readIndexWait(d time.Duration)   { observe(&o.onReadIx, d) }
func (o *observers) schedulingDelay(d time.Duration) { observe(&o.onDelay, d) }

func (o *observers) roundTrip(to proto.NodeID, d time.Duration) {
	if f := o.onRoundTrip.Load(); f != nil && *f != nil {
		(*f)(to, d)
	}
}

// Counters is a snapshot of what a Store has counted since it was opened.
type Counters struct {
	PendingProposals   int64
	FailedProposals    int64
	ForwardedProposals int64
	ReadIndexes        int64
	ReadIndexRounds    uint64
	CommitNudges       int64
	Campaigns          int64
	HeartbeatsFailed   int64
	LeaderChanges      uint64
	SnapshotsInstalled uint64
	FirstIndex         uint64 // of the log; 0 when it cannot be read
	Watchers           int64
}

// Counters returns the present counts.
func (s *Store) Counters() Counters {
	reads, rounds := s.reads.Counts()
	nudges, beatsFailed := s.transport.Counts()
	first, _ := s.log.FirstIndex() // Raft itself meets the error and reports it
	return Counters{
		PendingProposals:   s.proposals.pending.Load(),
		FailedProposals:    s.proposals.failed.Load(),
		ForwardedProposals: s.proposals.sent.Load(),
		ReadIndexes:        reads,
		ReadIndexRounds:    rounds,
		CommitNudges:       nudges,
		Campaigns:          s.failover.Campaigns(),
		HeartbeatsFailed:   beatsFailed,
		LeaderChanges:      s.leading.changes.Load(),
		SnapshotsInstalled: s.fsm.restored.Load(),
		FirstIndex:         first,
		Watchers:           s.hub.Watchers(),
	}
}

// Observe sets who is told how long log writes (with fsync), flushes of
// state.db and read-index waits took. The functions must be fast; nil is
// allowed.
func (s *Store) Observe(logWrite, backendCommit, readIndex func(time.Duration)) {
	s.observers.onLogWrite.Store(&logWrite)
	s.observers.onCommit.Store(&backendCommit)
	s.observers.onReadIx.Store(&readIndex)
}

// ObserveSchedulingDelay sets who is told, ten times a second, how long a goroutine of Raft would have waited for a
// processor. The function must be fast; nil is allowed.
func (s *Store) ObserveSchedulingDelay(f func(time.Duration)) { s.observers.onDelay.Store(&f) }

// ObserveRoundTrips sets who is told how long voters took to answer this node's
// calls for their term: a message there and one back, no disk. Only leaders
// ask. The function must be fast and safe for concurrent use; nil is allowed.
func (s *Store) ObserveRoundTrips(f func(to proto.NodeID, d time.Duration)) {
	s.observers.onRoundTrip.Store(&f)
}
