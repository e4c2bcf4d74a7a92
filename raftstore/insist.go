package raftstore

import (
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// insistEvery is how soon a peer that is back gets entries again.
	insistEvery = 50 * time.Millisecond
	// insistFor bounds one message: it holds entries of the log in memory.
	insistFor = 30 * time.Second
)

// isHeartbeat tells raft's heartbeats, which must not wait, from its other
// messages without entries.
func isHeartbeat(r *raft.AppendEntriesRequest) bool {
	return len(r.Entries) == 0 && r.PrevLogEntry == 0 && r.LeaderCommitIndex == 0
}

// insist makes a call to a peer that has failed with err again until it succeeds, as
// long as this node leads in the term. Raft would wait between its own attempts, twice as
// long after each and up to ten seconds, and does not notice that a peer is back:
// with one more node gone, writes would hang for that long. It ends when the peer has
// moved: raft takes the address of its next attempt from the configuration.
func (n *nudger) insist(err error, id raft.ServerID, target raft.ServerAddress, term uint64, call func() error) error {
	n.mu.Lock()
	s := n.store
	n.mu.Unlock()
	if s == nil {
		return err
	}
	tick := time.NewTicker(insistEvery)
	defer tick.Stop()
	for began := time.Now(); err != nil && time.Since(began) < insistFor; {
		select {
		case <-s.ctx.Done():
			return err
		case <-tick.C:
		}
		if s.raft.State() != raft.Leader || s.raft.CurrentTerm() != term || s.movedFrom(id, target) {
			return err
		}
		err = call()
	}
	return err
}

// movedFrom reports whether the configuration has a peer at another address.
func (s *Store) movedFrom(id raft.ServerID, addr raft.ServerAddress) bool {
	future := s.raft.GetConfiguration()
	if future.Error() != nil {
		return false
	}
	return slices.ContainsFunc(future.Configuration().Servers, func(m raft.Server) bool { return m.ID == id && m.Address != addr })
}
