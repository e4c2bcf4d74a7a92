package backup

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/disk"
)

// TestSaveLeavesOthersAlone: what is no regular file stays what it is, and links are not
// followed.
func TestSaveLeavesOthersAlone(t *testing.T) {
	db, err := disk.Open(t.TempDir(), disk.Options{})
	must.OK(t, err)
	defer db.Close()
	var whole bytes.Buffer
	if _, err := db.WriteBackup(&whole, &proto.Backup{NodeName: "n1"}); err != nil {
		t.Fatal(err)
	}
	stream, dir := whole.Bytes(), t.TempDir()
	mine, link, pipe := filepath.Join(dir, "mine"), filepath.Join(dir, "link"), filepath.Join(dir, "pipe")
	for _, err := range []error{os.WriteFile(mine, []byte("mine"), 0o644), os.Symlink(mine, link), syscall.Mkfifo(pipe, 0o600)} {
		must.OK(t, err)
	}
	for file, want := range map[string]string{
		link: "a symbolic link", pipe: "a named pipe", dir: "is a directory", "/dev/null": "a device", filepath.Join(mine, "x"): "not a directory",
	} {
		before, _ := os.Lstat(file)
		if err := CheckTarget(file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", file, err, want)
		}
		if file != "/dev/null" { // a test that fails must not harm the machine
			if _, err := Write(bytes.NewReader(stream), file); err == nil {
				t.Errorf("%s was written", file)
			}
		}
		if after, _ := os.Lstat(file); before != nil && (after == nil || after.Mode() != before.Mode()) {
			t.Errorf("%s: %v became %v", file, before.Mode(), after)
		}
	}
	if b, err := os.ReadFile(mine); err != nil || string(b) != "mine" {
		t.Errorf("%q %v", b, err)
	}
	// A regular file is replaced, with a mode of its own, once the new one is whole.
	if _, err := Write(bytes.NewReader(stream[:len(stream)-1]), mine); err == nil {
		t.Error("half a backup was kept")
	}
	if b, err := os.ReadFile(mine); err != nil || string(b) != "mine" {
		t.Errorf("half a backup: %q %v", b, err)
	}
	if _, err := Write(bytes.NewReader(stream), mine); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(mine); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 3 {
		t.Errorf("left behind: %v", entries)
	}
}

// TestTaken: what the node has said of a backup is what the backup says.
func TestTaken(t *testing.T) {
	about := proto.Backup{TakenUnixMs: 1_790_000_000_000, NodeName: "n2", NodeId: "ab", Version: "v7", Role: "follower", LastContactMs: 90_000, NotConfirmed: "no leader"}
	want := Taken{
		Time: time.Date(2026, 9, 21, 14, 13, 20, 0, time.UTC), Node: "n2", NodeID: "ab", Version: "v7", Role: "follower", LastContactMS: 90_000, NotConfirmed: "no leader",
	}
	if got := takenOf(&about); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
