package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
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

// noCopyOnWrite is FS_NOCOW_FL of linux/fs.h.
const noCopyOnWrite = 0x00800000

// WriteInPlace asks a file system that copies what is written over (btrfs) to write new files of a directory in place. A reserve would
// be worth nothing otherwise: each write over it takes room. Files that are there stay as they are; the log's are replaced in time, and state.db
// when it is copied.
func WriteInPlace(dir string) error {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil || int64(s.Type) != unix.BTRFS_SUPER_MAGIC {
		return err
	}
	for _, name := range []string{"", segmentDir} {
		d, err := os.Open(filepath.Join(dir, name))
		if errors.Is(err, os.ErrNotExist) {
			continue // it is made with what its parent has
		} else if err != nil {
			return err
		}
		flags, err := unix.IoctlGetInt(int(d.Fd()), unix.FS_IOC_GETFLAGS)
		if err == nil && flags&noCopyOnWrite == 0 {
			err = unix.IoctlSetPointerInt(int(d.Fd()), unix.FS_IOC_SETFLAGS, flags|noCopyOnWrite)
		}
		if err = errors.Join(err, d.Close()); err != nil {
			return fmt.Errorf("have files of %s written in place: %w", d.Name(), err)
		}
	}
	return nil
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
