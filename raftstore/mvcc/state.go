package mvcc

import (
	"encoding/binary"
	"fmt"
	"iter"
	"slices"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
	"github.com/quorate/quorate/proto"
	"github.com/tidwall/btree"
)

// Mark says which state a reader sees: everything up to and including Applied.
type Mark struct {
	Applied proto.Revision
	// Term of the entry at Applied.
	Term proto.Term
	// Hash covers every entry up to Applied and its outcome. Two nodes with the
	// same Applied have the same Hash, or one of them is broken.
	Hash uint64
	// Cluster is what the last Cluster entry said; empty before the first.
	Cluster proto.ClusterID
	// Feature is the feature version that entries may use. It never falls.
	Feature uint32
	// StorageBytes is what the live keys may take together; 0 if that is not bounded.
	StorageBytes int64
}

// State is the state machine. One goroutine calls Apply, Advance, Publish and
// the loaders; all other methods are safe from any goroutine.
type State struct {
	// tables are what readers see of allTables. A copy shares all but what has changed since: a
	// cluster may have had more tables than it has.
	tables atomic.Pointer[btree.Map[string, *Table]]
	mark   atomic.Pointer[Mark]
	floor  atomic.Uint64

	// Owned by the writer:
	now       Mark // what the next Publish shows
	allTables btree.Map[string, *Table]
	touched   []*Table
	emptied   []*Table // those that a compaction has left without a key
	parser    Parser
	requests  map[[proto.RequestIDSize]byte]proto.Revision
	rules     ruleTables
	ledger    ledger
	space     space
	pack      packer
	// unchecked counts batches since the last check (CheckSome).
	unchecked int

	unpacked unpacked
	packing  packing // of the goroutine that packs

	dropped atomic.Uint64 // see Latest

	historyVersions atomic.Int64
	historyBytes    atomic.Int64
	historyWritten  atomic.Int64
}

// New returns an empty state at index zero.
func New() *State {
	s := &State{requests: map[[proto.RequestIDSize]byte]proto.Revision{}, ledger: ledger{of: map[string]*account{}}, space: space{namespaces: map[string]*tally{}}}
	s.showTables()
	s.mark.Store(&Mark{})
	return s
}

// Mark returns what readers see now.
func (s *State) Mark() Mark { return *s.mark.Load() }

// Applied is the newest index whose effects are visible.
func (s *State) Applied() proto.Revision { return s.mark.Load().Applied }

// Feature is the feature version after what was applied last, shown or not. For the
// writer only.
func (s *State) Feature() uint32 { return s.now.Feature }

// Floor is the oldest revision that can be read: history above it is whole.
func (s *State) Floor() proto.Revision { return proto.Revision(s.floor.Load()) }

// History returns how many versions the history window holds, and their bytes.
func (s *State) History() (versions, bytes int64) {
	return s.historyVersions.Load(), s.historyBytes.Load()
}

// HistoryWritten returns how many bytes were ever added to this state's history,
// those included that the floor has passed. Nodes differ in it.
func (s *State) HistoryWritten() int64 { return s.historyWritten.Load() }

// Table returns a table, or nil if it has no key and no history: nothing was ever written to it, or
// the floor has passed the deletion of its last key.
func (s *State) Table(name string) *Table {
	t, _ := s.tables.Load().Get(name)
	return t
}

// Tables are all tables, in the order of their names.
func (s *State) Tables() iter.Seq2[string, *Table] { return s.tables.Load().Scan }

func (s *State) table(name string) *Table {
	if t := s.Table(name); t != nil {
		return t
	}
	t := newTable(s, name)
	s.rules.add(t)
	s.allTables.Set(name, t)
	s.showTables()
	return t
}

// Latest is the revision of the newest change in a table, or of a later one. Of a table that is not there
// it is that of the newest change in any table that was dropped: who has read up to an earlier one may
// have missed that its last key was deleted.
func (s *State) Latest(table string) proto.Revision {
	if t := s.Table(table); t != nil {
		return t.Latest()
	}
	return proto.Revision(s.dropped.Load())
}

// Dropped is the revision of the newest change in any table that was dropped.
func (s *State) Dropped() proto.Revision { return proto.Revision(s.dropped.Load()) }

// dropEmptied drops the tables that are still empty: whoever makes many, in the end as many as it has
// deleted, costs no more than before. A state that was loaded has none of them either, and no entry comes
// to anything else for it.
func (s *State) dropEmptied() {
	dropped := false
	for _, t := range s.emptied {
		if t.keys.Len() > 0 || t.gone.Load() {
			continue
		}
		// Before it is gone: who finds nothing must know up to when.
		s.dropped.Store(max(s.dropped.Load(), t.latest.Load()))
		s.allTables.Delete(t.name)
		s.rules.drop(t)
		dropped = true
	}
	if dropped {
		s.showTables()
		for _, t := range s.emptied {
			// Behind the tables: who is told that it is gone finds no more of it.
			t.gone.Store(t.keys.Len() == 0)
		}
	}
	clear(s.emptied)
	s.emptied = s.emptied[:0]
}

// showTables shows readers the tables. What they see is never written to.
func (s *State) showTables() { s.tables.Store(s.allTables.Copy()) }

// Result is what an applied entry did.
type Result struct {
	Index   proto.RaftIndex
	Term    proto.Term // of the entry
	Outcome proto.Outcome
	// Revision of the write that took effect; for OUTCOME_DUPLICATE the earlier one.
	Revision proto.Revision
	// Table and Version are set if a version was added.
	Table   *Table
	Version *Version
	// Removed are the revisions that no reader can reach any more.
	Removed []proto.Revision
	// Hash is the rolling hash after this entry.
	Hash uint64
	// Exceeded says what refused the write, for OUTCOME_LIMIT_EXCEEDED and OUTCOME_NO_SPACE. It is
	// not part of the hash: it follows from what is.
	Exceeded *proto.Exceeded
}

// Apply applies the entry at index. A refused write is a Result, not an error.
// On an error the state is unchanged and the node must stop: ErrOrder,
// proto.ErrFormat, proto.ErrUnknownKind.
//
// Nothing is visible to readers before Publish.
func (s *State) Apply(index proto.RaftIndex, term proto.Term, entry []byte) (Result, error) {
	if proto.Revision(index) <= s.now.Applied {
		return Result{}, fmt.Errorf("apply entry %d after %d: %w", index, s.now.Applied, ErrOrder)
	}
	kind, body, err := proto.Split(entry)
	if err != nil {
		return Result{}, fmt.Errorf("apply entry %d: %w", index, err)
	}
	r := Result{Index: index, Term: term, Outcome: proto.Outcome_OUTCOME_APPLIED, Revision: proto.Revision(index)}
	switch kind {
	case proto.KindWrite:
		w, err := s.parser.Parse(body)
		if err != nil {
			return Result{}, fmt.Errorf("apply entry %d: %w", index, err)
		}
		if !known(w) {
			return Result{}, fmt.Errorf("apply entry %d: op %d, condition %d, flags %x, rules %x, or a field that this release does not know: %w",
				index, w.Op, w.Condition, w.Flags, w.Rules, proto.ErrUnknownKind)
		}
		s.write(&r, term, w)
	case proto.KindCompact:
		var c proto.Compact
		if err := Decode(body, &c); err != nil {
			return Result{}, fmt.Errorf("apply entry %d: %w", index, err)
		}
		r.Removed = s.compact(min(proto.Revision(c.Floor), proto.Revision(index)))
	case proto.KindNewTerm:
		if err := Decode(body, new(proto.NewTerm)); err != nil {
			return Result{}, fmt.Errorf("apply entry %d: %w", index, err)
		}
	case proto.KindCluster:
		var c proto.Cluster
		if err := Decode(body, &c); err != nil {
			return Result{}, fmt.Errorf("apply entry %d: %w", index, err)
		}
		if c.Term == 0 || proto.Term(c.Term) == term {
			s.now.Cluster, s.now.Feature = proto.ClusterID(c.ClusterId), max(s.now.Feature, c.FeatureVersion)
			if c.StorageBytes > 0 {
				s.now.StorageBytes = int64(min(c.StorageBytes, mostStorage))
			}
		}
	default:
		if kind&proto.KindIgnorable == 0 {
			return Result{}, fmt.Errorf("apply entry %d of kind %d: %w", index, kind, proto.ErrUnknownKind)
		}
	}
	var head [26]byte
	binary.LittleEndian.PutUint64(head[0:], s.now.Hash)
	binary.LittleEndian.PutUint64(head[8:], uint64(index))
	head[16] = byte(r.Outcome)
	binary.LittleEndian.PutUint64(head[17:], xxhash.Sum64(entry))
	s.now.Hash = xxhash.Sum64(head[:])
	r.Hash = s.now.Hash
	s.now.Applied, s.now.Term = proto.Revision(index), term
	return r, nil
}

// Advance notes an index that carries no command (a configuration entry), so
// that waits for it end. It changes nothing else.
func (s *State) Advance(index proto.RaftIndex, term proto.Term) {
	if proto.Revision(index) > s.now.Applied {
		s.now.Applied, s.now.Term = proto.Revision(index), term
	}
}

// Publish makes everything applied so far visible to readers.
func (s *State) Publish() {
	for _, t := range s.touched {
		t.publish()
	}
	s.touched = s.touched[:0]
	s.dropEmptied()
	if s.ledger.loading {
		s.ledger.countLoaded()
	}
	s.ledger.show(s.now.Applied)
	m := s.now
	s.mark.Store(&m)
}

func (s *State) write(r *Result, term proto.Term, w *proto.Write) {
	var id [proto.RequestIDSize]byte
	copy(id[:], w.RequestId)
	if rev, ok := s.requests[id]; ok && id != ([proto.RequestIDSize]byte{}) {
		r.Outcome, r.Revision = proto.Outcome_OUTCOME_DUPLICATE, rev
		return
	}
	// A copy that took effect did so above since. All versions above the floor are
	// there, with their ids; of those at or below it some are not.
	if w.Since != 0 && proto.Revision(w.Since) < s.Floor() {
		r.refuse(proto.Outcome_OUTCOME_REQUEST_ID_EXPIRED, nil)
		return
	}
	// A copy that was checked for its term may enter the log in a later one of the same
	// leader, when its proposer has long had another copy refused.
	if w.Term != 0 && proto.Term(w.Term) != term {
		r.refuse(proto.Outcome_OUTCOME_TERM_MISMATCH, nil)
		return
	}
	// Before guards and conditions: what was decided by other rules says nothing of them.
	if s.rulesChanged(w, r.Revision) {
		r.refuse(proto.Outcome_OUTCOME_RULES_CHANGED, nil)
		return
	}
	// A refused write leaves nothing behind, not even an empty table: a node that
	// loads its state from records would not have it.
	t := s.Table(w.Table)
	var it *item
	var old, live *Version
	if t != nil {
		if it, old = t.newest(w.Key); old != nil && !old.Deleted {
			live = old
		}
	}
	if r.Outcome = s.check(w, live); r.Outcome != proto.Outcome_OUTCOME_APPLIED {
		r.refuse(r.Outcome, live)
		return
	}
	charge := chargeOf(w.Usage, w.Limits)
	// Last: what would be refused anyway needs no room.
	refused := proto.Outcome_OUTCOME_LIMIT_EXCEEDED
	if r.Exceeded = s.exceeded(w, charge, live); r.Exceeded == nil {
		refused = proto.Outcome_OUTCOME_NO_SPACE
		r.Exceeded = s.space.exceeds(s.now.StorageBytes, spareBehind(s.now.StorageBytes), w, r.Revision, live)
	}
	if r.Exceeded != nil {
		r.refuse(refused, live)
		return
	}
	if t == nil {
		t = s.table(w.Table)
	}
	r.Table, r.Version = t, s.version(w, r.Revision, id, charge, live, old)
	s.add(t, it, r.Version)
}

// refuse makes it the result of a write that leaves live as it is, or what is not there if that is nil.
func (r *Result) refuse(why proto.Outcome, live *Version) {
	r.Outcome, r.Revision = why, 0
	if live != nil {
		r.Revision = live.Revision
	}
}

// version is what a write makes of live, which may be nil. old is the newest version of the key, or nil.
func (s *State) version(w *proto.Write, at proto.Revision, id [proto.RequestIDSize]byte, charge *charge, live, old *Version) *Version {
	v := &Version{
		Revision:       at,
		CreateRevision: at,
		Flags:          w.Flags,
		RevisionOffset: w.RevisionOffset,
		RequestID:      id,
		Deleted:        w.Op != proto.Op_OP_PUT,
	}
	if live != nil {
		v.CreateRevision = live.CreateRevision
	}
	if !v.Deleted {
		v.charge = charge
	}
	if v.Deleted && len(w.Value) == 0 {
		v.SetValue(replaceRevision(live.Value(), live.RevisionOffset, live.Revision, at))
		v.RevisionOffset, v.Labels, v.Fields, v.Flags = live.RevisionOffset, live.Labels, live.Fields, live.Flags
		v.identify(w.Key, live.UID, old)
	} else {
		v.SetValue(insertRevision(w.Value, w.RevisionOffset, at))
		s.describe(v, w.Key, w.Uid, w.Labels, w.Fields, old)
	}
	return v
}

// describe sets what says which object a version is of. old is the newest version before it, or nil.
func (s *State) describe(v *Version, key, uid string, labels, fields []*proto.Attribute, old *Version) {
	v.identify(key, uid, old)
	var like Version
	if old != nil {
		like.Labels, like.Fields = old.Labels, old.Fields
	}
	v.Labels, v.Fields = s.pack.pack(labels, like.Labels), s.pack.pack(fields, like.Fields)
}

// check returns OUTCOME_APPLIED, or why the write is refused. live is the key's
// live version or nil.
func (s *State) check(w *proto.Write, live *Version) proto.Outcome {
	for _, g := range [...]*proto.Guard{w.Guard, w.SecondGuard} {
		if g == nil {
			continue
		}
		var guard *Version
		if t := s.Table(g.Table); t != nil {
			_, guard = t.newest(g.Key)
		}
		switch {
		case guard == nil || guard.Deleted:
			return proto.Outcome_OUTCOME_GUARD_ABSENT
		case guard.Flags&proto.FlagTerminating != 0:
			return proto.Outcome_OUTCOME_GUARD_TERMINATING
		}
	}
	// There is nothing to delete, whatever else the condition wants.
	if w.Op == proto.Op_OP_DELETE && live == nil {
		return proto.Outcome_OUTCOME_NOT_FOUND
	}
	switch w.Condition {
	case proto.Condition_CONDITION_ABSENT:
		if live != nil {
			return proto.Outcome_OUTCOME_EXISTS
		}
	case proto.Condition_CONDITION_REVISION:
		if live == nil {
			return proto.Outcome_OUTCOME_NOT_FOUND
		}
		if uint64(live.Revision) != w.ExpectRevision {
			return proto.Outcome_OUTCOME_REVISION_MISMATCH
		}
	case proto.Condition_CONDITION_EXISTS:
		if live == nil {
			return proto.Outcome_OUTCOME_NOT_FOUND
		}
	}
	if w.ExpectUid != "" && (live == nil || live.UID != w.ExpectUid) {
		if live == nil {
			return proto.Outcome_OUTCOME_NOT_FOUND
		}
		return proto.Outcome_OUTCOME_UID_MISMATCH
	}
	return proto.Outcome_OUTCOME_APPLIED
}

// add links a new version everywhere it belongs.
func (s *State) add(t *Table, it *item, v *Version) {
	var live *Version
	if it != nil {
		if live = it.newest.Load(); live.Deleted {
			live = nil
		}
	}
	t.link(it, v)
	s.settle(t, live, v)
	t.hist.append(v, (live == nil) != v.Deleted)
	s.historyVersions.Add(1)
	s.historyBytes.Add(v.Size())
	s.historyWritten.Add(v.Size())
	if v.RequestID != ([proto.RequestIDSize]byte{}) {
		s.requests[v.RequestID] = v.Revision
	}
	s.rules.note(t, v.Revision)
	s.touch(t)
}

// touch has the next Publish show the table's keys.
func (s *State) touch(t *Table) {
	if (t.keysDirty || t.deadDirty) && !t.touched {
		t.touched = true
		s.touched = append(s.touched, t)
	}
}

// compact moves the floor and returns the revisions that became unreachable.
func (s *State) compact(floor proto.Revision) []proto.Revision {
	done := s.Floor()
	if floor <= done {
		return nil
	}
	// First the floor, then the cuts: see the package comment.
	s.floor.Store(uint64(floor))
	var removed []proto.Revision
	for _, t := range s.Tables() {
		t.hist.trim(done, floor, func(v *Version) {
			s.historyVersions.Add(-1)
			s.historyBytes.Add(-v.Size())
			if s.requests[v.RequestID] == v.Revision {
				delete(s.requests, v.RequestID)
			}
			if p := v.prev.Swap(nil); p != nil {
				removed = append(removed, p.Revision)
			}
			if it, newest := t.newest(v.Key); v.Deleted && newest == v {
				t.keys.Delete(it)
				t.dead.Delete(it)
				t.keysDirty, t.deadDirty = true, true
				removed = append(removed, v.Revision)
			}
		})
		if t.keys.Len() == 0 {
			s.emptied = append(s.emptied, t)
		}
		s.touch(t)
	}
	s.unpacked.drop(floor)
	// Tables come in no order; what Apply returns must not depend on that.
	slices.Sort(removed)
	return removed
}
