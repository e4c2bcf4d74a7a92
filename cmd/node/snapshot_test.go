package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
	if _, err := restoreSnapshot(backupFile(t), dir, "n1", "127.0.0.1:7443"); !errors.Is(err, disk.ErrNotEmpty) {
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
	if _, err := restoreSnapshot(torn, dir, "n1", "127.0.0.1:7443"); err == nil {
		t.Error("a torn backup was restored")
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 0 {
		t.Errorf("%v was made of a torn backup", entries)
	}
	if _, err := tryCommand(t, "snapshot", "verify", torn); err == nil {
		t.Error("a torn backup is said to be whole")
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
