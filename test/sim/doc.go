// Package sim runs whole clusters in virtual time and does faults to them.
//
// A seed chooses a profile (nodes, timings, limits, which faults are favoured),
// then Run plays it in one testing/synctest bubble: nodes start, clients and
// watchers work, a nemesis does faults, everything is healed, and all nodes must
// come to the same state. What clients saw becomes a history.History, which package
// check judges. The run itself watches Raft: one leader per term, one vote per node and
// term, no vote for a candidate that lacks what the voter has applied, one content and
// one state per index. Replay a seed with
//
//	go test ./test/sim -run TestChaos -seed N -v        (-logs for what nodes log)
//
// The faults and operations follow from the seed. How goroutines of one instant
// interleave does not: Go's scheduler decides. A seed that failed may pass when it
// is played again; play it several times. What it left (the history) stays.
//
// Batches are longer than the logs of most runs. Where they are not (profile "behind"),
// machines stay away until the log that they need is gone, lead when they are back, and
// others come from even further behind.
//
// # What is real
//
// raftstore.Store with its disk code (raft.db, raft-log, state.db, snapshots, on files in
// memory), peer.Transport, the Peer service over gRPC, consistency.Reader, and
// apiserver.Server with its codecs, selectors, bookmarks and continue tokens.
// Backups are restored by disk.RestoreBackup.
//
// # What is modelled
//
//   - The network: byte streams with delays per link. A cut holds bytes back; when it
//     heals they arrive after a retransmission, or the connection was given up; half of
//     the cuts break connections at once and fail new ones, as a router does. A lost
//     segment arrives 200 or 400 ms later, a broken connection breaks for both ends.
//     Connections to a process that has ended are refused, those to a machine that is
//     off are silent. A firewall may drop or refuse new connections to a machine while
//     its own go out, and those that are open go on. Machines come back with another
//     address, also with one that was another machine's; a dial finds out whom it has
//     reached, as over TLS. Inside a stream nothing is doubled or swapped; Raft's messages
//     are sent twice by the transport's wrapper, the second time late and on a stream
//     of its own.
//   - The disk: each durable change passes disk.CommitFunc, which takes time, fails,
//     or is cut by a crash. A crash ends the process for everybody else first. Its
//     next start finds every change whose commit had returned; of one under way all,
//     nothing, or (in bbolt's files) some data pages without the meta page. Changes
//     that are a rename are there or not. A log can be gone or an old copy; then the
//     process must not start, and the machine is removed.
//   - The end of a process by itself: what calls Config.Fatal goes on as a ghost that
//     reaches nobody, on a directory that nobody reads.
//   - A stopped process (pause): nothing leaves it, nothing reaches it, and its disk
//     stands still; bytes wait in buffers. Its timers run on, so its leadership ends in
//     the pause. What a stopped leader does that still believes in itself is modelled by
//     machines with slow timers instead: twenty times the election timeout and lease.
//   - The membership manager: changes are made by calls of the store, those of addresses
//     too.
//   - Clients: they call the handler; their links never fail. Those that change rules, and
//     those whose writes rules decide on, stand for nodes that authorize and admit: they take
//     their decisions by the state of a node, and propose to its store.
//
// # What is not here
//
// TLS and peer.Host, TCP's own behaviour, HTTP, clocks that jump, damaged files,
// loss of unsynced bytes below the granularity of a commit. Tests of those are
// elsewhere (raftstore/disk, raftstore/peer, test/chaos).
//
// # Caveats
//
// Virtual time does not pass while a goroutine of the bubble waits for a
// sync.Mutex. Nothing under test may let time pass under one, and a connection must
// not fail in a way that makes its user try again in the same instant. Both would
// hang the bubble in real time; the test ends itself then and says where.
package sim
