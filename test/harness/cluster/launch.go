package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// Launch starts one more node with `quorate node` and the given flags beside its
// name, directory and addresses, as a child of the test. It is not awaited: its
// API may take a while. The cluster ends it, and it can be killed before.
func (c *Cluster) Launch(t testing.TB, name string, port int, flags ...string) *Node {
	t.Helper()
	return c.LaunchProgram(t, Binary(), nil, name, port, flags...)
}

// LaunchProgram is Launch of another program, with more variables.
func (c *Cluster) LaunchProgram(t testing.TB, program string, variables []string, name string, port int, flags ...string) *Node {
	t.Helper()
	n := &Node{
		Cluster: c, Name: name, Log: filepath.Join(c.Dir, name+".log"),
		API: fmt.Sprintf("https://127.0.0.1:%d", port), Peer: fmt.Sprintf("127.0.0.1:%d", port+1000),
	}
	log, err := os.OpenFile(n.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(program, append([]string{
		"node", "--name", name, "--data-dir", filepath.Join(c.Dir, name),
		"--api-address", fmt.Sprintf("127.0.0.1:%d", port), "--peer-address", n.Peer, "--log-format", "text",
	}, flags...)...)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(CleanEnv(), variables...), log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = cmd.Wait() }() // ends when the node does; destroy sees to that
	n.PID = cmd.Process.Pid
	c.nodes = append(c.nodes, n)
	return n
}

// StartAgain starts a node that has ended, as Restart does, but does not wait
// until it is ready: alone it may never be.
func (c *Cluster) StartAgain(t testing.TB, n *Node) {
	t.Helper()
	ended := n.PID
	ctx, cancel := context.WithCancel(t.Context())
	cmd := c.Command(ctx, "dev", "start", n.Name, "--data-dir", c.Dir)
	if err := cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	defer func() {
		cancel()
		_ = cmd.Wait() // killed: the node is not its to end
	}()
	Await(t, 10*time.Second, n.Name+" runs", func() string {
		c.Reread(t)
		if n.PID == ended {
			return "it was not started"
		}
		return ""
	})
}

// AwaitReady waits until the node answers /readyz, and fails at once when its
// process has ended.
func (n *Node) AwaitReady(t testing.TB) {
	t.Helper()
	Await(t, 30*time.Second, n.Name+" is ready", func() string {
		if !n.Running() {
			t.Fatalf("%s has exited", n.Name)
		}
		body, resp, err := n.Get(t, "/readyz")
		if err != nil {
			return err.Error()
		}
		if resp.StatusCode != 200 {
			return string(body)
		}
		return ""
	})
}
