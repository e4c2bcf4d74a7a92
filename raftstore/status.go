package raftstore

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"github.com/quorate/quorate/proto"
)

// Role is leader, follower, candidate, nonvoter, removed (there is a cluster, and
// this node is not in its configuration) or shutdown.
func (s *Store) Role() string {
	switch s.node.Raft().State() {
	case raft.Leader:
		return "leader"
	case raft.Candidate:
		return "candidate"
	case raft.Shutdown:
		return "shutdown"
	}
	return s.placeInConfiguration()
}

// suffrage is this node's place in the configuration at a time.
type suffrage struct {
	role string
	at   time.Time
}

// suffrageAge is how old an answer may be: it is asked for with every request.
const suffrageAge = 250 * time.Millisecond

// placeInConfiguration is follower for a voter, nonvoter, or removed.
func (s *Store) placeInConfiguration() string {
	now := time.Now()
	if known := s.suffrage.Load(); known != nil && now.Sub(known.at) < suffrageAge {
		return known.role
	}
	found := &suffrage{role: "nonvoter", at: now}
	if servers := s.node.Members(); len(servers) > 0 {
		found.role = "removed"
		for _, m := range servers {
			switch {
			case m.ID != s.cfg.Node:
			case m.Voter:
				found.role = "follower"
			default:
				found.role = "nonvoter"
			}
		}
	}
	s.suffrage.Store(found)
	return found.role
}

// Behind is how many log entries this node knows to be committed and has not
// applied.
func (s *Store) Behind() uint64 {
	commit, applied := s.node.Raft().CommitIndex(), uint64(s.Applied())
	return commit - min(applied, commit)
}

// Status describes this node as it sees itself, without asking anybody.
// Version, addresses and names of members are filled in by the caller.
func (s *Store) Status() *proto.NodeStatus {
	state := s.State()
	st := &proto.NodeStatus{
		NodeId:       string(s.cfg.Node),
		Name:         s.cfg.Name,
		ClusterId:    string(s.Cluster()),
		Role:         s.Role(),
		Term:         s.node.Raft().CurrentTerm(),
		Commit:       s.node.Raft().CommitIndex(),
		Applied:      uint64(state.Applied()),
		Floor:        uint64(state.Floor()),
		LastLogIndex: s.node.Raft().LastIndex(),
		DbBytes:      uint64(s.db.Size()),
		StartedUnix:  s.startedAt.Unix(),
		Hashes:       append(s.fsm.hashes.recent(), currentHash(state)),
		Lost:         s.Lost(),
		StorageBytes: uint64(s.cfg.Limits.StorageBytes),
	}
	st.Disk, st.Disks = s.Disk()
	st.ClusterFeatureVersion, st.FeatureVersion = s.Features()
	leader, _ := s.Leader()
	st.LeaderId = string(leader)
	switch last := s.node.Raft().LastContact(); {
	case st.Role == "leader":
	case last.IsZero():
		st.LastContactMs = -1
	default:
		st.LastContactMs = time.Since(last).Milliseconds()
	}
	for _, m := range s.node.Members() {
		st.Members = append(st.Members, &proto.Member{NodeId: string(m.ID), PeerAddress: m.Address, Voter: m.Voter})
	}
	return st
}

// Alive reports whether the state machine follows the commits: everything known
// to be committed was applied, or it has moved within limit. A node without work,
// or without a quorum, is alive. (A log write that hangs ends the process by
// itself, see Timing.HungDisk.)
func (s *Store) Alive(limit time.Duration) bool {
	commit, applied := s.node.Raft().CommitIndex(), uint64(s.Applied())
	return s.progress.check(commit, applied, limit) || s.nothingBetween(applied, commit)
}

// nothingBetween reports whether no entry from behind an index up to another is one that
// the state machine sees. A leader's first entry is none. It can stay the last one that
// is committed for long, if the quorum is lost before the leader's next.
func (s *Store) nothingBetween(applied, commit uint64) bool {
	for i := max(applied, s.snapshotIndex()) + 1; i <= commit; i++ {
		var l raft.Log
		if s.log.GetLog(i, &l) != nil || l.Type == raft.LogCommand || l.Type == raft.LogConfiguration {
			return false
		}
	}
	return true
}

// progress remembers since when the state machine has been behind without
// moving.
type progress struct {
	mu      sync.Mutex
	applied uint64
	since   time.Time // of the last move, or of the last time it was not behind
}

func (p *progress) check(commit, applied uint64, limit time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); applied != p.applied || applied >= commit || p.since.IsZero() {
		p.applied, p.since = applied, now
	}
	return time.Since(p.since) <= limit
}
