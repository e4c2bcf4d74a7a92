package raftstore

import (
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/raftstore/disk"
)

// raftTerm is the key under which raft keeps its term in the stable store.
var raftTerm = []byte("CurrentTerm")

// checkLog refuses a raft.db that does not belong to the snapshot beside it.
// Raft would start on it: without raft.db as a voter that has forgotten its term,
// its vote, and every entry behind the snapshot, also those that it has helped to
// commit; with a hole before the first entry it panics.
func checkLog(log *disk.Log, snapshots raft.SnapshotStore) error {
	list, err := snapshots.List()
	if err != nil {
		return err
	}
	first, err := log.FirstIndex()
	if err != nil {
		return fmt.Errorf("check log: %w", err)
	}
	if len(list) == 0 {
		if first > 1 {
			return fmt.Errorf("the log begins at %d and there is no snapshot: wipe this node's directory and let it join again: %w", first, disk.ErrDamaged)
		}
		return nil
	}
	newest := list[0]
	// A snapshot is of a term that this node had written down before. The error
	// of a key that is absent is raft's to judge; then the term is zero.
	if term, _ := log.GetUint64(raftTerm); term < newest.Term {
		return fmt.Errorf("raft.db is of term %d, the snapshot of term %d: %w", term, newest.Term, disk.ErrLogLost)
	}
	if first > newest.Index+1 {
		return fmt.Errorf("the log begins at %d and the newest snapshot is at %d: wipe this node's directory and let it join again: %w", first, newest.Index, disk.ErrDamaged)
	}
	return nil
}
