// Package memdir is for tests: temporary directories in memory. A sync of a real disk takes
// milliseconds, and more beside other work; tests of databases make thousands of syncs, and
// none of them can tell whether a disk kept its word.
package memdir

import (
	"flag"
	"fmt"
	"os"
	"syscall"
	"testing"
)

const (
	// inMemory is where Linux has a tmpfs for everybody.
	inMemory = "/dev/shm"
	// enough is what must be free there. Containers often have 64 MiB, which is too little for
	// the tests of a package.
	enough = 512 << 20
)

// Main runs the tests of a package, for TestMain. Their temporary directories are in memory,
// if there is room, and if TMPDIR does not name another place. Benchmarks stay on the disk:
// they measure it.
func Main(m *testing.M) int {
	flag.Parse()
	if flag.Lookup("test.bench").Value.String() != "" {
		return m.Run()
	}
	dir := find(inMemory)
	if dir == "" {
		return m.Run()
	}
	defer os.RemoveAll(dir)
	if err := os.Setenv("TMPDIR", dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// find makes a directory in a file system that is in memory. It returns "" if there is none,
// or if TMPDIR is set: then it was chosen by hand, or by the process that started this one.
func find(where string) string {
	var fs syscall.Statfs_t
	if os.Getenv("TMPDIR") != "" || syscall.Statfs(where, &fs) != nil || fs.Bavail*uint64(fs.Bsize) < enough {
		return ""
	}
	dir, err := os.MkdirTemp(where, "quorate-test-")
	if err != nil {
		return ""
	}
	return dir
}
