//go:build invariants

package mvcc

// Invariants says that whoever applies entries calls Check after every batch.
const Invariants = true
