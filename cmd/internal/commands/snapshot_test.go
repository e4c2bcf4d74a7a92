package commands

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/backup"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/disk"
)

// backupFile is the backup of a node without objects.
func backupFile(t *testing.T) string {
	t.Helper()
	db, err := disk.Open(t.TempDir(), disk.Options{})
	must.OK(t, err)
	defer db.Close()
	var b bytes.Buffer
	if _, err := db.WriteBackup(&b, &proto.Backup{NodeName: "n1"}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "backup")
	must.OK(t, os.WriteFile(file, b.Bytes(), 0o600))
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
	saysWhichCredentialsHold(t, out, dir)
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
	must.OK(t, os.WriteFile(filepath.Join(dir, "mine"), nil, 0o600))
	r := restore{dir: dir, name: "n1", peerAddress: "127.0.0.1:7443"}
	if _, err := r.run(backupFile(t), nil); !errors.Is(err, disk.ErrNotEmpty) {
		t.Errorf("got %v", err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("the directory has %v", entries)
	}

	whole, err := os.ReadFile(backupFile(t))
	must.OK(t, err)
	torn := filepath.Join(t.TempDir(), "torn")
	must.OK(t, os.WriteFile(torn, whole[:len(whole)-1], 0o600))
	dir = filepath.Join(t.TempDir(), "n1")
	r.dir = dir
	if _, err := r.run(torn, nil); err == nil {
		t.Error("a torn backup was restored")
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 0 {
		t.Errorf("%v was made of a torn backup", entries)
	}
	if _, err := tryCommand(t, "snapshot", "verify", torn); err == nil {
		t.Error("a torn backup is said to be whole")
	}
}

// TestRestoreIsToldWho: who the node is comes from flags, from its configuration or from
// variables, as for the node itself, and is not guessed.
func TestRestoreIsToldWho(t *testing.T) {
	backup := backupFile(t)
	for _, c := range []struct {
		name, config string
		env          map[string]string
		args         []string
		node, peer   string // what it is
		refused      string // or why not
	}{
		{name: "nothing", refused: "not said: --data-dir, --name and --peer-advertise-address"},
		{name: "no name", args: []string{"--data-dir", "DIR", "--peer-address", "10.0.0.1:7443"}, refused: "not said: --name."},
		{name: "no address", args: []string{"--data-dir", "DIR", "--name", "n3"}, refused: "not said: --peer-advertise-address."},
		{name: "an empty name", args: []string{"--data-dir", "DIR", "--name", "", "--peer-address", "10.0.0.1:7443"}, refused: "not said: --name."},
		{name: "flags", args: []string{"--data-dir", "DIR", "--name", "n3", "--peer-advertise-address", "10.0.0.3:7443"}, node: "n3", peer: "10.0.0.3:7443"},
		{name: "a file", config: "name: n3\ndata-dir: DIR\npeer-address: 10.0.0.3:7443\nlog-level: warn\n", node: "n3", peer: "10.0.0.3:7443"},
		{name: "a file with both", config: "name: n3\ndata-dir: DIR\npeer-address: 0.0.0.0:7443\npeer-advertise-address: 10.0.0.3:7443\n", node: "n3", peer: "10.0.0.3:7443"},
		{name: "a flag before the file", config: "name: n3\ndata-dir: DIR\npeer-address: 10.0.0.3:7443\n", args: []string{"--name", "n4"}, node: "n4", peer: "10.0.0.3:7443"},
		{name: "a file that nobody can reach", config: "name: n3\ndata-dir: DIR\npeer-address: 0.0.0.0:7443\n", refused: "cannot be reached by others"},
		{name: "a file with a typo", config: "nmae: n3\n", refused: "did you mean name?"},
		{name: "variables", env: map[string]string{"QUORATE_NAME": "n3", "QUORATE_DATA_DIR": "DIR", "QUORATE_PEER_ADDRESS": "10.0.0.3:7443"}, node: "n3", peer: "10.0.0.3:7443"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "n")
			for name, value := range c.env {
				t.Setenv(name, strings.ReplaceAll(value, "DIR", dir))
			}
			args := []string{"snapshot", "restore", backup}
			for _, a := range c.args {
				args = append(args, strings.ReplaceAll(a, "DIR", dir))
			}
			if c.config != "" {
				file := filepath.Join(t.TempDir(), "n.yaml")
				must.OK(t, os.WriteFile(file, []byte(strings.ReplaceAll(c.config, "DIR", dir)), 0o600))
				args = append(args, "--config", file)
			}
			out, err := tryCommand(t, args...)
			if c.refused != "" {
				if err == nil || !strings.Contains(err.Error(), c.refused) {
					t.Errorf("%v, want %q: %s", err, c.refused, out)
				}
				if _, err := os.Stat(dir); err == nil {
					t.Error("something was made")
				}
				return
			}
			must.OK(t, err)
			identity, err := membership.LoadIdentity(dir, "")
			must.OK(t, err)
			s, err := disk.InspectSurvivor(dir)
			must.OK(t, err)
			if servers := s.Configuration.Servers; identity.Name() != c.node || len(servers) != 1 || string(servers[0].Address) != c.peer || string(servers[0].ID) != string(identity.ID()) {
				t.Errorf("it is %s, with %+v; want %s at %s", identity.Name(), servers, c.node, c.peer)
			}
		})
	}
	// From standard input, which another user than the backup's may read.
	dir := filepath.Join(t.TempDir(), "n")
	f, err := os.Open(backup)
	must.OK(t, err)
	defer f.Close()
	c := newCommand()
	c.SetArgs([]string{"snapshot", "restore", "-", "--data-dir", dir, "--name", "n3", "--peer-address", "10.0.0.3:7443"})
	c.SetIn(f)
	c.SetOut(io.Discard)
	must.OK(t, c.ExecuteContext(t.Context()))
	if _, err := os.Stat(filepath.Join(dir, "node.json")); err != nil {
		t.Error(err)
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
			args := []string{"snapshot", "restore", file, "--data-dir", filepath.Join(t.TempDir(), "n1"), "--name", "n1", "--peer-advertise-address", "127.0.0.1:7443"}
			if c.flag != "" {
				args = append(args, c.flag)
			}
			if out := runCommand(t, args...); !strings.Contains(out, c.want) {
				t.Errorf("%q is not in\n%s", c.want, out)
			}
		})
	}
	if _, err := tryCommand(t, "snapshot", "restore", file, "--data-dir", filepath.Join(t.TempDir(), "n1"), "--name", "n1", "--peer-address", "127.0.0.1:7443", "--bump-revision", "9007199254740992"); !errors.Is(err, disk.ErrTooHigh) {
		t.Errorf("a bump to above what JSON numbers hold: %v", err)
	}
	for why, want := range map[disk.Why]string{disk.ByClock: "clock says", disk.BehindBackup: "ahead of this machine's clock", disk.ByBump: "--bump-revision adds 5"} {
		if got := beginning(disk.Restored{StateRecord: &proto.StateRecord{Applied: 12}, Backup: 7, Why: why}); !strings.Contains(got, want) {
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

// TestInspectSaysWhereFrom: when, by which node and version, and what that is worth.
func TestInspectSaysWhereFrom(t *testing.T) {
	b := backup.Info{ClusterID: "c", Revision: 9, Taken: backup.Taken{
		Time: time.UnixMilli(1_790_000_000_000).UTC(), Node: "n2", NodeID: "ab", Version: "v7", Role: "follower", LastContactMS: 90_000, NotConfirmed: "no leader",
	}}
	var text, data bytes.Buffer
	must.OK(t, errors.Join(printBackup(b, &text, "table"), printBackup(b, &data, "json")))
	for _, want := range []string{"2026-09-21 14:13:20 UTC from n2, follower; NOT confirmed", "version:   v7", "revision:  9"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in\n%s", want, &text)
		}
	}
	var back backup.Info
	if err := json.Unmarshal(data.Bytes(), &back); err != nil || back.Taken != b.Taken {
		t.Errorf("%v\n%s", err, &data)
	}
	for _, c := range []struct {
		change func(*backup.Taken)
		want   string
	}{
		{func(*backup.Taken) {}, "warning: n2 (follower) reached no majority (no leader), and last heard from a leader 1m30s before"},
		{func(b *backup.Taken) { b.LastContactMS = -1 }, "has never heard from a leader"},
		{func(b *backup.Taken) { b.Role = "leader" }, "calls itself the leader"},
		{func(b *backup.Taken) { b.Confirmed = true }, ""},
	} {
		taken := b.Taken
		c.change(&taken)
		if got := warning(&taken); !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
