package raftstore

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"github.com/quorate/quorate/proto"
)

// leadership is what a node knows about who leads.
type leadership struct {
	// term in which this node leads and has committed an entry of its own; zero
	// otherwise. Only then are its commit index and its reads worth anything.
	term atomic.Uint64

	mu      sync.Mutex
	changed chan struct{} // closed at the next change of anything here
	changes atomic.Uint64

	// transfer is held while leadership is handed over: one at a time.
	transfer sync.Mutex
}

func (l *leadership) ready() bool { return l.term.Load() != 0 }

// leads reports whether this node leads in a term.
func (l *leadership) leads(term uint64) bool { return term != 0 && l.term.Load() == term }

// watch returns a channel that is closed at the next change.
func (l *leadership) watch() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

func (l *leadership) notify() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.changed)
	l.changed = make(chan struct{})
}

// ErrTransferStuck is fatal: raft refuses all writes since an interrupted
// leadership transfer (raft#696). Only a restart clears it.
var ErrTransferStuck = errors.New("an interrupted leadership transfer blocks all writes")

// lead follows raft's word on this node's leadership. A new leader commits a
// NewTerm entry before it serves anything: only then does its commit index cover
// everything that earlier leaders have acknowledged, and only then is there an
// index of its own term that the state machines see. The first leader of a cluster
// commits its id and feature version too: readers of a write can then rely on both.
func (s *Store) lead(notify <-chan bool) {
	for {
		select {
		case <-s.ctx.Done():
			return
		case leads := <-notify:
			if !leads {
				s.resign()
				continue
			}
			s.becomeLeader(notify)
		}
	}
}

func (s *Store) resign() {
	if s.leader.term.Swap(0) != 0 {
		s.cfg.Logger.Info("no longer the leader")
		s.disks.resign()
	}
	s.leader.notify()
}

// becomeLeader commits an entry of the new term. It ends when this node serves as
// leader, or leads no longer.
func (s *Store) becomeLeader(notify <-chan bool) {
	stuckSince := time.Time{}
	for s.raft.State() == raft.Leader && s.ctx.Err() == nil {
		term := s.raft.CurrentTerm()
		frame, err := proto.Encode(proto.KindNewTerm, &proto.NewTerm{Term: term, LeaderId: string(s.cfg.Node)})
		if err != nil {
			s.cfg.Fatal(err)
			return
		}
		err = s.awaitFuture(s.raft.Apply(frame, s.cfg.Timing.Election))
		switch {
		case err == nil && s.raft.State() == raft.Leader && s.raft.CurrentTerm() == term:
			if !s.nameCluster(term, notify) {
				continue
			}
			s.disks.lead()
			s.leader.term.Store(term)
			s.leader.notify()
			wake(s.disks.told) // it looks at once, and judges
			s.cfg.Logger.Info("this node leads", "term", term)
			return
		case errors.Is(err, raft.ErrLeadershipTransferInProgress):
			if stuckSince.IsZero() {
				stuckSince = time.Now()
			}
			if time.Since(stuckSince) > 2*s.cfg.Timing.Election {
				s.cfg.Fatal(fmt.Errorf("term %d: %w", term, ErrTransferStuck))
				return
			}
			s.pauseAsLeader(nil)
		case err != nil:
			s.cfg.Logger.Warn("cannot commit the first entry of the term, retrying", "term", term, "err", err)
			s.pauseAsLeader(notify)
		}
	}
}

// pauseAsLeader waits before the next attempt, or until raft says that this node does not
// lead any more.
func (s *Store) pauseAsLeader(notify <-chan bool) {
	select {
	case <-s.ctx.Done():
	case leads := <-notify:
		if !leads {
			s.resign()
		}
	case <-time.After(retryEvery):
	}
}

// nameCluster returns when the state has the cluster's id, true if this node still leads in
// the term then. A node whose first configuration came by the log does not know the id before
// package membership has seen that configuration.
func (s *Store) nameCluster(term uint64, notify <-chan bool) bool {
	for s.hub.State().Mark().Cluster == "" {
		if s.ctx.Err() != nil || s.raft.State() != raft.Leader || s.raft.CurrentTerm() != term {
			return false
		}
		if id := s.Cluster(); id != "" {
			frame, err := proto.Encode(proto.KindCluster, &proto.Cluster{ClusterId: string(id), FeatureVersion: newFeature})
			if err == nil {
				err = s.awaitFuture(s.raft.Apply(frame, s.cfg.Timing.Election))
			}
			if err == nil {
				continue
			}
			s.cfg.Logger.Warn("cannot write the cluster's id, retrying", "cluster", id, "err", err)
		}
		s.pauseAsLeader(notify)
	}
	return s.raft.State() == raft.Leader && s.raft.CurrentTerm() == term
}

// observe tells waiting proposals when raft learns of another leader.
func (s *Store) observe() {
	seen := make(chan raft.Observation, 16)
	o := raft.NewObserver(seen, false, func(o *raft.Observation) bool {
		if state, ok := o.Data.(raft.RaftState); ok {
			s.candidacy.note(state)
		}
		_, ok := o.Data.(raft.LeaderObservation)
		return ok
	})
	s.raft.RegisterObserver(o)
	defer s.raft.DeregisterObserver(o)
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-seen:
			s.leader.changes.Add(1)
			s.leader.notify()
		}
	}
}
