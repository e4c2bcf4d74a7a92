package disk

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// exchange gives two files each other's names. Error: errUnsupported.
func exchange(dir, a, b string) error {
	a, b = filepath.Join(dir, a), filepath.Join(dir, b)
	switch err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE); {
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS):
		return errUnsupported
	default:
		return os.NewSyscallError("renameat2", err)
	}
}
