//go:build invariants

package raftstore

// invariants makes the state machine check itself after every batch.
const invariants = true
