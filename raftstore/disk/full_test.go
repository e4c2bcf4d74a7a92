package disk

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"
)

// childFull writes until the disk is full. The node must say so and end, not
// go on.
func childFull(dir string) error {
	fatal := make(chan error, 1)
	db, err := Open(dir, Options{Fatal: func(err error) {
		fatal <- err
	}})
	if err != nil {
		return err
	}
	m := newModel()
	state, err := db.Load()
	if err != nil {
		return err
	}
	m.state, m.next = state, uint64(state.Applied())+1
	for {
		db.Record(m.apply(10))
		if err := db.Sync(); err != nil {
			fmt.Println("fatal", <-fatal)
			return nil
		}
		fmt.Println("durable", db.Durable())
	}
}

func enospc(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EFBIG)
}

// smallDisk returns a directory on a file system of some size. Where mounting
// is not allowed, limit makes a child's files fail at that size instead.
func smallDisk(t *testing.T, kib int) (dir string, limit bool) {
	t.Helper()
	dir = t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%dk", kib), "tmpfs", dir).CombinedOutput(); err != nil {
		t.Logf("no mount (%v: %s): a file size limit instead", err, out)
		return dir, true
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	return dir, false
}

func TestFullDisk(t *testing.T) {
	const kib = 512
	dir, limit := smallDisk(t, kib)
	cmd := child(t, "full", filepath.Join(dir, "n"))
	if limit {
		exe := cmd.Path
		cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", fmt.Sprintf("ulimit -f %d; trap '' XFSZ; exec %s", kib, exe)}
	}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "fatal") {
		t.Fatalf("%v\n%s", err, out)
	}
	var durable int
	for line := range strings.Lines(string(out)) {
		_, _ = fmt.Sscanf(line, "durable %d", &durable)
	}
	if durable < 50 {
		t.Fatalf("durable %d\n%s", durable, out)
	}
	// The file is what was last reported, on the full disk and elsewhere.
	copied := t.TempDir()
	copyFile(t, filepath.Join(dir, "n", stateFile), filepath.Join(copied, stateFile))
	db := mustOpen(t, copied, Options{})
	if s := mustLoad(t, db); int(s.Applied()) < durable {
		t.Fatalf("state at %d, %d was durable", s.Applied(), durable)
	}
	must(t, db.Close())
	if limit {
		return
	}
	db = mustOpen(t, filepath.Join(dir, "n"), Options{})
	before := mustLoad(t, db).Applied()
	if _, err := db.Receive(bytes.NewReader(backup(t, 900))); !enospc(err) {
		t.Fatalf("receive on a full disk: %v", err)
	}
	// The snapshot failed; the node and its state did not.
	if s := mustLoad(t, db); s.Applied() != before {
		t.Fatalf("state at %d, was %d", s.Applied(), before)
	}
	must(t, db.Close())
	for _, name := range fileNames(t, filepath.Join(dir, "n")) {
		if name != stateFile {
			t.Errorf("%s is left", name)
		}
	}
	if _, err := RestoreBackup(filepath.Join(dir, "r"), bytes.NewReader(backup(t, 900)), RestoreOptions{Cluster: "new", Configuration: testServers}); !enospc(err) {
		t.Fatalf("restore on a full disk: %v", err)
	}
	if _, err := OpenLog(filepath.Join(dir, "l"), LogOptions{}); !enospc(err) {
		t.Fatalf("log on a full disk: %v", err)
	}
	must(t, os.RemoveAll(filepath.Join(dir, "r")))
}

// TestFullLog fills the disk with the log. What was acknowledged is there at every start on
// the full disk, also behind an entry that was written in part, and with room the log
// goes on.
func TestFullLog(t *testing.T) {
	for name, size := range map[string]int{"small entries": 3000, "entries longer than a segment": 150_000} {
		t.Run(name, func(t *testing.T) {
			dir, limit := smallDisk(t, 2048)
			if limit {
				t.Skip("mounting is not allowed here")
			}
			var fatal error
			o := LogOptions{SegmentBytes: 64 << 10, Fatal: func(err error) { fatal = errors.Join(fatal, err) }}
			n := filepath.Join(dir, "n")
			filler := filepath.Join(dir, "filler")
			must(t, os.WriteFile(filler, make([]byte, 200<<10), fileMode))
			l, err := OpenLog(n, o)
			must(t, err)
			acked := uint64(0)
			for err == nil && acked < 10_000 {
				if err = l.StoreLogs(logs(1, acked+1, acked+2, size)); err == nil {
					acked += 2
				}
			}
			if !enospc(err) || !enospc(fatal) || acked < 4 {
				t.Fatalf("%d entries, then %v, fatal %v", acked, err, fatal)
			}
			must(t, l.Close())
			for range 2 {
				l, err = OpenLog(n, o)
				must(t, err)
				last, err := l.LastIndex()
				must(t, err)
				if last < acked || last > acked+2 {
					t.Fatalf("the log ends at %d, %d were acknowledged", last, acked)
				}
				for i := uint64(1); i <= last; i++ {
					var got raft.Log
					must(t, l.GetLog(i, &got))
				}
				acked = last
				must(t, l.Close())
			}
			must(t, os.Remove(filler))
			l, err = OpenLog(n, o)
			must(t, err)
			must(t, l.DeleteRange(1, acked-1))
			must(t, l.StoreLogs(logs(1, acked+1, acked+1, size)))
			must(t, l.Close())
		})
	}
}
