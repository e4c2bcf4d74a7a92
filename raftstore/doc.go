// Package raftstore is the replicated, revisioned, watchable store of opaque
// bytes: package mvcc's state machine behind hashicorp/raft.
//
// The types to know:
//
//   - Store is one node's part: it proposes writes (forwarding to the leader),
//     answers reads from its own state, and knows how to make them linearizable.
//   - watch.Watcher is a position in a table's history that is told when to look.
//
// Every proposal carries a request id that is replicated with it, so that a
// proposal whose answer was lost can be sent again: it takes effect once.
//
// Where what is:
//
//   - a write: propose.go, batch.go, package exchange (to the leader), serve.go (at the leader),
//     fsm.go (applied), wait.go; compact.go moves the floor
//   - a read: package readindex
//   - who leads: leader.go, package failover, offer.go; Raft sends by package replication
//   - disks that are full: diskspace.go, snapshotroom.go
//   - directories that were put back: compare.go, acknowledged.go
//   - members and versions: members.go, features.go
//   - a log and a snapshot that disagree: deadentries.go, logcheck.go
//
// Read DESIGN.md beside this file before changing the read path, the
// transport or anything that counts indexes.
package raftstore
