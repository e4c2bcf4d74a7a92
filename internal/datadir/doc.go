// Package datadir works on the data directory of a node that does not run: whose it is, that nobody else
// has it, and how it is made from a backup, or from a survivor.
//
// It makes an identity (package membership) and a state (package disk) that belong together: the
// two do not know each other, and neither knows the other's files.
package datadir
