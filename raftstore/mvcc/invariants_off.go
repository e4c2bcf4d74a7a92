//go:build !invariants

package mvcc

// Invariants says that the one that applies entries calls CheckSome after every batch. Build
// with the tag invariants to turn it on.
const Invariants = false
