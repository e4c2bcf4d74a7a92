package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/disk"
)

// backupFile is the backup of a node without objects.
func backupFile(t *testing.T) string {
	t.Helper()
	db, err := disk.Open(t.TempDir(), disk.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var b bytes.Buffer
	if _, err := db.WriteSnapshot(&b); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "backup")
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestRestore makes a data directory, also below directories that are not there
// yet, and leaves nothing else behind.
func TestRestore(t *testing.T) {
	parent := filepath.Join(t.TempDir(), "a", "b")
	dir := filepath.Join(parent, "n1")
	out := runCommand(t, "snapshot", "restore", backupFile(t), "--data-dir", dir, "--name", "n7", "--peer-advertise-address", "10.0.0.1:7443")
	for _, want := range []string{"--data-dir " + dir, "--name n7", "--peer-advertise-address 10.0.0.1:7443", "--token-file"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in the next step:\n%s", want, out)
		}
	}
	for _, file := range []string{"node.json", "state.db"} {
		info, err := os.Stat(filepath.Join(dir, file))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, want mode 0600 (%v)", file, info, err)
		}
	}
	if entries, err := os.ReadDir(parent); err != nil || len(entries) != 1 {
		t.Errorf("%v is left beside the directory (%v)", entries, err)
	}
}

// TestRestoreRefuses: a directory with anything in it is not touched, and a
// damaged backup makes no directory that a node would start from.
func TestRestoreRefuses(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "mine"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := restore{dir: dir, name: "n1", peerAddress: "127.0.0.1:7443"}
	if _, err := r.run(backupFile(t)); !errors.Is(err, disk.ErrNotEmpty) {
		t.Errorf("got %v", err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("the directory has %v", entries)
	}

	whole, err := os.ReadFile(backupFile(t))
	if err != nil {
		t.Fatal(err)
	}
	torn := filepath.Join(t.TempDir(), "torn")
	if err := os.WriteFile(torn, whole[:len(whole)-1], 0o600); err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(t.TempDir(), "n1")
	r.dir = dir
	if _, err := r.run(torn); err == nil {
		t.Error("a torn backup was restored")
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 0 {
		t.Errorf("%v was made of a torn backup", entries)
	}
	if _, err := tryCommand(t, "snapshot", "verify", torn); err == nil {
		t.Error("a torn backup is said to be whole")
	}
}

// TestRestoreSaysWhereItBegins: the revision is on standard output, and why.
func TestRestoreSaysWhereItBegins(t *testing.T) {
	file := backupFile(t)
	for name, c := range map[string]struct{ flag, want string }{
		"by the clock": {"", "where this machine's clock says"},
		"by hand":      {"--bump-revision=7000000000", "at revision 7000000000\n"},
	} {
		t.Run(name, func(t *testing.T) {
			args := []string{"snapshot", "restore", file, "--data-dir", filepath.Join(t.TempDir(), "n1")}
			if c.flag != "" {
				args = append(args, c.flag)
			}
			if out := runCommand(t, args...); !strings.Contains(out, c.want) {
				t.Errorf("%q is not in\n%s", c.want, out)
			}
		})
	}
	if _, err := tryCommand(t, "snapshot", "restore", file, "--data-dir", filepath.Join(t.TempDir(), "n1"), "--bump-revision", "9007199254740992"); !errors.Is(err, disk.ErrTooHigh) {
		t.Errorf("a bump to above what JSON numbers hold: %v", err)
	}
	for why, want := range map[disk.Why]string{disk.ByClock: "clock says", disk.BehindBackup: "ahead of this machine's clock", disk.ByBump: "--bump-revision adds 5"} {
		if got := beginning(disk.Restored{State: &proto.StateRecord{Applied: 12}, Backup: 7, Why: why}); !strings.Contains(got, want) {
			t.Errorf("%d: %s", why, got)
		}
	}
}

func TestInspectAndVerify(t *testing.T) {
	file := backupFile(t)
	if out := runCommand(t, "snapshot", "verify", file); !strings.Contains(out, "is whole") {
		t.Errorf("verify says %s", out)
	}
	if out := runCommand(t, "snapshot", "inspect", file); !strings.Contains(out, "revision:") {
		t.Errorf("inspect says %s", out)
	}
}
