package proto

import "strconv"

// Revision is a resourceVersion: the index of the log entry that wrote an
// object. Revisions are comparable over all tables and all nodes. Zero stands
// for "no revision".
type Revision uint64

// String returns the decimal form that clients see.
func (r Revision) String() string { return strconv.FormatUint(uint64(r), 10) }

// RaftIndex is a position in the Raft log. Every Revision is a RaftIndex, but
// configuration entries, no-ops and refused writes have indexes that no object
// carries.
type RaftIndex uint64

// Term is a Raft term.
type Term uint64

// NodeID identifies a node for ever: random, kept on disk, never reused after a
// disk was wiped. Names and addresses may change; a NodeID does not.
type NodeID string

// ClusterID identifies a cluster and changes with every restore from a backup.
type ClusterID string

// Flags of a version. They are on disk: do not renumber.
const (
	// FlagTerminating marks a version whose object is being deleted; a Guard on
	// it refuses the write.
	FlagTerminating uint32 = 1 << 0
)

// RequestIDSize is the length of Write.request_id.
const RequestIDSize = 16

// MaxEntryBytes bounds a framed log entry. Upstream's store takes 1.5 MiB.
const MaxEntryBytes = 3 << 19
