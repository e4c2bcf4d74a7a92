// Package watch tells those who watch the state that there is something for them.
//
// The types to know:
//
//   - Hub looks who is interested in what was applied. It is the only one that knows
//     all watchers.
//   - Watcher is a position in the history of one table, and what concerns it there
//     (mvcc.Interest). It has no queue: it reads the history.
//
// It knows the state machine and nothing of logs and disks: the one that applies entries
// calls Hub.Published after the state's Publish, and Hub.Replace when a snapshot has
// brought another state. Why nothing is missed is said at Hub, and in ../DESIGN.md.
package watch
