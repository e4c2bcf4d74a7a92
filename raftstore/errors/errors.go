// Package errors has the errors that callers of the replicated store tell apart. It
// is a package of its own so that what only answers them, as the API does, reaches
// neither Raft nor the disk. Package raftstore has them under the same names.
package errors

import "errors"

var (
	// ErrNoLeader is returned when no leader could be reached in time and the
	// write is certainly in no log, or when a linearizable read found no quorum.
	ErrNoLeader = errors.New("no leader with a quorum is reachable")
	// ErrUnknownOutcome is returned when a write may or may not have taken effect.
	ErrUnknownOutcome = errors.New("the outcome of the write is unknown")
	// ErrOverloaded is returned when the proposals in flight exceed their bound
	// in bytes. The write is certainly in no log.
	ErrOverloaded = errors.New("too many bytes of writes in flight")
	// ErrDiskFull is returned for a write while the disks of a majority take no more entries. The write is in no log; it succeeds when
	// the log is cut, or when there is room again. It is a DiskFullError, which names the nodes.
	ErrDiskFull = errors.New("the disk is full")
	// ErrTooLarge is returned for a write above proto.MaxEntryBytes.
	ErrTooLarge = errors.New("object is too large")
	// ErrFeature is returned for a write that needs a newer feature version than the
	// cluster speaks. It is in no log. It succeeds when all members run a release that
	// supports the version.
	ErrFeature = errors.New("the cluster does not speak this feature version yet: some members run an older release")
	// ErrTooOld is returned by Open, and is fatal later, when this release supports less
	// than the cluster speaks. The remedy is the newer release; the data is sound.
	ErrTooOld = errors.New("this release is older than what the cluster speaks: install the release that the other members run")
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("store is closed")
	// ErrNotLeader is returned by calls that only a ready leader can serve.
	ErrNotLeader = errors.New("this node is not the leader")
	// ErrConfigurationChanged is returned when the membership is no longer what
	// the caller saw.
	ErrConfigurationChanged = errors.New("the cluster's configuration has changed")
)

// DiskFullError is ErrDiskFull.
type DiskFullError struct {
	// Nodes are the names of those without room. Empty: no disk is full, and writes come faster than the disks take them.
	Nodes string
}

func (e *DiskFullError) Error() string {
	if e.Nodes == "" {
		return "writes come faster than the disks take them"
	}
	return "there is no room for writes on the disks of " + e.Nodes
}

// Is reports whether target is ErrDiskFull.
func (e *DiskFullError) Is(target error) bool { return target == ErrDiskFull }
