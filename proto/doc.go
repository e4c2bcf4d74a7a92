// Package proto holds the words that nodes and logs exchange: log entries,
// state records and peer RPC (quorate.proto), the frame around what is stored
// (frame.go), and the named types that keep apart what must not mix: Revision,
// RaftIndex, Term, NodeID, ClusterID (words.go).
//
// Everything in it is versioned and append-only: a running cluster has it on
// disk. The package imports nothing of ours.
package proto

//go:generate sh generate.sh
