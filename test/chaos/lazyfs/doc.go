// Package lazyfs is a disk for tests: a FUSE file system that keeps what was
// written and what was synced apart, so that a power cut can take away all that
// was not. It can also be slow, hang, fail and be full.
//
// The model is the strict reading of POSIX: fsync of a file makes its content
// and size durable, fsync of a directory the names in it, and nothing else
// makes anything durable. A power cut loses each unsynced 512-byte sector, or
// keeps it: disks write back in any order.
//
// Everything is in memory. A Disk outlives its mounts: unmount, PowerCut, mount
// again is what a machine without current does.
package lazyfs
