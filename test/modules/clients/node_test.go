package clients

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/quorate/quorate/test/harness/cluster"
)

// TestNode runs node/client.test.js: what the JavaScript client makes of a
// cluster. The client and its Node.js come from npm, by name and version.
func TestNode(t *testing.T) {
	node := nodeBinary(t)
	c := cluster.Start(t, 3, "history-retention=2s")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, "--test", "--test-reporter=spec", "client.test.js")
	cmd.Dir = "node"
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}

// nodeBinary installs what node/package-lock.json names, where it is missing, and
// returns the Node.js among it.
func nodeBinary(t *testing.T) string {
	t.Helper()
	const pattern = "node/node_modules/node-linux-*/bin/node"
	lock, err := os.ReadFile("node/package-lock.json")
	noError(t, err)
	// What was installed last is noted beside it.
	const note = "node/node_modules/.installed"
	if done, err := os.ReadFile(note); err != nil || !bytes.Equal(done, lock) {
		npm := exec.CommandContext(t.Context(), "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
		npm.Dir = "node"
		if out, err := npm.CombinedOutput(); err != nil {
			t.Fatalf("npm ci: %v (make test-deps installs npm)\n%s", err, out)
		}
		noError(t, os.WriteFile(note, lock, 0o600))
	}
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) != 1 {
		t.Fatalf("npm has installed %q for %s (%v)", found, pattern, err)
	}
	path, err := filepath.Abs(found[0])
	if err != nil {
		t.Fatal(err)
	}
	return path
}
