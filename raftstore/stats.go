package raftstore

import (
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/proto"
)

// Stats counts what a Store does, for metrics. Read it through Store.Stats.
type Stats struct {
	pending, failed, forwarded     atomic.Int64
	readIndexes, nudges, campaigns atomic.Int64
	messages, answers              atomic.Int64 // on streams of peers: to the leader, and from it
	rounds                         atomic.Uint64
	onLogWrite, onCommit, onReadIx atomic.Pointer[func(time.Duration)]
	onDelay                        atomic.Pointer[func(time.Duration)]
	onRoundTrip                    atomic.Pointer[func(proto.NodeID, time.Duration)]
}

func observe(p *atomic.Pointer[func(time.Duration)], d time.Duration) {
	if f := p.Load(); f != nil && *f != nil {
		(*f)(d)
	}
}

func (s *Stats) logWrite(d time.Duration, _, _ int) { observe(&s.onLogWrite, d) }
func (s *Stats) backendCommit(d time.Duration)      { observe(&s.onCommit, d) }
func (s *Stats) readIndexWait(d time.Duration)      { observe(&s.onReadIx, d) }
func (s *Stats) schedulingDelay(d time.Duration)    { observe(&s.onDelay, d) }

func (s *Stats) roundTrip(to proto.NodeID, d time.Duration) {
	if f := s.onRoundTrip.Load(); f != nil && *f != nil {
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
	first, _ := s.log.FirstIndex() // Raft itself meets the error and reports it
	return Counters{
		PendingProposals:   s.stats.pending.Load(),
		FailedProposals:    s.stats.failed.Load(),
		ForwardedProposals: s.stats.forwarded.Load(),
		ReadIndexes:        s.stats.readIndexes.Load(),
		ReadIndexRounds:    s.stats.rounds.Load(),
		CommitNudges:       s.stats.nudges.Load(),
		Campaigns:          s.stats.campaigns.Load(),
		HeartbeatsFailed:   s.transport.beatsFailed.Load(),
		LeaderChanges:      s.leader.changes.Load(),
		SnapshotsInstalled: s.fsm.restored.Load(),
		FirstIndex:         first,
		Watchers:           s.hub.Watchers(),
	}
}

// Observe sets who is told how long log writes (with fsync), flushes of
// state.db and read-index waits took. The functions must be fast; nil is
// allowed.
func (s *Store) Observe(logWrite, backendCommit, readIndex func(time.Duration)) {
	s.stats.onLogWrite.Store(&logWrite)
	s.stats.onCommit.Store(&backendCommit)
	s.stats.onReadIx.Store(&readIndex)
}

// ObserveSchedulingDelay sets who is told, ten times a second, how long a goroutine of Raft would have waited for a
// processor. The function must be fast; nil is allowed.
func (s *Store) ObserveSchedulingDelay(f func(time.Duration)) { s.stats.onDelay.Store(&f) }

// ObserveRoundTrips sets who is told how long voters took to answer this node's
// calls for their term: a message there and one back, no disk. Only leaders
// ask. The function must be fast and safe for concurrent use; nil is allowed.
func (s *Store) ObserveRoundTrips(f func(to proto.NodeID, d time.Duration)) {
	s.stats.onRoundTrip.Store(&f)
}
