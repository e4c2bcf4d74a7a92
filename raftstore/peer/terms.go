package peer

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
)

// errLaterTerm refuses a message that no leader of its term can send: with entries,
// or behind entries, or with a snapshot of a later term.
//
// The library sends such messages: a goroutine that replicates to one follower can
// outlive its leadership, stuck in a call; when the node has been elected again and
// the call returns, it may take one more turn, and reads the log as it is now under
// the term that was. A follower that takes them has entries of a term which it does
// not know, and can then be elected in that very term, beside its leader.
var errLaterTerm = errors.New("the message is of an earlier term than what it carries")

// errNoEntry refuses an entry of a type that no log has: the store answers the entry at
// its snapshot's index with one, for comparison only.
var errNoEntry = errors.New("the message carries what is not an entry")

// boundCommit bounds the commit index of a message by the last entry of it: that it
// carries, or that it follows. The library commits up to the end of the
// follower's log, which may have a tail that its leader never had; and the same
// goroutine sends the commit index of now under the term that was (the rule is that
// of the Raft paper, figure 2, AppendEntries 5). Heartbeats have neither.
func boundCommit(r *raft.AppendEntriesRequest) {
	r.LeaderCommitIndex = min(r.LeaderCommitIndex, r.PrevLogEntry+uint64(len(r.Entries)))
}

// checkTerms returns errLaterTerm for such a message. Both sides ask: the sender, so
// that it does no harm to others, and the receiver, so that nobody does.
func checkTerms(req any) error {
	switch r := req.(type) {
	case *raft.AppendEntriesRequest:
		if r.PrevLogTerm > r.Term {
			return fmt.Errorf("term %d behind an entry of term %d: %w", r.Term, r.PrevLogTerm, errLaterTerm)
		}
		for _, l := range r.Entries {
			if l.Type > raft.LogConfiguration {
				return fmt.Errorf("entry %d is of type %d: %w", l.Index, l.Type, errNoEntry)
			}
		}
		// Terms never fall along a log.
		if n := len(r.Entries); n > 0 && r.Entries[n-1].Term > r.Term {
			return fmt.Errorf("term %d with an entry of term %d: %w", r.Term, r.Entries[n-1].Term, errLaterTerm)
		}
	case *raft.InstallSnapshotRequest:
		if r.LastLogTerm > r.Term {
			return fmt.Errorf("term %d with a snapshot of term %d: %w", r.Term, r.LastLogTerm, errLaterTerm)
		}
	}
	return nil
}
