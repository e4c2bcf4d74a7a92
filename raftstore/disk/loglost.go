package disk

import (
	"fmt"

	"github.com/hashicorp/raft"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// raftTerm is the key under which raft keeps its term in the stable store.
var raftTerm = []byte("CurrentTerm")

// LogLost tells a log that was lost, or put back from an old copy, by what lies beside
// it: the snapshots of the same directory and the mark of its state. What was applied
// was in the log before, or came with a snapshot; and before a node took either, it had
// written their term down. The data of a received snapshot may be ahead of its index,
// and so may the state be that came with it, while the log has not got there yet. What a snapshot of
// this node itself is ahead by was in the log.
//
// An old copy of the whole directory cannot be told from a short absence. Errors:
// ErrLogLost, with what does not fit; those of reading the log.
func LogLost(log *Log, snapshots *SnapshotStore, state mvcc.Mark) error {
	at, snapshotTerm, _ := snapshots.Newest()
	received := snapshots.ReceivedData()
	last, err := log.LastIndex()
	if err != nil {
		return fmt.Errorf("check log: %w", err)
	}
	var newest raft.Log
	if last > 0 {
		if err := log.GetLog(last, &newest); err != nil {
			return fmt.Errorf("check log: %w", err)
		}
	}
	// The error of a key that is absent is raft's to judge; then the term is zero.
	term, _ := log.GetUint64(raftTerm)
	switch {
	case term < newest.Term:
		return fmt.Errorf("raft.db is of term %d, the log's newest entry of term %d: %w", term, newest.Term, ErrLogLost)
	case term < snapshotTerm:
		return fmt.Errorf("raft.db is of term %d, the snapshot of term %d: %w", term, snapshotTerm, ErrLogLost)
	case term < uint64(state.Term) && uint64(state.Applied) > received:
		// What came with a snapshot may be of a later term than its message.
		return fmt.Errorf("raft.db is of term %d, state.db of term %d: %w", term, state.Term, ErrLogLost)
	case uint64(state.Applied) > max(last, at, received):
		return fmt.Errorf("the log ends at %d, the snapshot at %d, and state.db has applied %d: %w",
			last, max(at, received), state.Applied, ErrLogLost)
	}
	return nil
}
