// Package controllers is what the leader's node does because a cluster without a
// controller manager would be stuck without it.
//
// The types to know:
//
//   - Manager runs the controllers of a node while it leads: table.go has a row for each,
//     run.go starts it again when it has failed, and counts that.
//   - Name is what --controllers, the log and the metrics call a controller; Select reads
//     such a list.
//
// Each controller is a file with a struct that has what it needs, and its loop, the method run.
// They change objects as requests do, by operations of package objects. Each is idempotent and does no harm if two nodes run
// it for a moment.
//
// DESIGN.md says how garbage is found, and what can be switched off.
package controllers
