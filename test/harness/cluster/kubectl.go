package cluster

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// Output is how a command has ended.
type Output struct {
	Stdout, Stderr string
	Code           int
}

// kubectl is a command against one node, with nothing of the user's own
// configuration. The program is at path.
func (n *Node) kubectl(ctx context.Context, path string, env []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, path, append([]string{"--kubeconfig", n.Cluster.Kubeconfig, "--context", "quorate-" + n.Name}, args...)...)
	cmd.Env = CleanEnv(append([]string{"HOME=" + n.Cluster.Dir}, env...)...)
	cmd.WaitDelay = time.Second
	return cmd
}

// TryKubectl runs kubectl against this node; a failure is an exit code.
func (n *Node) TryKubectl(t testing.TB, env []string, stdin string, args ...string) Output {
	t.Helper()
	return n.RunKubectl(t, theRun.kubectl, env, stdin, args...)
}

// RunKubectl is TryKubectl with the kubectl at path.
func (n *Node) RunKubectl(t testing.TB, path string, env []string, stdin string, args ...string) Output {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), CommandWithin)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := n.kubectl(ctx, path, env, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		t.Fatalf("kubectl %s (%s): %v\n%s", strings.Join(args, " "), n.Name, err, stderr.String())
	}
	return Output{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// Kubectl runs kubectl against this node and returns what it prints.
func (n *Node) Kubectl(t testing.TB, args ...string) string {
	t.Helper()
	out := n.TryKubectl(t, nil, "", args...)
	if out.Code != 0 {
		t.Fatalf("kubectl %s (%s): exit code %d\n%s%s", strings.Join(args, " "), n.Name, out.Code, out.Stdout, out.Stderr)
	}
	return out.Stdout
}

// Background is a kubectl that goes on, such as a watch.
type Background struct {
	cmd  *exec.Cmd
	stop context.CancelFunc

	mu  sync.Mutex
	out bytes.Buffer
}

// KubectlBackground starts kubectl against this node and stops it at the end of
// the test.
func (n *Node) KubectlBackground(t testing.TB, args ...string) *Background {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	b := &Background{cmd: n.kubectl(ctx, theRun.kubectl, nil, args...), stop: cancel}
	b.cmd.Stdout, b.cmd.Stderr = b, b
	if err := b.cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(b.Stop)
	return b
}

// Write takes what the command prints.
func (b *Background) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.out.Write(p)
}

// Output returns what the command has printed so far.
func (b *Background) Output() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.out.String()
}

// Stop kills the command and waits for its end.
func (b *Background) Stop() {
	b.stop()
	_ = b.cmd.Wait()
}
