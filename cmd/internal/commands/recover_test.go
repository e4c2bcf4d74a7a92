package commands

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/quorate/quorate/internal/datadir"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/disk"
)

// survivor makes the directory of one of three voters, and returns also its node id.
func survivor(t *testing.T) (dir, id string) {
	t.Helper()
	scratch := t.TempDir()
	identity, err := membership.LoadIdentity(scratch, "n1")
	must.OK(t, err)
	id = string(identity.ID())
	backup, err := os.Open(backupFile(t))
	must.OK(t, err)
	defer backup.Close()
	dir = filepath.Join(t.TempDir(), "n1")
	_, err = disk.RestoreBackup(dir, backup, disk.RestoreOptions{Cluster: "old", Configuration: raft.Configuration{Servers: []raft.Server{
		{ID: raft.ServerID(id), Address: "127.0.0.1:1"}, {ID: "b", Address: "127.0.0.1:2"}, {ID: "c", Address: "127.0.0.1:3"},
	}}})
	if err == nil {
		err = os.Rename(filepath.Join(scratch, "node.json"), filepath.Join(dir, "node.json"))
	}
	must.OK(t, err)
	return dir, id
}

// TestRecoverWrongState: a survivor whose state was found to be wrong is shown as that,
// refused, and recovered only by the flag that says so; then a node may start on it.
func TestRecoverWrongState(t *testing.T) {
	for _, c := range []struct{ name, evidence, found string }{
		{"evidence", `{"version":1,"nodeID":"NODE","name":"n1","found":"2026-06-01T00:00:00Z","index":16,"hash":"2","theirs":"1","others":[{"id":"b","name":"n2"},{"id":"c","name":"n3"}]}`,
			"at log index 16 n1 has the state hash 2, and n2, n3 agree on 1 (found 2026-06-01T00:00:00Z)"},
		{"evidence that cannot be read", "{", "what was found cannot be read"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, id := survivor(t)
			if out := runCommand(t, "recover", "--data-dir", dir, "--inspect"); strings.Contains(out, "WRONG") {
				t.Errorf("nothing is wrong yet:\n%s", out)
			}
			must.OK(t, os.WriteFile(filepath.Join(dir, "state-differs.json"), []byte(strings.ReplaceAll(c.evidence, "NODE", id)), 0o600))
			if out := runCommand(t, "recover", "--data-dir", dir, "--inspect"); !strings.Contains(out, c.found) {
				t.Errorf("inspect does not say %q:\n%s", c.found, out)
			}
			out, err := tryCommand(t, "recover", "--data-dir", dir, "--yes")
			if !errors.Is(err, disk.ErrWrongState) || !strings.Contains(err.Error(), "--accept-wrong-state") {
				t.Errorf("recovered with %v:\n%s", err, out)
			}
			if err := membership.CheckState(dir); !errors.Is(err, membership.ErrStateDiffers) {
				t.Errorf("the evidence is gone: %v", err)
			}
			runCommand(t, "recover", "--data-dir", dir, "--yes", "--accept-wrong-state")
			if err := membership.CheckState(dir); err != nil {
				t.Errorf("the recovered node does not start: %v", err)
			}
			if err := membership.CheckState(filepath.Join(dir, "before-recovery")); err == nil {
				t.Error("the evidence is not kept")
			}
		})
	}
}

// TestRecoverSaysWhereItBegins: what decided about the first revision is said.
func TestRecoverSaysWhereItBegins(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		// The survivor was itself made of a backup, so its log ends where the clock was.
		{"by the clock", nil, "the new cluster begins where this machine's clock says"},
		{"by hand", []string{"--bump-revision", "5000"}, "--bump-revision adds 5000; the clock was not asked"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, _ := survivor(t)
			out := runCommand(t, append([]string{"recover", "--data-dir", dir, "--yes"}, c.args...)...)
			saysWhichCredentialsHold(t, out, dir)
			if !strings.Contains(out, c.want) {
				t.Errorf("%q is not in\n%s", c.want, out)
			}
		})
	}
	done := disk.Recovered{Survivor: disk.Survivor{Applied: 10, LastIndex: 30}, Why: disk.BehindBackup}
	done.State = &proto.StateRecord{Applied: 130}
	if got := recoveredBeginning(done); !strings.Contains(got, "The log ends at 30, which is ahead of this machine's clock") || !strings.Contains(got, "begins 100 above it") {
		t.Errorf("ahead of the clock: %s", got)
	}
}

// TestRecoverAsRoot: root is refused on the directory of another user, which it would fill
// with files that the node cannot read; so are links, which lead out of the directory.
func TestRecoverAsRoot(t *testing.T) {
	data, _ := survivor(t)
	if os.Geteuid() == 0 {
		must.OK(t, os.Chown(data, 65534, -1))
		for _, args := range [][]string{{"--inspect"}, {"--yes"}} {
			before := namesIn(t, data)
			out, err := tryCommand(t, append([]string{"recover", "--data-dir", data}, args...)...)
			if err == nil || !strings.Contains(err.Error(), "runuser -u nobody -- quorate recover --data-dir "+data+" "+args[0]) {
				t.Errorf("%v: %v %s", args, err, out)
			}
			if after := namesIn(t, data); after != before {
				t.Errorf("%v has made %s of %s", args, after, before)
			}
		}
		must.OK(t, os.Chown(data, 0, -1))
	}
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	for _, name := range []string{"lock", "raft.db"} {
		link := filepath.Join(data, name)
		if err := os.Remove(link); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		must.OK(t, os.Symlink(elsewhere, link))
		if out, err := tryCommand(t, "recover", "--data-dir", data, "--yes"); err == nil || !strings.Contains(err.Error(), link+" is a symbolic link") {
			t.Errorf("%s: %v %s", name, err, out)
		}
		if name == "lock" {
			if _, err := datadir.Lock(data); err == nil {
				t.Error("a link was locked")
			}
		}
		if _, err := os.Lstat(elsewhere); err == nil {
			t.Errorf("%s: the link was followed", name)
		}
		must.OK(t, os.Remove(link))
	}
}

// namesIn are the names in a directory.
func namesIn(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must.OK(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

// saysWhichCredentialsHold looks at what a command prints that has made a new cluster of old data.
func saysWhichCredentialsHold(t *testing.T, out, dir string) {
	t.Helper()
	for _, want := range []string{
		"Kubeconfigs from before are refused (401, Unauthorized)", "quorate kubeconfig --kubeconfig " + dir + "/admin.kubeconfig > admin.kubeconfig\n",
		"quorate kubeconfig --kubeconfig " + dir + "/admin.kubeconfig --user NAME", "Service account tokens",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
}
