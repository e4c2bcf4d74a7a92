//go:build !invariants

package mvcc

// Invariants says that whoever applies entries calls Check after every batch. Build
// with the tag invariants to turn it on.
const Invariants = false
