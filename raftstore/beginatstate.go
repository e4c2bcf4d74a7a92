package raftstore

import (
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/raftstore/mvcc"
)

// beginAtState has Raft start where the state is, instead of at the newest snapshot that was
// written. Raft reads what the log has behind its snapshot twice, entry by entry: for the
// members, and to have it applied, which the state machine has done. state.db is the data of
// every local snapshot; so a snapshot at its newest entry is all there but for its meta: index,
// term and members follow from the log.
//
// Only if the log holds that entry, of the term in which it was applied: by Log Matching
// everything up to there is then what was committed, and a leader finds that this node has
// it. Otherwise Raft begins at the snapshot, and what the two differ in is found as ever
// (sameEntry). Call it behind mendLog, by which the log has no hole behind the snapshot.
func (s *Store) beginAtState(m mvcc.Mark) error {
	at, _, data := s.snapshots.Newest()
	applied := uint64(m.Applied)
	if applied <= at || applied < data { // below its data one that was received has to be restored yet
		return nil
	}
	var newest raft.Log
	switch err := s.log.GetLog(applied, &newest); {
	case errors.Is(err, raft.ErrLogNotFound):
		return nil
	case err != nil:
		return fmt.Errorf("begin at the state: %w", err)
	case newest.Term != uint64(m.Term):
		return nil
	}
	index, members := newestConfiguration(s.snapshots)
	entry, err := s.log.NewestConfiguration(at+1, applied)
	if err != nil {
		return fmt.Errorf("find the members: %w", err)
	}
	if entry != nil {
		index, members = entry.Index, raft.DecodeConfiguration(entry.Data)
	}
	if index == 0 {
		return nil // no log is like that; Raft has to judge it
	}
	s.snapshots.Advance(applied, newest.Term, members, index)
	return nil
}

// writeSnapshot writes a snapshot soon after a start, if that of beginAtState was not written and one is
// due. Raft counts from the other one, and looks after an interval: on a node that is started
// again and again the log would never be cut, and all of it is verified at each start.
func (s *Store) writeSnapshot() {
	began := s.snapshots.Index()
	if began-s.snapshots.Written() < s.cfg.Limits.SnapshotThreshold {
		return
	}
	// Before anything is applied Raft has nothing to take a snapshot of.
	if err := s.WaitApplied(s.node.Context(), s.Applied()+1); err != nil {
		return
	}
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for s.snapshots.Written() < began {
		err := s.node.Await(s.node.Raft().Snapshot())
		if err == nil {
			return
		}
		// Such as that members are being changed.
		s.cfg.Logger.Debug("no snapshot could be taken after the start; trying again", "err", err)
		select {
		case <-s.node.Context().Done():
			return
		case <-again.C:
		}
	}
}
