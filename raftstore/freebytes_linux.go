package raftstore

import (
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// freeBytes is what the file system of a directory has room for, for this process; a great number if it does not say.
func freeBytes(dir string) int64 {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil || fs.Blocks == 0 {
		return math.MaxInt64 / 2
	}
	blocks := fs.Bavail
	if os.Geteuid() == 0 {
		blocks = fs.Bfree // with those that are kept for root
	}
	return int64(min(blocks, math.MaxInt64/2/uint64(fs.Bsize))) * fs.Bsize
}
