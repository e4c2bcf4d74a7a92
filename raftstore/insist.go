package raftstore

import (
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

// insist makes a call that has failed with err again until it succeeds, as long as
// this node leads in the term. Raft would wait between its own attempts, twice as
// long after each and up to ten seconds, and does not notice that a peer is back:
// with one more node gone, writes would hang for that long.
func (n *nudger) insist(err error, term uint64, call func() error) error {
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
		if s.raft.State() != raft.Leader || s.raft.CurrentTerm() != term {
			return err
		}
		err = call()
	}
	return err
}
