package clients

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/quorate/quorate/test/harness/cluster"
)

// python is Debian's, whose packages another one would not find.
const python = "/usr/bin/python3"

// TestPython runs python/test_client.py: what Debian's Python client (python3-kubernetes, which
// make test-deps installs) makes of a cluster.
func TestPython(t *testing.T) {
	if out, err := exec.CommandContext(t.Context(), python, "-c", "import kubernetes").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s(make test-deps installs python3-kubernetes)", err, out)
	}
	c := cluster.Start(t, 3, "history-retention=2s")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, "-B", "test_client.py")
	cmd.Dir = "python"
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}
