package commands

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/test/harness/cluster"
)

// TestDevWithoutOneNode: a playground goes on without a node whose data are gone or damaged, and the
// commands that it prints make that node a member again.
func TestDevWithoutOneNode(t *testing.T) {
	for _, row := range []struct {
		name, node, says string
		harm             func(dir string) error
	}{
		{"wiped", "n3", "n3 has lost its data, and waits", os.RemoveAll},
		{"damaged state", "n1", "n1 has exited: open store ", func(dir string) error {
			f, err := os.OpenFile(filepath.Join(dir, "state.db"), os.O_RDWR, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			for page := range int64(1024) {
				if _, err := f.WriteAt([]byte("harm"), page*4096+100); err != nil {
					return err
				}
			}
			return nil
		}},
		{"damaged node.json", "n2", "n2: identity: ", func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "node.json"), []byte("harm"), 0o600)
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			c := cluster.Start(t, 3)
			c.Node(t, "n2").Kubectl(t, "create", "configmap", "before")
			c.Quorate(t, "dev", "stop", "--data-dir", c.Dir)
			if err := row.harm(filepath.Join(c.Dir, row.node)); err != nil {
				t.Fatal(err)
			}
			said := c.Quorate(t, "dev", "--data-dir", c.Dir, "--kubeconfig", c.Kubeconfig, "--detach")
			if !strings.Contains(said, "Quorate is ready: 2 of 3 nodes in ") || !strings.Contains(said, "\n"+row.says) {
				t.Fatalf("it does not say %q:\n%s", row.says, said)
			}
			_, said, _ = strings.Cut(said, "\n"+row.says)
			said, _, _ = strings.Cut(said, "\n\nUse it:")
			if _, advice, ok := strings.Cut(said, "If its data are damaged"); ok {
				said = advice
			}
			var commands []string
			for line := range strings.Lines(said) {
				if command, ok := strings.CutPrefix(line, "                 "); ok {
					commands = append(commands, command)
				}
			}
			cmd := exec.CommandContext(t.Context(), "sh", "-ec", strings.Join(commands, ""))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%q: %v: %s", commands, err, out)
			}
			c.Reread(t)
			cluster.Await(t, 30*time.Second, "all nodes are ready", func() string {
				out, err := c.TryQuorate(t, "dev", "status", "--data-dir", c.Dir)
				if err != nil {
					return out
				}
				return ""
			})
			if got := c.Node(t, row.node).Kubectl(t, "get", "configmap", "before", "-o", "name"); got != "configmap/before\n" {
				t.Errorf("%s answers %q", row.node, got)
			}
		})
	}
}
