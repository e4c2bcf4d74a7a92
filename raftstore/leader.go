package raftstore

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/failover"
	"github.com/quorate/quorate/raftstore/local"
	"github.com/quorate/quorate/raftstore/watch"
)

// ErrTransferStuck is fatal: raft refuses all writes since an interrupted
// leadership transfer (raft#696). Only a restart clears it.
var ErrTransferStuck = errors.New("an interrupted leadership transfer blocks all writes")

// leading is what this node does when it begins to lead, and when it ends.
type leading struct {
	cfg      *Config
	node     *local.Node
	hub      *watch.Hub
	disks    *diskSpace
	failover *failover.Failover
	cluster  func() proto.ClusterID
	changes  atomic.Uint64 // of leader
}

// lead follows raft's word on this node's leadership. A new leader commits a
// NewTerm entry before it serves anything: only then does its commit index cover
// everything that earlier leaders have acknowledged, and only then is there an
// index of its own term that the state machines see. The first leader of a cluster
// commits its id and feature version too: readers of a write can then rely on both.
func (l *leading) lead(notify <-chan bool) {
	for {
		select {
		case <-l.node.Context().Done():
			return
		case leads := <-notify:
			if !leads {
				l.resign()
				continue
			}
			l.becomeLeader(notify)
		}
	}
}

func (l *leading) resign() {
	if l.node.SetTerm(0) != 0 {
		l.node.Logger.Info("no longer the leader")
		l.disks.resign()
	}
}

// becomeLeader commits an entry of the new term. It ends when this node serves as
// leader, or leads no longer.
func (l *leading) becomeLeader(notify <-chan bool) {
	stuckSince := time.Time{}
	for l.node.Raft().State() == raft.Leader && l.node.Context().Err() == nil {
		term := l.node.Raft().CurrentTerm()
		frame, err := proto.Encode(proto.KindNewTerm, &proto.NewTerm{Term: term, LeaderId: string(l.node.ID)})
		if err != nil {
			l.cfg.Fatal(err)
			return
		}
		err = l.node.Await(l.node.Raft().Apply(frame, l.cfg.Timing.Election))
		switch {
		case err == nil && l.node.Leads(term):
			if !l.nameCluster(term, notify) {
				continue
			}
			l.disks.lead()
			l.node.SetTerm(term)
			local.Wake(l.disks.told) // it looks at once, and judges
			l.node.Logger.Info("this node leads", "term", term)
			return
		case errors.Is(err, raft.ErrLeadershipTransferInProgress):
			if stuckSince.IsZero() {
				stuckSince = time.Now()
			}
			if time.Since(stuckSince) > 2*l.cfg.Timing.Election {
				l.cfg.Fatal(fmt.Errorf("term %d: %w", term, ErrTransferStuck))
				return
			}
			l.pauseAsLeader(nil)
		case err != nil:
			l.node.Logger.Warn("cannot commit the first entry of the term, retrying", "term", term, "err", err)
			l.pauseAsLeader(notify)
		}
	}
}

// pauseAsLeader waits before the next attempt, or until raft says that this node does not
// lead any more.
func (l *leading) pauseAsLeader(notify <-chan bool) {
	select {
	case <-l.node.Context().Done():
	case leads := <-notify:
		if !leads {
			l.resign()
		}
	case <-time.After(local.RetryEvery):
	}
}

// nameCluster returns when the state has the cluster's id, true if this node still leads in
// the term then. A node whose first configuration came by the log does not know the id before
// package membership has seen that configuration.
func (l *leading) nameCluster(term uint64, notify <-chan bool) bool {
	for l.hub.State().Mark().Cluster == "" {
		if l.node.Context().Err() != nil || !l.node.Leads(term) {
			return false
		}
		if id := l.cluster(); id != "" {
			frame, err := proto.Encode(proto.KindCluster, &proto.Cluster{ClusterId: string(id), FeatureVersion: newFeature})
			if err == nil {
				err = l.node.Await(l.node.Raft().Apply(frame, l.cfg.Timing.Election))
			}
			if err == nil {
				continue
			}
			l.node.Logger.Warn("cannot write the cluster's id, retrying", "cluster", id, "err", err)
		}
		l.pauseAsLeader(notify)
	}
	return l.node.Leads(term)
}

// observe tells waiting proposals when raft learns of another leader.
func (l *leading) observe() {
	seen := make(chan raft.Observation, 16)
	o := raft.NewObserver(seen, false, func(o *raft.Observation) bool {
		if state, ok := o.Data.(raft.RaftState); ok {
			l.failover.NoteState(state)
		}
		_, ok := o.Data.(raft.LeaderObservation)
		return ok
	})
	l.node.Raft().RegisterObserver(o)
	defer l.node.Raft().DeregisterObserver(o)
	for {
		select {
		case <-l.node.Context().Done():
			return
		case <-seen:
			l.changes.Add(1)
			l.node.Notify()
		}
	}
}
