//go:build invariants

package mvcc

// Invariants says that the one that applies entries calls CheckSome after every batch.
const Invariants = true
