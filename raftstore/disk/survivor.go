package disk

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// Survivor is what the directory of a node holds that is left of a cluster.
//
// Of several survivors the one with the highest (LastTerm, LastIndex) is the best:
// it has every entry that a majority with any of them had, by Raft's own rule for
// votes.
type Survivor struct {
	Cluster proto.ClusterID
	// Applied is what state.db holds, and Term the term of that entry. All of it was
	// committed.
	Applied proto.Revision
	Term    proto.Term
	// LastIndex and LastTerm are the end of the log, or of the state if that is
	// further.
	LastIndex uint64
	LastTerm  uint64
	// Tail is how many entries the log holds beyond the state, Writes how many of
	// them are writes. Nothing on one disk says how many of these were committed.
	Tail, Writes int
	// Dead entries are at the log's end, but were never committed: the newest
	// snapshot has another history there.
	Dead uint64
	// LogLost says that raft.db or raft-log is gone, or an old copy (see LogLost, the function): what
	// tail it has to offer, if any, may not be all that this node has acknowledged.
	LogLost bool
	// Objects is the number of live keys, with the tail.
	Objects int
	// Configuration is the newest one on disk, committed or not.
	Configuration raft.Configuration
}

// ErrNoState is returned for a directory that no node has kept a state in.
var ErrNoState = errors.New("there is no state of a node in it")

// ErrDivided is returned when raft.db has another entry at the index that state.db
// has applied than the one that was applied.
var ErrDivided = errors.New("state.db and raft.db are of different histories")

// InspectSurvivor says what the directory of a stopped node holds. It makes what a
// start of the node would make of the directory, and no other change: a snapshot
// that was received is taken in.
// Errors: ErrNoState, ErrUnfinished, ErrRecovering, ErrDamaged, ErrBehind,
// ErrDivided; proto.ErrUnknownKind if the log is of a newer release.
func InspectSurvivor(dir string) (Survivor, error) {
	s, _, err := survivorIn(dir)
	if err != nil {
		return s, fmt.Errorf("inspect %s: %w", dir, err)
	}
	return s, nil
}

// survivorIn returns also the state with the log's tail applied.
func survivorIn(dir string) (s Survivor, state *mvcc.State, err error) {
	for _, name := range []string{stateFile, incomingFile} {
		there, err := exists(dir, name)
		if err != nil {
			return s, nil, err
		}
		if there {
			break
		}
		if name == incomingFile {
			return s, nil, ErrNoState
		}
	}
	// Nothing may end the process: errors are returned. Nor is there anything to keep a reserve for.
	db, err := Open(dir, Options{Fatal: func(error) {}, Reserve: 1})
	if err != nil {
		return s, nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	snapshots, err := NewSnapshotStore(db, dir)
	if err != nil {
		return s, nil, err
	}
	if state, err = startingState(db, snapshots); err != nil {
		return s, nil, err
	}
	m := state.Mark()
	s.Cluster, s.Applied, s.Term = m.Cluster, m.Applied, m.Term
	s.LastIndex, s.LastTerm = uint64(m.Applied), uint64(m.Term)
	var newest *raft.SnapshotMeta
	if list, err := snapshots.List(); err != nil {
		return s, nil, err
	} else if len(list) > 0 {
		newest = list[0]
		s.Configuration = newest.Configuration
	}
	switch there, err := exists(dir, stableFile); {
	case err != nil:
		return s, nil, err
	case !there:
		s.LogLost = true
	default:
		if err := s.readLog(dir, state, snapshots, newest); err != nil {
			return s, nil, err
		}
	}
	live, err := liveVersions(state)
	s.Objects = len(live)
	return s, state, err
}

// startingState is the state that a node would start with.
func startingState(db *DB, snapshots *SnapshotStore) (*mvcc.State, error) {
	restore, err := snapshots.NeedsRestore()
	if err != nil {
		return nil, err
	}
	if !restore {
		return db.Load()
	}
	list, err := snapshots.List()
	if err != nil {
		return nil, err
	}
	_, data, err := snapshots.Open(list[0].ID)
	if err != nil {
		return nil, err
	}
	state, err := db.Restore(data)
	return state, errors.Join(err, data.Close())
}

// readLog opens the log, says whether it is this directory's, and takes its tail in.
func (s *Survivor) readLog(dir string, state *mvcc.State, snapshots *SnapshotStore, newest *raft.SnapshotMeta) (err error) {
	log, err := OpenLog(dir, LogOptions{Survivor: true, Fatal: func(error) {}})
	if errors.Is(err, ErrLogLost) {
		s.LogLost = true
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	// Not an error here: the state is what there is to recover.
	switch err := LogLost(log, snapshots, state.Mark()); {
	case errors.Is(err, ErrLogLost):
		s.LogLost = true
	case err != nil:
		return err
	}
	return s.applyTail(log, state, newest)
}

// applyTail applies what the log has beyond the state, as its leader would have
// committed it: in order, without gaps, of terms that never fall.
func (s *Survivor) applyTail(log *Log, state *mvcc.State, newest *raft.SnapshotMeta) error {
	t := tail{s: s, log: log}
	if err := t.find(newest); err != nil || t.last < t.at {
		return err
	}
	// The entry that was applied last must be the log's, unless the log was cut
	// there behind a snapshot.
	switch there, err := t.read(uint64(s.Applied)); {
	case err != nil:
		return err
	case there && t.entry.Term != uint64(s.Term):
		return fmt.Errorf("entry %d is of term %d, the state has applied one of term %d: %w", s.Applied, t.entry.Term, s.Term, ErrDivided)
	}
	for index := t.first; index <= min(t.at, t.last) && index > 0; index++ {
		if there, err := t.read(index); err != nil {
			return err
		} else if there {
			s.configuration(&t.entry)
		}
	}
	return t.apply(state)
}

// tail is the part of a survivor's log that its state has not applied: the entries after
// at, up to last.
type tail struct {
	s               *Survivor
	log             *Log
	first, at, last uint64
	entry           raft.Log // that was read last
}

// read reads an entry, and reports whether the log has it.
func (t *tail) read(index uint64) (there bool, err error) {
	err = t.log.GetLog(index, &t.entry)
	if errors.Is(err, raft.ErrLogNotFound) {
		return false, nil
	}
	return err == nil, err
}

// find finds where the tail begins and ends. What is not of the newest snapshot's history
// is no part of it.
func (t *tail) find(newest *raft.SnapshotMeta) (err error) {
	if t.first, err = t.log.FirstIndex(); err != nil {
		return err
	}
	if t.last, err = t.log.LastIndex(); err != nil {
		return err
	}
	t.at = uint64(t.s.Applied)
	if newest == nil {
		return nil
	}
	switch there, err := t.read(newest.Index); {
	case err != nil:
		return err
	case there && t.entry.Term != newest.Term:
		// By Log Matching no entry behind it is of the snapshot's history.
		if t.last > newest.Index {
			t.s.Dead = t.last - newest.Index
		}
		t.last = min(t.last, newest.Index)
	case newest.Index > t.at:
		// The entries up to the snapshot that the state has not seen carry nothing.
		t.at = newest.Index
		t.s.LastIndex, t.s.LastTerm = newest.Index, newest.Term
	}
	return nil
}

// apply applies the tail, up to an entry of an earlier term than the one before it.
func (t *tail) apply(state *mvcc.State) error {
	s := t.s
	for index := t.at + 1; index <= t.last; index++ {
		switch there, err := t.read(index); {
		case err != nil:
			return err
		case !there:
			return fmt.Errorf("entry %d is missing between %d and %d: %w", index, t.at, t.last, ErrDamaged)
		case t.entry.Term < s.LastTerm:
			s.Dead += t.last - index + 1
			state.Publish()
			return nil
		}
		s.LastIndex, s.LastTerm = index, t.entry.Term
		s.Tail++
		s.configuration(&t.entry)
		if t.entry.Type != raft.LogCommand {
			continue
		}
		r, err := state.Apply(proto.RaftIndex(index), proto.Term(t.entry.Term), t.entry.Data)
		if err != nil {
			return fmt.Errorf("apply entry %d: %w", index, err)
		}
		if r.Version != nil {
			s.Writes++
		}
	}
	state.Publish()
	s.Cluster = state.Mark().Cluster
	return nil
}

// configuration takes note of a configuration in the log.
func (s *Survivor) configuration(l *raft.Log) {
	if l.Type == raft.LogConfiguration {
		s.Configuration = raft.DecodeConfiguration(l.Data)
	}
}
