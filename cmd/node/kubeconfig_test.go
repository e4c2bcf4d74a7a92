package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestWritable: where a credential cannot be kept, none is asked for, and the message names what was typed.
// What is no regular file stays what it is, and links are not followed.
func TestWritable(t *testing.T) {
	dir := t.TempDir()
	mine, link, pipe, socket := filepath.Join(dir, "mine"), filepath.Join(dir, "link"), filepath.Join(dir, "pipe"), filepath.Join(dir, "socket")
	for _, err := range []error{os.WriteFile(mine, []byte("mine"), 0o644), os.Symlink(mine, link), syscall.Mkfifo(pipe, 0o600)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, x := range []struct{ to, why string }{
		{filepath.Join(dir, "none", "x"), "there is no directory " + filepath.Join(dir, "none")},
		{dir, dir + " is a directory: give the name of a file, such as " + filepath.Join(dir, "user.kubeconfig")},
		{"", "must not be empty"},
		{link, link + " is a symbolic link, which a kubeconfig does not replace: give the name of a regular file, or - for standard output"},
		{pipe, pipe + " is a named pipe, which"},
		{socket, socket + " is a socket, which"},
	} {
		if _, err := tryCommand(t, "kubeconfig", "--kubeconfig", "/nonexistent", "--user", "alice", "--to", x.to); err == nil || !strings.Contains(err.Error(), "--to: "+x.why) {
			t.Errorf("%s: %v", x.to, err)
		}
		if x.to == link || x.to == pipe { // one that has come meanwhile
			before, _ := os.Lstat(x.to)
			if err := writeKubeconfig(x.to, []byte("new")); err == nil {
				t.Errorf("%s was written", x.to)
			}
			if after, err := os.Lstat(x.to); err != nil || after.Mode() != before.Mode() {
				t.Errorf("%s: %v became %v, %v", x.to, before.Mode(), after, err)
			}
		}
	}
	if b, err := os.ReadFile(mine); err != nil || string(b) != "mine" {
		t.Errorf("%q %v", b, err)
	}
	others, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := writable(filepath.Join(dir, "x")); err != nil {
			t.Error(err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != len(others) {
			t.Errorf("it leaves %v, %v", left, err)
		}
	}
	// Standard output is a word of `quorate snapshot save`.
	if _, err := tryCommand(t, "kubeconfig", "--kubeconfig", "/nonexistent", "--to", "-"); err == nil || !strings.Contains(err.Error(), "there is no kubeconfig /nonexistent") {
		t.Errorf("-: %v", err)
	}
}
