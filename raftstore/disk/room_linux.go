package disk

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// fallocate allocates a part of a file, and makes the file longer if need be. Error: errUnsupported.
func fallocate(f *os.File, from, n int64) error {
	for {
		switch err := unix.Fallocate(int(f.Fd()), 0, from, n); {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EINVAL):
			return errUnsupported
		default:
			return os.NewSyscallError("fallocate", err)
		}
	}
}

// freeBytes returns how many bytes of a file's file system are free, if that is known.
func freeBytes(f *os.File) (int64, bool) {
	var s unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &s); err != nil {
		return 0, false
	}
	return int64(s.Bavail) * int64(s.Bsize), true
}

// allocatedBytes returns how many bytes a file takes on its disk.
func allocatedBytes(info os.FileInfo) int64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return s.Blocks * 512
	}
	return 0
}
