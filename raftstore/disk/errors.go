package disk

import (
	"errors"

	"github.com/quorate/quorate/raftstore/wal"
)

// KeepDirectory says what to do with the directory of a node that has applied what the cluster does not have. If
// another node's directory was put back to an older copy, or its disk lost writes, this one may be the only
// place of acknowledged writes.
const KeepDirectory = "entries are here that the cluster does not have, and either may be right: keep this directory. " +
	"Copy it ('cp -a DATA-DIR COPY'), see what the copy holds ('quorate recover --data-dir COPY --inspect') and whether another member has lost entries " +
	"('quorate member list'), and compare with the cluster. Only then remove this member and let the node join again with an empty directory"

var (
	// ErrDamaged is returned when bytes on disk or in a stream are not what was
	// written: a checksum, a count, an order or a format does not hold. Nothing
	// of them has been used. The log's segments have the same error.
	ErrDamaged = wal.ErrDamaged
	// ErrBehind is returned when state.db is older than the snapshot that the
	// Raft log was cut behind: entries in between are gone. The node has to be
	// replaced.
	ErrBehind = errors.New("state.db is older than the newest snapshot")
	// ErrLogLost is returned when raft.db or raft-log is gone or an old copy: the term,
	// the vote or entries that this node has helped to commit are forgotten. The node
	// has to be replaced.
	ErrLogLost = errors.New("the Raft log was lost or put back from an old copy")
	// ErrAppliedCut is passed to Fatal when entries that this node has applied are to be
	// cut off the end of its log: what it has applied is not what the cluster has now.
	ErrAppliedCut = errors.New("applied entries are to be cut off the log: this node's state is not a state of the cluster: " + KeepDirectory)
	// ErrHungDisk is passed to Fatal when a write of the Raft log does not return.
	ErrHungDisk = errors.New("hung disk: a log write does not return")
	// ErrNoRoom is returned for a change for which the disk has no room, or which it does not take because it is read-only.
	// Nothing of it is left. The log has the same error.
	ErrNoRoom = wal.ErrNoRoom
	// ErrEndRefused is passed to Fatal when the disk has no room for entries that take the place of others, which are cut already, or for a
	// change of members that this node leads: see Log.forgets.
	ErrEndRefused = errors.New("the disk has no room for what Raft counts on: start again, nothing is lost")
	// ErrClosed is returned after Close, or when a snapshot was cancelled.
	ErrClosed = errors.New("closed")
	// ErrNoSnapshot is returned for a snapshot that is not, or no longer, there.
	ErrNoSnapshot = errors.New("no such snapshot")
	// ErrLate is returned for a snapshot that the node has left behind.
	ErrLate = errors.New("the snapshot came late")
	// ErrNotEmpty is returned when a backup is to be restored into a directory
	// that has something in it.
	ErrNotEmpty = errors.New("the directory is not empty")
	// ErrUnfinished is returned for a directory in which the restore of a backup
	// was interrupted.
	ErrUnfinished = errors.New("the restore of a backup into this directory did not finish; empty it and restore the backup again")
	// ErrNewer is returned for a backup of a cluster that speaks a newer feature version
	// than this release supports.
	ErrNewer = errors.New("the backup is of a newer release: restore it with that one")
	// errNotBackup is an ErrDamaged: the file is another kind of file.
	errNotBackup error = notBackup{}
	// ErrTooLarge is returned for a record beyond maxRecord.
	ErrTooLarge = errors.New("record is too large")
)

type notBackup struct{}

func (notBackup) Error() string { return "this is not a Quorate backup: it does not begin as one" }
func (notBackup) Unwrap() error { return ErrDamaged }
