package raftstore

import (
	"fmt"

	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/disk"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// raftTerm is the key under which raft keeps its term in the stable store.
var raftTerm = []byte("CurrentTerm")

// checkLog refuses a log that does not belong to what lies beside it: the snapshot,
// the state, and the cluster that this node remembers to be a member of. Raft would
// start on it: without raft.db as a voter that has forgotten its term, its vote, and
// every entry that it has helped to commit; with a hole before the first entry it panics.
// So it is asked before Raft is there to answer anybody: a node like that must not vote
// for a millisecond.
//
// An old copy of the whole directory looks like a short absence: other nodes can tell, see compare.go.
func checkLog(log *disk.Log, snapshots *disk.SnapshotStore, state mvcc.Mark, cluster proto.ClusterID) error {
	at, _, _ := snapshots.Newest()
	first, last, err := bounds(log)
	if err != nil {
		return fmt.Errorf("check log: %w", err)
	}
	// The error of a key that is absent is raft's to judge; then the term is zero.
	term, _ := log.GetUint64(raftTerm)
	switch {
	case cluster != "" && term == 0 && last == 0 && at == 0:
		// The cluster's id reaches the disk after the Raft state did.
		return fmt.Errorf("this node is a member of cluster %s, and its log is empty: %w", cluster, disk.ErrLogLost)
	case first > at+1:
		return fmt.Errorf("the log begins at %d and the newest snapshot is at %d: keep a copy of this node's directory, and let it join again with an empty one: %w",
			first, at, disk.ErrDamaged)
	}
	return disk.LogLost(log, snapshots, state)
}

// undoHalfBootstrap takes back what a bootstrap has written that was interrupted. It
// writes the term, which is 1, and then the first entry. In between the process may end:
// the library takes what is left for the state of a member, bootstraps it no more, and
// nobody will ever send it an entry if its cluster was to be of one node.
//
// Term 1 without an entry promises nothing: a candidate has bootstrapped and
// asks for votes of term 2 or later, so no vote was given and no message answered in it.
// A node that knows its cluster has come further.
func undoHalfBootstrap(log *disk.Log, snapshots *disk.SnapshotStore, cluster proto.ClusterID) error {
	at, _, _ := snapshots.Newest()
	_, last, err := bounds(log)
	if err != nil {
		return fmt.Errorf("undo an interrupted bootstrap: %w", err)
	}
	// The error of a key that is absent is raft's to judge.
	if term, err := log.GetUint64(raftTerm); err != nil || term != 1 || last != 0 || at != 0 || cluster != "" {
		return nil
	}
	if err := log.SetUint64(raftTerm, 0); err != nil {
		return fmt.Errorf("undo an interrupted bootstrap: %w", err)
	}
	return nil
}
