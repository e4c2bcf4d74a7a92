package commands

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/playground"
)

// TestRefusedSet: --set of what no node would take makes nothing.
func TestRefusedSet(t *testing.T) {
	for _, x := range []struct{ name, set, want string }{
		{"set without value", "nonvoter", "must be flag=value"},
		{"set of nothing", "nmae=a", `there is no setting "nmae"`},
		{"set of another type", "trailing-logs=many", "--set trailing-logs=many"},
		{"set of its own", "name=a", "decides name by itself"},
	} {
		t.Run(x.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "play")
			if out, err := tryCommand(t, "dev", "--data-dir", dir, "--set", x.set); err == nil || !strings.Contains(err.Error(), x.want) {
				t.Errorf("got %v, want %q in it: %s", err, x.want, out)
			}
			if _, err := os.Stat(dir); err == nil {
				t.Errorf("%s was made", dir)
			}
		})
	}
}

// TestLockIsNotLeftInOthersDirectories: commands on what is no playground leave it as it
// was.
func TestLockIsNotLeftInOthersDirectories(t *testing.T) {
	dir := t.TempDir()
	for _, args := range [][]string{{"start", "n1"}, {"stop"}, {"status"}, {"logs"}, {"delete"}} {
		if _, err := tryCommand(t, append(append([]string{"dev"}, args...), "--data-dir", dir)...); !errors.Is(err, playground.ErrNone) {
			t.Errorf("dev %v: %v", args, err)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("it has %v (%v)", entries, err)
	}
}

// TestControlPlaneHelp: --control-plane is not ignored where there is a cluster, as the flags are that say so.
func TestControlPlaneHelp(t *testing.T) {
	help := strings.Join(strings.Fields(runCommand(t, "dev", "--help")), " ")
	if !strings.Contains(help, "beside the nodes; an existing cluster gets them too, and keeps them until --control-plane=false") {
		t.Errorf("it says %s", help)
	}
}
