// Package mvcc is the replicated state machine: tables of keys, each key with
// its versions, each table with the history of its changes.
//
// The types to know:
//
//   - State applies log entries, in order, from one goroutine. Everything it
//     does follows from the entries alone: no clock, no random, no network, no
//     goroutine, no configuration.
//   - Table is one resource's keys and history. Readers use it from any
//     goroutine, without locks.
//   - Version is one immutable value of a key, with its Revision. How its value is kept
//     changes with its age (pack.go): Value and AppendValue say what it is.
//   - Cursor is a position in a table's history; watching is reading forward.
//   - shown is what a table shows to lists: its keys, and which of them are dead (count.go).
//
// How readers and the writer meet. A key's versions form a chain, newest first,
// and a read "as of N" takes the newest version <= N. The writer links new
// versions into chains and history, publishes changed key trees, and only then
// moves the applied mark (Publish). A reader takes the mark first, so that it
// never sees half of a batch: versions above its mark are skipped.
//
// The floor. Compact(F) makes everything that only reads below F could see
// unreachable: superseded versions whose successor is <= F, and tombstones <= F
// that are their key's newest version. (A tombstone that a later version holds goes
// when the floor passes that one.) The floor rises inside Apply, before Publish: a
// reader whose mark is below a new floor gets ErrCompacted and takes a new mark.
// Readers check the floor AFTER they have walked the chains, because the floor
// rises before a chain is cut: a walk that ends with floor <= N saw whole chains.
//
// A table without a key, and so without a history, is dropped behind a compaction, and made again when it is
// written to: who keeps one from an earlier look gets ErrCompacted of it, as for a floor that has
// passed, and looks for it again. Who follows a table by its name compares State.Latest.
//
// Rules. A write may say by which tables' content it was decided, and as of when; Apply
// refuses it if that has changed (rules.go).
//
// Limits. A version may say what its object uses, and another one how much may be used in
// its namespace; Apply keeps the sums, and refuses what would exceed them (ledger.go).
//
// Storage limit. What all live keys take together is bounded, too (space.go).
//
// One key's life. Each line is an entry, with its index or its floor, and what there is
// after it: the key's chain, newest first, and the table's history (x is a tombstone).
//
//	put 5       chain 5        history 5        floor 0
//	put 7       chain 7 5      history 5 7      floor 0
//	delete 9    chain 9x 7 5   history 5 7 9x   floor 0
//	compact 7   chain 9x 7     history 9x       floor 7
//	compact 9   no chain       no history       floor 9
//
// Until the floor is 7, a read as of 6 finds 5; then nobody may read there, and 7 lets
// go of 5. A read as of 8 finds 7 until the floor is 9. Then nothing is left that any
// reader may see, and the key leaves the tree. (TestOneKeysLife reads these lines.)
//
// Who may touch what: the writer is one goroutine, Pack another one, readers are any. Pack
// is no part of the state machine: what it does cannot be told from outside but by the memory
// that is used, so that nodes need not do it at the same time, or at all.
//
// Caveats: a value's bytes are shared with everybody and must not be written
// to. Memory of a version is freed by the garbage collector once the floor has
// passed and the last reader has let go.
package mvcc
