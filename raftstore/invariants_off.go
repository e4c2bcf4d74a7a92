//go:build !invariants

package raftstore

// invariants makes the state machine check itself after every batch. Build with
// the tag of that name to turn it on.
const invariants = false
