package commands

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
)

// TestWritable: where a credential cannot be kept, none is asked for, and the message names what was typed.
// What is no regular file stays what it is, and links are not followed.
func TestWritable(t *testing.T) {
	dir := t.TempDir()
	mine, link, pipe, socket := filepath.Join(dir, "mine"), filepath.Join(dir, "link"), filepath.Join(dir, "pipe"), filepath.Join(dir, "socket")
	for _, err := range []error{os.WriteFile(mine, []byte("mine"), 0o644), os.Symlink(mine, link), syscall.Mkfifo(pipe, 0o600)} {
		must.OK(t, err)
	}
	l, err := net.Listen("unix", socket)
	must.OK(t, err)
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
	must.OK(t, err)
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

// TestKubeconfigInUse: the kubeconfig in use is not replaced by that of somebody else, whatever its file is
// called; one's own is renewed.
func TestKubeconfigInUse(t *testing.T) {
	for _, x := range []struct {
		name    string
		args    []string
		refused bool
	}{
		{"another user", []string{"--user", "bob"}, true},
		{"the same user without its groups", []string{"--user", "admin"}, true},
		{"the same user in the same groups", []string{"--user", "admin", "--group", "system:other", "--group", "ops"}, false},
		{"renewed", nil, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			f := newFakeAPI(t)
			file := f.kubeconfig("admin", "ops", "system:other")
			before, err := os.ReadFile(file)
			must.OK(t, err)
			link := filepath.Join(t.TempDir(), "link")
			must.OK(t, os.Symlink(file, link))
			for _, inUse := range []string{file, filepath.Dir(file) + "/./in-use", link} {
				t.Setenv("KUBECONFIG", inUse)
				_, err := tryCommand(t, append([]string{"kubeconfig", "--to", file}, x.args...)...)
				after, failed := os.ReadFile(file)
				must.OK(t, failed)
				if !x.refused {
					if err != nil || len(x.args) > 0 && string(after) == string(before) {
						t.Errorf("%s: %v", inUse, err)
					}
					continue
				}
				if err == nil || !strings.Contains(err.Error(), "--to: "+file+" is the kubeconfig in use, and its credential of user admin in ops and system:other would be gone") {
					t.Errorf("%s: %v", inUse, err)
				}
				if string(after) != string(before) || f.wasAsked("POST") {
					t.Errorf("%s: it was asked %v, and the file is\n%s", inUse, f.asked, after)
				}
			}
			t.Setenv("KUBECONFIG", file)
			if _, err := tryCommand(t, append([]string{"kubeconfig", "--to", filepath.Join(t.TempDir(), "other")}, x.args...)...); err != nil {
				t.Errorf("another file: %v", err)
			}
		})
	}
}

// TestExpiresIn: what is too short is refused in the words of the help, and what was signed for less than
// asked for is said, with the end.
func TestExpiresIn(t *testing.T) {
	f := newFakeAPI(t)
	inUse := f.kubeconfig("admin", "system:masters")
	file := filepath.Join(t.TempDir(), "bob")
	for _, x := range []struct {
		args  []string
		want  string // in the error
		valid time.Duration
		less  bool
	}{
		{[]string{"--expires-in", "0"}, "--expires-in 0s: must be 10m or more", 0, false},
		{[]string{"--expires-in", "-1h"}, "--expires-in -1h0m0s: must be 10m or more", 0, false},
		{[]string{"--expires-in", "9m59s"}, "--expires-in 9m59s: must be 10m or more", 0, false},
		{nil, "", f.signs, false},
		{[]string{"--expires-in", "10m"}, "", 10 * time.Minute, false},
		{[]string{"--expires-in", "8760h"}, "", f.signs, false},
		{[]string{"--expires-in", "100000h"}, "", f.signs, true},
		{[]string{"--expires-in", "1000000h"}, "", f.signs, true},
	} {
		began := time.Now()
		out, err := tryCommand(t, append([]string{"kubeconfig", "--kubeconfig", inUse, "--user", "bob", "--group", "ops", "--to", file}, x.args...)...)
		if x.want != "" {
			if err == nil || !strings.Contains(err.Error(), x.want) {
				t.Errorf("%v: %v, want %s", x.args, err, x.want)
			}
			continue
		}
		rest, ok := strings.CutPrefix(out, "written "+file+": user bob in ops, valid until ")
		if err != nil || !ok || len(rest) < len(time.DateTime) {
			t.Errorf("%v: %v: %s", x.args, err, out)
			continue
		}
		end, err := time.ParseInLocation(time.DateTime, rest[:len(time.DateTime)], time.Local)
		if off := end.Sub(began.Add(x.valid)); err != nil || off.Abs() > 10*time.Second {
			t.Errorf("%v: it ends %s off: %v: %s", x.args, off, err, out)
		}
		if less := strings.Contains(rest, ", not for 1000") && strings.Contains(rest, "--cluster-signing-duration"); less != x.less {
			t.Errorf("%v: it is said that it is less: %v: %s", x.args, less, out)
		}
	}
	if out, err := tryCommand(t, "kubeconfig", "--kubeconfig", inUse, "--user", "bob"); err != nil || !strings.Contains(out, "\nuser bob, valid until ") {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := tryCommand(t, "kubeconfig", "--kubeconfig", inUse); err != nil || strings.Contains(out, "valid until") {
		t.Errorf("an administrator's own: %v: %s", err, out)
	}
	if out, err := tryCommand(t, "kubeconfig", "--kubeconfig", inUse, "--expires-in", "0"); err == nil || !strings.Contains(err.Error(), "are for --user") {
		t.Errorf("without --user: %v: %s", err, out)
	}
	if help := runCommand(t, "kubeconfig", "--help"); !strings.Contains(strings.Join(strings.Fields(help), " "), "to be valid, 10m or more") {
		t.Errorf("help says\n%s", help)
	}
}

// TestNames: a name that looks like another one is none, and the error says by which flag it came.
func TestNames(t *testing.T) {
	f := newFakeAPI(t)
	inUse, file := f.kubeconfig("admin"), filepath.Join(t.TempDir(), "x")
	for _, flag := range []string{"--user", "--group"} {
		for _, name := range []string{"", " ", " bob", "bob ", "bob\t", "bob\u00a0", "b\x00b", "b\u0085b", "b\u200bb", "b\u202eb", "b\xffb", strings.Repeat("b", 254)} {
			args := []string{"kubeconfig", "--kubeconfig", inUse, "--to", file, flag, name}
			if flag == "--group" {
				args = append(args, "--user", "bob")
			}
			if out, err := tryCommand(t, args...); err == nil || !strings.Contains(err.Error(), flag) {
				t.Errorf("%s %q: %v: %s", flag, name, err, out)
			}
		}
	}
	if f.wasAsked("") {
		t.Errorf("it was asked %v", f.asked)
	}
	if out, err := tryCommand(t, "kubeconfig", "--kubeconfig", inUse, "--to", file, "--user", "Łukasz Ω", "--group", "on call"); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// TestWithdrawn: a request for a certificate that its maker may not approve does not stay, or is named.
func TestWithdrawn(t *testing.T) {
	for _, kept := range []bool{false, true} {
		f := newFakeAPI(t)
		f.refuse("PUT "+requestsPath, http.StatusForbidden, "Forbidden", "may not approve")
		want := ", which is deleted again: may not approve"
		if kept {
			f.refuse("DELETE "+requestsPath, http.StatusForbidden, "Forbidden", "may not delete")
			want = ", which is still there (kubectl delete csr): may not approve"
		}
		file := filepath.Join(t.TempDir(), "x")
		_, err := tryCommand(t, "kubeconfig", "--kubeconfig", f.kubeconfig("admin"), "--user", "bob", "--to", file)
		if err == nil || !strings.Contains(err.Error(), "approve the request quorate-kubeconfig-") || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if !f.wasAsked("DELETE " + requestsPath + "/quorate-kubeconfig-") {
			t.Errorf("it was asked %v", f.asked)
		}
		if !kept && f.csr.Name != "" {
			t.Errorf("%s is still there", f.csr.Name)
		}
		if _, err := os.Lstat(file); err == nil {
			t.Error("a file was written")
		}
	}
}
