package wal

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncData makes what was written to a file durable. Its times need not be.
func syncData(f *os.File) error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		if err != unix.EINTR {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}
