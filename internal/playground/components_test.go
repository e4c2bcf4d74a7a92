package playground

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/membership/pki"
)

// TestControlPlaneOfExistingPlayground: --control-plane gives the programs to a playground that has none, which keeps
// them until --control-plane=false; who mistypes a name is told theirs.
func TestControlPlaneOfExistingPlayground(t *testing.T) {
	dir, programs := filepath.Join(t.TempDir(), "play"), t.TempDir()
	for _, name := range pki.Components {
		must.OK(t, os.WriteFile(filepath.Join(programs, name), []byte("#!/bin/sh\n"), 0o755))
	}
	plane := []string{"kube-controller-manager-n1", "kube-controller-manager-n2", "kube-controller-manager-n3", "kube-scheduler-n1", "kube-scheduler-n2", "kube-scheduler-n3"}
	for _, x := range []struct {
		name  string
		given []string
		on    bool
		want  string
		has   []string
	}{
		{"without", nil, false, `there is no node "nosuch" in `, []string{"n1", "n2", "n3"}},
		{"given to it", []string{"control-plane"}, true, `there is no node or program "nosuch" in `, slices.Concat([]string{"n1", "n2", "n3"}, plane)},
		{"kept", nil, false, `there is no node or program "nosuch" in `, slices.Concat([]string{"n1", "n2", "n3"}, plane)},
		{"taken from it", []string{"control-plane"}, false, `there is no node "nosuch" in `, []string{"n1", "n2", "n3"}},
	} {
		o := optionsIn(dir)
		o.ControlPlane, o.Given = x.on, map[string]bool{}
		for _, flag := range x.given {
			o.Given[flag] = true
		}
		if x.on {
			o.Binaries = programs
		}
		o.ManagerControllers = func([]string) (string, error) { return "*", nil }
		c := openPlayground(t, o)
		if err := c.planComponents(o); err != nil {
			t.Fatalf("%s: %v", x.name, err)
		}
		must.OK(t, c.write())
		_, _, err := c.split([]string{"nosuch"})
		has := strings.Join(x.has[:len(x.has)-1], ", ") + " and " + x.has[len(x.has)-1]
		if err == nil || !strings.HasPrefix(err.Error(), x.want) || !strings.HasSuffix(err.Error(), ": it has "+has) {
			t.Errorf("%s: %v, want %s… it has %s", x.name, err, x.want, has)
		}
		if or := c.choice(); !strings.Contains(or, x.has[0]) || !strings.HasSuffix(or, " or "+x.has[len(x.has)-1]) {
			t.Errorf("%s: the choice is %s", x.name, or)
		}
	}
}
