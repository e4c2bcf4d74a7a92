package kubeapiserver

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	"golang.org/x/sys/unix"
)

// TestSweep: what is swept is old and locked by nobody, also if it has no lock any more; what is young or is
// being made stays.
func TestSweep(t *testing.T) {
	for name, x := range map[string]struct {
		age          time.Duration
		lock, locked bool
		stays        bool
	}{
		"killed":                           {age: 2 * time.Minute, lock: true},
		"runs":                             {age: 2 * time.Hour, lock: true, locked: true, stays: true},
		"young":                            {age: time.Second, lock: true, stays: true},
		"being made":                       {age: time.Second, stays: true},
		"perhaps being made":               {age: 2 * time.Minute, stays: true},
		"killed when its lock was removed": {age: 2 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("TMPDIR", t.TempDir())
			dir := filepath.Join(os.TempDir(), temporaryPrefix+"1")
			must.OK(t, os.MkdirAll(filepath.Join(dir, "n1"), 0o700))
			if x.lock {
				f, err := os.Create(filepath.Join(dir, lockName))
				must.OK(t, err)
				defer f.Close()
				if x.locked {
					must.OK(t, syscall.Flock(int(f.Fd()), syscall.LOCK_EX))
				}
			}
			at := time.Now().Add(-x.age)
			must.OK(t, os.Chtimes(dir, at, at))
			sweep()
			if _, err := os.Stat(filepath.Join(dir, "n1")); errors.Is(err, fs.ErrNotExist) == x.stays {
				t.Errorf("%v, stays: %v", err, x.stays)
			}
		})
	}
}

// TestRemoveLocked: the lock is removed last. A server that is killed meanwhile leaves what the next one sweeps.
func TestRemoveLocked(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "place")
	p, err := take(&place{dir: dir, temporary: true})
	must.OK(t, err)
	for i := range 50 {
		must.OK(t, os.Mkdir(filepath.Join(dir, fmt.Sprint(i)), 0o700))
	}
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK)
	must.OK(t, err)
	defer unix.Close(fd)
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_DELETE); err != nil {
		t.Fatal(err)
	}
	must.OK(t, p.leave())
	b := make([]byte, 16<<10)
	n, err := unix.Read(fd, b)
	must.OK(t, err)
	seen := bytes.Split(b[:n], []byte(lockName+"\x00"))
	if len(seen) != 2 || bytes.Count(seen[0], []byte{0, 0, 0}) < 50 {
		t.Fatalf("%d events of the lock, and before them not those of all others: %q", len(seen)-1, b[:n])
	}
	// Behind it comes what is above it: IN_IGNORED, of 16 bytes, and the padding of its name.
	if len(seen[1]) > 32 {
		t.Errorf("%d bytes of events come behind the removal of the lock", len(seen[1]))
	}
}
