package raftstore

import (
	"time"

	"github.com/hashicorp/raft"
)

const (
	// insistEvery is how soon a peer that is back gets entries again.
	insistEvery = 50 * time.Millisecond
	// insistFor bounds how long a message that is repeated holds entries of the log in
	// memory.
	insistFor = 30 * time.Second
)

// isHeartbeat tells raft's heartbeats, which must not wait, from its other
// messages without entries.
func isHeartbeat(r *raft.AppendEntriesRequest) bool {
	return len(r.Entries) == 0 && r.PrevLogEntry == 0 && r.LeaderCommitIndex == 0
}

// insist repeats a message to a peer that has failed with err until it succeeds, as long
// as this node leads in the term and the peer is a member at that address: raft takes
// the address of its next attempt from the configuration. Raft would wait between its
// own attempts, twice as long after each and up to ten seconds, and does not notice that
// a peer is back: with one more node gone, writes would hang for that long. After a while
// the message goes without its entries; raft sends those when it has arrived.
func (n *nudger) insist(err error, id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, call func() error) error {
	n.mu.Lock()
	s := n.store
	n.mu.Unlock()
	if s == nil {
		return err
	}
	tick := time.NewTicker(insistEvery)
	defer tick.Stop()
	for began := time.Now(); err != nil; {
		select {
		case <-s.ctx.Done():
			return err
		case <-tick.C:
		}
		if s.raft.State() != raft.Leader || s.raft.CurrentTerm() != args.Term {
			return err
		}
		long := time.Since(began) > n.keep
		switch addr, member := s.memberAt(id); {
		case member && addr != target, !member && long:
			return err
		case long:
			args.Entries = nil
		}
		err = call()
	}
	return err
}

// memberAt returns the address of a member in the configuration.
func (s *Store) memberAt(id raft.ServerID) (addr raft.ServerAddress, ok bool) {
	for _, m := range s.raft.GetConfiguration().Configuration().Servers {
		if m.ID == id {
			return m.Address, true
		}
	}
	return "", false
}
