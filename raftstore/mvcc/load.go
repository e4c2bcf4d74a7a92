package mvcc

import (
	"fmt"

	"github.com/quorate/quorate/proto"
)

// LoadState begins to fill an empty state from stored records. The state's own
// record comes first, then every version in ascending revision order, then
// Publish.
func (s *State) LoadState(r *proto.StateRecord) error {
	if s.now.Applied != 0 {
		return fmt.Errorf("load into a state at %d: %w", s.now.Applied, ErrOrder)
	}
	if unknownFields(r) {
		return fmt.Errorf("load the state at %d: it has a field that this release does not know: %w", r.Applied, proto.ErrUnknownKind)
	}
	if r.Floor > r.Applied {
		// No revision could be read, and a read of the newest one would be tried again for ever.
		return fmt.Errorf("load the state at %d: its floor is %d: %w", r.Applied, r.Floor, ErrOrder)
	}
	s.now = Mark{
		Applied: proto.Revision(r.Applied),
		Term:    proto.Term(r.AppliedTerm),
		Hash:    r.Hash,
		Cluster: proto.ClusterID(r.ClusterId),
		Feature: r.FeatureVersion,

		StorageBytes: int64(min(r.StorageBytes, mostStorage)),
	}
	s.floor.Store(r.Floor)
	s.ledger.loading = true
	return nil
}

// LoadVersion adds one stored version.
func (s *State) LoadVersion(r *proto.VersionRecord) error {
	if unknownFields(r) || unknownAttributes(r.Labels) || unknownAttributes(r.Fields) || !knownCharge(r.Usage, r.Limits) {
		return fmt.Errorf("load revision %d: it has a field that this release does not know: %w", r.Revision, proto.ErrUnknownKind)
	}
	v := versionOf(r)
	if v.Revision == 0 || v.Revision > s.now.Applied || v.CreateRevision > v.Revision {
		return fmt.Errorf("load revision %d into a state at %d: %w", v.Revision, s.now.Applied, ErrOrder)
	}
	t := s.table(r.Table)
	it, old := t.newest(v.Key)
	if old != nil && old.Revision >= v.Revision {
		return fmt.Errorf("load %s %s at %d after %d: %w", r.Table, v.Key, v.Revision, old.Revision, ErrOrder)
	}
	s.describe(v, r.Key, r.Uid, r.Labels, r.Fields, old)
	if v.Revision > s.Floor() {
		if old == nil && v.CreateRevision != v.Revision {
			return fmt.Errorf("load %s %s at %d: the version before it is missing: %w", r.Table, v.Key, v.Revision, ErrOrder)
		}
		s.add(t, it, v)
		return nil
	}
	// At or below the floor a key has one version. It is a tombstone if a later
	// version, above the floor, holds it.
	if old != nil {
		return fmt.Errorf("load %s %s at %d: superseded at or below the floor %d: %w", r.Table, v.Key, v.Revision, s.Floor(), ErrOrder)
	}
	t.link(nil, v)
	s.settle(t, nil, v)
	s.touch(t)
	return nil
}

// StateRecord returns the record of the published state. Versions is not set.
func (s *State) StateRecord() *proto.StateRecord {
	m := s.Mark()
	return &proto.StateRecord{
		Applied:        uint64(m.Applied),
		AppliedTerm:    uint64(m.Term),
		Floor:          uint64(s.Floor()),
		Hash:           m.Hash,
		ClusterId:      string(m.Cluster),
		FeatureVersion: m.Feature,
		StorageBytes:   uint64(m.StorageBytes),
	}
}

// Record returns the stored form of a version. Its slices are shared.
func (v *Version) Record(table string) *proto.VersionRecord {
	r := &proto.VersionRecord{
		Revision:       uint64(v.Revision),
		CreateRevision: uint64(v.CreateRevision),
		Table:          table,
		Key:            v.Key,
		Deleted:        v.Deleted,
		Value:          v.Value(),
		RevisionOffset: v.RevisionOffset,
		Uid:            v.UID,
		Labels:         v.Labels.records(),
		Fields:         v.Fields.records(),
		Flags:          v.Flags,
	}
	r.Usage, r.Limits = v.charge.record()
	if v.RequestID != ([proto.RequestIDSize]byte{}) {
		r.RequestId = v.RequestID[:]
	}
	return r
}

// versionOf is what a record has but for the names of the object, which describe sets.
func versionOf(r *proto.VersionRecord) *Version {
	v := &Version{
		Key:            r.Key,
		Revision:       proto.Revision(r.Revision),
		CreateRevision: proto.Revision(r.CreateRevision),
		Deleted:        r.Deleted,
		Flags:          r.Flags,
		RevisionOffset: r.RevisionOffset,
		charge:         chargeOf(r.Usage, r.Limits),
	}
	copy(v.RequestID[:], r.RequestId)
	return v.SetValue(r.Value)
}
