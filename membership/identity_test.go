package membership

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/membership/pki"
)

func TestIdentity(t *testing.T) {
	dir := t.TempDir()
	old := syscall.Umask(0)
	a, err := LoadIdentity(dir, "n1")
	syscall.Umask(old)
	must.OK(t, err)
	path := filepath.Join(dir, identityFile)
	if st, _ := os.Stat(path); st.Mode() != pki.ModeSecret {
		t.Errorf("mode %v", st.Mode())
	}
	a.setCluster("c1")
	if b, _ := LoadIdentity(dir, ""); b.Cluster() != "" {
		t.Error("a cluster reached the disk before saveCluster")
	}
	must.OK(t, a.saveCluster())
	b, err := LoadIdentity(dir, "renamed")
	if err != nil || b.ID() != a.ID() || b.Name() != "renamed" || b.Cluster() != "c1" {
		t.Errorf("loaded %+v, %v", b, err)
	}
	if c, _ := LoadIdentity(dir, ""); c.Name() != "renamed" {
		t.Errorf("name %q", c.Name())
	}
	if c, _ := LoadIdentity(t.TempDir(), ""); c.ID() == a.ID() || c.Name() == "" {
		t.Error("an id was reused")
	}
	for _, bad := range []string{"", "{", `{"version":2,"nodeID":"` + string(a.ID()) + `"}`, `{"version":1,"nodeID":"../x"}`, `{"version":1}`} {
		must.OK(t, os.WriteFile(path, []byte(bad), 0o600))
		if _, err := LoadIdentity(dir, "n1"); err == nil {
			t.Errorf("accepted %q", bad)
		}
		if got, _ := os.ReadFile(path); string(got) != bad {
			t.Errorf("replaced %q", bad)
		}
	}
	for _, name := range []string{"a b", strings.Repeat("x", 64), "a/b", "ü"} {
		if _, err := LoadIdentity(t.TempDir(), name); err == nil {
			t.Errorf("name %q was accepted", name)
		}
	}
}

// TestIdentityLost: beside Raft state no new identity is made, and nothing is written.
func TestIdentityLost(t *testing.T) {
	for _, name := range raftFiles {
		dir := t.TempDir()
		must.OK(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
		_, err := LoadIdentity(dir, "n1")
		if !errors.Is(err, ErrIdentityLost) || !strings.Contains(err.Error(), name) {
			t.Errorf("beside %s: %v", name, err)
		}
		if _, err := os.Stat(filepath.Join(dir, identityFile)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("beside %s: node.json was made (%v)", name, err)
		}
	}
}
