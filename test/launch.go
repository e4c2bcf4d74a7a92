package test

import (
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
	n := &Node{
		c: c, Name: name, Log: filepath.Join(c.dir, name+".log"),
		API: fmt.Sprintf("https://127.0.0.1:%d", port), Peer: fmt.Sprintf("127.0.0.1:%d", port+1000),
	}
	log, err := os.OpenFile(n.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(theRun.quorate, append([]string{
		"node", "--name", name, "--data-dir", filepath.Join(c.dir, name),
		"--api-address", fmt.Sprintf("127.0.0.1:%d", port), "--peer-address", n.Peer, "--log-format", "text",
	}, flags...)...)
	cmd.Env, cmd.Stdout, cmd.Stderr = cleanEnv(), log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = cmd.Wait() }() // ends when the node does; destroy sees to that
	n.pid = cmd.Process.Pid
	c.nodes = append(c.nodes, n)
	return n
}

// AwaitReady waits until the node answers /readyz, and fails at once when its
// process has ended.
func (n *Node) AwaitReady(t testing.TB) {
	t.Helper()
	Await(t, 30*time.Second, n.Name+" is ready", func() string {
		if !n.running() {
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
