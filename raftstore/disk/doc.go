// Package disk is everything durable of a node's store: the state database, the
// snapshots, the Raft log, and backup files.
//
// A data directory:
//
//	state.db             the state machine as of its applied index; the data of every local snapshot
//	state.db.incoming    a snapshot from the leader, complete and verified, not restored yet
//	snapshot.meta        index, term and configuration of the newest snapshot
//	snapshot.meta.spare  room for the next one; never read
//	raft.db              Raft's term and vote, and the number of the log's newest segment
//	raft-log             the log's entries, in segments (package wal)
//	restoring            a backup is being restored here, or was: no node starts from it
//	recovering           the files of a recovery are changing places: no node starts from it
//	recovery.new         the new files of a recovery, until they have their places
//	before-recovery      what a recovery has replaced
//	state-differs.json   the state was found to be wrong (package membership): no recovery without a word for it
//	state.db.new         a compact copy of state.db, or the first one, unfinished
//	probe.tmp            only for a moment: whether a file system is read-only
//	*.new *.receiving *.tmp   unfinished; removed at the next start
//
// Every file gets its name by a rename when it is complete and synced, and the
// directory is synced behind that. snapshot.meta exchanges its name with the spare, where that can be done. A kill between any two steps leaves the old
// state or the new one.
//
// state.db and state.db.incoming are bbolt files. Integers are big-endian,
// checksums are CRC32C of what stands before them, records are framed as in
// package proto:
//
//	bucket versions   revision (8)  ->  | VersionRecord ...        | sum (4) |
//	bucket meta       "format"      ->  | 1                        | sum (4) |
//	                  "state"       ->  | StateRecord ...          | sum (4) |
//	                  "totals"      ->  | count 8 | bytes 8 | sums 8 | sum (4) |
//
// A flush writes records, removals, state and totals in one transaction. totals
// cover all records (their number, their length, and the sum of their
// checksums), so that a file whose tree has lost or mixed pages does not load,
// and the exact size of a stream is known before its first byte.
//
// A snapshot stream, which is also the format of a backup file:
//
//	| 1 | "QUORATE"                                   |  preamble; the first byte is the version
//	| length 4 | sum 4 | StateRecord ...              |  header; its versions field counts the records
//	| length 4 | sum 4 | Backup ...                   |  in backups: when, where and by what it was taken
//	| length 4 | sum 4 | VersionRecord ...            |  revisions ascend, history included
//	  ...
//	| 0 (4) | count 8 | digest 8 | sum of these 20: 4 |  trailer, and nothing behind it
//
// The digest is XXH64 of the preamble and of every frame's length and sum: it
// binds the frames to each other, the sums bind what is in them. A reader skips
// records whose kind is ignorable (see package proto) and unknown, and unknown fields
// of Backup: both are for people. Everything else that it does not know ends it.
//
// snapshot.meta:
//
//	| 1 | "QUOMETA" | length 4 | JSON ... | sum (4) |
//
// raft.db is a file of raft-boltdb, which is bbolt's as well. Its bucket logs is empty. Its bucket conf
// has one key, quorate, with a record of all pairs, ordered by key:
//
//	format (4, big-endian)  {length (uvarint) key  length (uvarint) value}...  CRC-32C of all before it (4)
//
// Format 2 says that raft-log may have segments of format 2; else it is as format 1. A start writes the
// newest format before it makes a segment, so a release that does not know it ends with a clear error.
//
// A new log is made before raft.db gets its name: first the empty raft-log, then raft.db.
// A raft.db without raft-log, an empty raft.db, and entries without raft.db are ErrLogLost.
//
// # How a snapshot is installed
//
//  1. The stream is verified and parsed, once, into state.db.receiving and into a state in
//     memory; the file is synced and renamed to state.db.incoming.
//  2. snapshot.meta is written.
//  3. Restore takes that state (a process that has not received it itself loads and verifies
//     state.db.incoming as a whole), and renames the file to state.db. Streams of the old file
//     go on until they are closed.
//
// A kill before 2 leaves a file that nothing refers to: the next start removes
// it. A kill between 2 and 3 leaves a meta above the state: the next start finds
// NeedsRestore and does 3. snapshot.meta keeps the applied index that the data
// must at least have ("DataIndex"); a state below it without a file to restore
// from is ErrBehind. It is not the snapshot's index, because Raft counts
// entries that the state machine never sees.
//
// # Caveats
//
// Any error of a write or a sync of state.db, raft.db or raft-log ends the process
// through Fatal: after a failed sync nobody knows what is on disk. The receipt
// of a snapshot may fail without that; it touches neither. And a flush that finds no
// room for its pages waits for it (ErrNoRoom): it has not begun, the file is as it was, and
// the log has the pending changes.
package disk
