package playground

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
)

// TestStop: paused nodes stop too, and what is gone already is no error. The
// nodes are programs that look like ours in /proc and do nothing but wait.
func TestStop(t *testing.T) {
	c := &cluster{dir: t.TempDir()}
	for _, name := range []string{"n1", "n2", "n3"} {
		n := &Node{Name: name, DataDir: filepath.Join(c.dir, name)}
		n.child = exec.CommandContext(t.Context(), "sh", "-c", "while :; do sleep 0.1; done", "node", "--config", n.DataDir+".yaml")
		must.OK(t, n.child.Start())
		n.PID = n.child.Process.Pid
		go func() { _ = n.child.Wait() }() // ends with the process, which t.Context ends
		for began := time.Now(); !n.Running(); runtime.Gosched() {
			//wall: patience for a process to appear
			if time.Since(began) > 10*time.Second {
				t.Fatal("the node does not appear")
			}
		}
		if name != "n3" {
			must.OK(t, n.processes().signal(syscall.SIGSTOP))
		}
		c.Nodes = append(c.Nodes, n)
	}
	// cluster.json may have a pid that is gone, or none: the processes count.
	gone := c.Nodes[0].PID
	c.Nodes[0].PID, c.Nodes[1].PID = 0, os.Getpid()
	c.refresh()
	if c.Nodes[0].PID != gone || !c.Nodes[1].Running() {
		t.Fatalf("n1 is %d, want %d; n2 is %d", c.Nodes[0].PID, gone, c.Nodes[1].PID)
	}
	var out strings.Builder
	must.OK(t, c.stop(t.Context(), &out))
	for _, n := range c.Nodes {
		if n.Running() || !strings.Contains(out.String(), n.Name+" has stopped\n") {
			t.Errorf("%s runs: %t; said: %s", n.Name, n.Running(), out.String())
		}
	}
	out.Reset()
	if err := c.stop(t.Context(), &out); err != nil || out.String() != "" {
		t.Errorf("a second stop: %v, said %q", err, out.String())
	}
	c.refresh()
	for _, n := range c.Nodes {
		if n.PID != 0 {
			t.Errorf("%s has pid %d", n.Name, n.PID)
		}
	}
}
