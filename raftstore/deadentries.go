package raftstore

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/raftstore/disk"
	"github.com/quorate/quorate/raftstore/mvcc"
	"github.com/quorate/quorate/raftstore/replication"
)

// Dead entries are entries of a log that were never committed, and never can be: the
// cluster has committed others in their place. When a snapshot is installed, the Raft
// paper (figure 13, rules 6 and 7) keeps what stands behind the snapshot's last entry
// if the log holds that very entry, and discards the entire log otherwise. The library
// keeps the newest TrailingLogs entries, whatever they are. So:
//
//   - Dead entries below the snapshot would be replicated by this node when it leads,
//     to a node that is further behind, and its commit index covers them: state
//     machines that differ for good. Nothing would notice.
//   - Dead entries above it make the leader send the same snapshot again, for ever
//     (raft#697).
//
// dropDead does what the paper says, in the moment of the install and at every start.

// ErrDeadEntries is fatal: the log holds entries from the newest snapshot's index on
// that were never committed, and Raft, which knows where its log ends, must not see
// them go. The next start drops them; snapshot, term and vote are kept.
var ErrDeadEntries = errors.New("the log holds entries that were never committed; the next start drops them")

// dropDead makes the log agree with the newest snapshot, as far as that can be done
// while Raft runs: what ends below the snapshot's index is dropped. The state that the
// snapshot stands for must be durable; state is where this node's state is now. Errors:
// ErrDeadEntries, ErrDiverged.
func dropDead(log *disk.Log, snapshots *disk.SnapshotStore, state mvcc.Mark) error {
	at, term, _ := snapshots.Newest()
	agrees, err := agree(log, at, term)
	if err != nil || agrees {
		return err
	}
	first, last, err := bounds(log)
	switch {
	case err != nil:
		return err
	case last == 0 || first > at:
		// Nothing, or only what was appended behind a snapshot.
		return nil
	case last >= at:
		if err := wronglyApplied(log, at, state); err != nil {
			return err
		}
		return fmt.Errorf("entries %d to %d, a snapshot at %d of term %d: %w", first, last, at, term, ErrDeadEntries)
	}
	if err := log.Discard(first, last); err != nil {
		return fmt.Errorf("drop dead entries: %w", err)
	}
	return nil
}

// dropDeadAtStart is dropDead before Raft has looked at its log: dead entries above the
// snapshot go as well, and what a release without dropDead has left, which may lie
// below a hole, with later snapshots and entries above it.
func (s *Store) dropDeadAtStart(snapshots *disk.SnapshotStore, state mvcc.Mark) error {
	at, term, _ := snapshots.Newest()
	first, last, err := bounds(s.log)
	if err != nil || last == 0 {
		return err
	}
	drop := func(upTo uint64) error {
		s.cfg.Logger.Warn("dropping entries of the Raft log that are not of the snapshot's history; snapshot, term and vote stay",
			"first", first, "last", upTo, "snapshot", at)
		if err := s.log.Drop(first, upTo); err != nil {
			return fmt.Errorf("drop dead entries: %w", err)
		}
		return nil
	}
	if run := s.log.Run(); run > first {
		if run > at+1 {
			return fmt.Errorf("the log has a hole before %d and the newest snapshot is at %d: keep a copy of this node's directory, and let it join again with an empty one: %w",
				run, at, disk.ErrDamaged)
		}
		if err := drop(run - 1); err != nil {
			return err
		}
		first = run
	}
	agrees, err := agree(s.log, at, term)
	if err != nil || agrees || first > at {
		return err
	}
	if err := wronglyApplied(s.log, at, state); err != nil {
		return err
	}
	return drop(last)
}

// wronglyApplied is asked of a log that does not agree with the snapshot at an index: if
// the state has applied an entry of this log from there on, it is not the cluster's. To
// drop the log would drop the proof.
func wronglyApplied(log *disk.Log, at uint64, state mvcc.Mark) error {
	var l raft.Log
	if uint64(state.Applied) < at || log.GetLog(uint64(state.Applied), &l) != nil || l.Term != uint64(state.Term) {
		return nil
	}
	return fmt.Errorf("entry %d of the log is applied, and the log is not the cluster's from %d on: %w", state.Applied, at, ErrDiverged)
}

// agree reports whether the log holds the snapshot's last entry. By Log Matching it
// then agrees with the cluster's up to there.
func agree(log *disk.Log, at, term uint64) (bool, error) {
	if at == 0 {
		return true, nil
	}
	var l raft.Log
	switch err := log.GetLog(at, &l); {
	case errors.Is(err, raft.ErrLogNotFound):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("compare the log with the snapshot: %w", err)
	}
	return l.Term == term, nil
}

func bounds(log *disk.Log) (first, last uint64, err error) {
	if first, err = log.FirstIndex(); err != nil {
		return 0, 0, fmt.Errorf("first entry of the log: %w", err)
	}
	if last, err = log.LastIndex(); err != nil {
		return 0, 0, fmt.Errorf("last entry of the log: %w", err)
	}
	return first, last, nil
}

// logBehind is the log as Raft sees it: the newest snapshot's last entry is part of it,
// though the log that begins behind the snapshot does not hold it. Otherwise
//
//   - a leader that asks whether this node has that entry is told no when there are
//     entries behind it, walks back, and sends the snapshot again, for ever, and
//   - a node whose log is empty behind a snapshot takes a new snapshot every time it
//     looks (the library subtracts the snapshot's index from zero).
//
// The entry is only ever compared, never sent: a leader that sends it needs the entry
// before it, which is not there. (Raft's idea of the newest snapshot would have to be one
// entry behind; see RefuseLate. The transport refuses the type all the same.)
type logBehind struct {
	*disk.Log
	snapshots *disk.SnapshotStore
	ahead     func(log raft.LogStore, logs []*raft.Log) // told of entries that are about to be stored
}

// notAnEntry is the type of that entry, which no log has.
const notAnEntry raft.LogType = 0xff

// GetLog implements raft.LogStore.
func (l logBehind) GetLog(index uint64, out *raft.Log) error {
	err := l.Log.GetLog(index, out)
	// There is nothing before the first entry, so that one could be sent.
	if index > 1 && errors.Is(err, raft.ErrLogNotFound) {
		if at, term, _ := l.snapshots.Newest(); at == index {
			*out = raft.Log{Index: at, Term: term, Type: notAnEntry}
			return nil
		}
	}
	return err
}

// errBelow refuses entries below the newest snapshot.
var errBelow = errors.New("these entries are below the newest snapshot")

// StoreLogs implements raft.LogStore. Raft has no reason to store what a snapshot covers,
// but it takes the first entries of all, which stand behind none, from a message that comes
// late: a node that was empty when the snapshot was installed would have them below it,
// and its members from their configuration. Raft gives such a message up.
func (l logBehind) StoreLogs(logs []*raft.Log) error {
	if at := l.snapshots.Index(); len(logs) > 0 && logs[0].Index <= at {
		return fmt.Errorf("entries from %d, a snapshot at %d: %w", logs[0].Index, at, errBelow)
	}
	if len(logs) > 0 {
		l.ahead(l, logs)
	}
	return l.Log.StoreLogs(logs)
}

// StoreLog implements raft.LogStore.
func (l logBehind) StoreLog(log *raft.Log) error { return l.StoreLogs([]*raft.Log{log}) }

// LastIndex implements raft.LogStore.
func (l logBehind) LastIndex() (uint64, error) {
	last, err := l.Log.LastIndex()
	if err != nil || last > 0 {
		return last, err
	}
	at, _, _ := l.snapshots.Newest()
	if at == 1 {
		return 0, nil // see GetLog
	}
	return at, nil
}

// skipBelow has a message of a leader begin at this node's newest snapshot if it begins before that, where this
// node has no entries to compare. Those are the leader's, because a snapshot has what is committed. The library
// refuses such a message, and its leader goes back by an entry each time, to the first one that it has: for ever, unless
// its log begins behind the snapshot. A leader may be that far behind when answers are lost, and a full disk keeps few entries.
func (s *Store) skipBelow(r *raft.AppendEntriesRequest) {
	if s.snapshots == nil || replication.IsHeartbeat(r) {
		return
	}
	at, term, _ := s.snapshots.Newest()
	if r.PrevLogEntry >= at || term > r.Term {
		return
	}
	if first, err := s.log.FirstIndex(); err != nil || first > 0 && first <= r.PrevLogEntry {
		return
	}
	skip := min(at-r.PrevLogEntry, uint64(len(r.Entries)))
	if skip == at-r.PrevLogEntry && r.Entries[skip-1].Term != term {
		return // not the leader of this cluster: Raft knows what to do
	}
	r.PrevLogEntry, r.PrevLogTerm, r.Entries = at, term, r.Entries[skip:]
}

// noteApplied sets fromLog at a start: the state's newest entry counts if the log holds
// it, with its term.
func (f *fsm) noteApplied(log *disk.Log, m mvcc.Mark) {
	var l raft.Log
	if err := log.GetLog(uint64(m.Applied), &l); err == nil && l.Term == uint64(m.Term) {
		f.fromLog.Store(l.Index)
	}
}

// wouldForgetMembers reports whether the log goes on from a snapshot's last entry with a
// configuration, so that to install the snapshot would take the node back to the members
// of before; it would vote by them. A leader that knows what this node has does not send
// such a snapshot: it is a copy that was on its way for long.
func (s *Store) wouldForgetMembers(index, term uint64, newest bool) bool {
	if ok, err := agree(s.log, index, term); err != nil || !ok && !newest || index == 0 {
		return false
	}
	_, last, err := bounds(s.log)
	if err != nil {
		return false
	}
	for i := index + 1; i <= last; i++ {
		var l raft.Log
		if s.log.GetLog(i, &l) == nil && l.Type == raft.LogConfiguration {
			return true
		}
	}
	return false
}
