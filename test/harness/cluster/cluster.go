package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// CommandWithin bounds every command that a test runs.
const CommandWithin = time.Minute

// Cluster is a playground cluster of real processes in a directory of its own.
type Cluster struct {
	Dir   string // below RunDir
	nodes []*Node

	Kubeconfig    string
	CAFile        string
	adminCertFile string
	adminKeyFile  string
	// Program is what Command runs, and what nodes are started with. Default: Binary.
	Program string
	// FreePort is an API port for one more node (spareNodes of them follow each other); it and the port 1000 higher
	// are held for it.
	FreePort int
}

// Nonvoters is the setting of Start that is not a node's: how many nodes there
// are beside the voters.
const Nonvoters = "nonvoters="

// spareNodes are how many more nodes a cluster has ports for.
const spareNodes = 2

// Start starts a cluster, with the settings ("flag=value") for every node, and with
// nodes that have no vote if one of the settings is "nonvoters=N". It
// stops it at the end of the test. When the test failed, the ends of the nodes'
// logs are shown.
func Start(t testing.TB, nodes int, settings ...string) *Cluster {
	t.Helper()
	c, err := TryStart(t, nodes, settings...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TryStart is Start of a cluster that may not start.
func TryStart(t testing.TB, nodes int, settings ...string) (*Cluster, error) {
	t.Helper()
	return tryStart(t, "", nodes, settings)
}

// StartProgram is Start of nodes of another program, which Program of the cluster names.
func StartProgram(t testing.TB, program string, nodes int, settings ...string) *Cluster {
	t.Helper()
	c, err := tryStart(t, program, nodes, settings)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func tryStart(t testing.TB, program string, nodes int, settings []string) (*Cluster, error) {
	t.Helper()
	c, err := launch(program, nodes, settings)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		if t.Failed() {
			c.ShowLogs(t)
		}
		if err := c.Destroy(); err != nil {
			t.Error(err)
		}
	})
	return c, nil
}

// launch starts a cluster that somebody else ends.
func launch(program string, nodes int, settings []string) (*Cluster, error) {
	var errs []error
	// Another program may take a port between the look and the start.
	for range 3 {
		c := &Cluster{Program: program}
		err := c.start(nodes, settings)
		if err == nil {
			return c, nil
		}
		errs = append(errs, err, c.Destroy())
	}
	return nil, fmt.Errorf("start a cluster: %w", errors.Join(errs...))
}

func (c *Cluster) start(nodes int, settings []string) (err error) {
	if c.Dir, err = os.MkdirTemp(theRun.dir, "cluster-"); err != nil {
		return err
	}
	all := nodes
	for _, s := range settings {
		if n, ok := strings.CutPrefix(s, Nonvoters); ok {
			more, err := strconv.Atoi(n)
			if err != nil {
				return fmt.Errorf("%s: %w", s, err)
			}
			all += more
		}
	}
	// What every cluster of a run is to have besides: the tests of another implementation are the same.
	settings = append(slices.Clone(settings), strings.Fields(os.Getenv("QUORATE_TEST_SETTINGS"))...)
	port, err := FreePorts(all + spareNodes)
	if err != nil {
		return err
	}
	c.FreePort = port + all
	args := []string{"dev", "--data-dir", c.Dir, "--nodes", fmt.Sprint(nodes), "--api-port", fmt.Sprint(port), "--detach"}
	for _, s := range settings {
		if n, ok := strings.CutPrefix(s, Nonvoters); ok {
			args = append(args, "--nonvoters", n)
			continue
		}
		args = append(args, "--set", s)
	}
	ctx, cancel := context.WithTimeout(context.Background(), CommandWithin)
	defer cancel()
	if out, err := c.Command(ctx, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("quorate dev: %w\n%s", err, out)
	}
	return c.Read()
}

// Read reads cluster.json, also for the pids of nodes that were restarted.
func (c *Cluster) Read() error {
	b, err := os.ReadFile(filepath.Join(c.Dir, "cluster.json"))
	if err != nil {
		return err
	}
	var f struct {
		Nodes []struct {
			Name, API, Peer, DataDir, Log string
			PID                           int
		}
		Kubeconfig, CAFile, AdminCertFile, AdminKeyFile string
	}
	if err := json.Unmarshal(b, &f); err != nil {
		return fmt.Errorf("cluster.json: %w", err)
	}
	c.Kubeconfig, c.CAFile, c.adminCertFile, c.adminKeyFile = f.Kubeconfig, f.CAFile, f.AdminCertFile, f.AdminKeyFile
	for _, n := range f.Nodes {
		node := c.find(n.Name)
		if node == nil {
			node = &Node{Cluster: c, Name: n.Name}
			c.nodes = append(c.nodes, node)
		}
		node.API, node.Peer, node.Log, node.PID = n.API, n.Peer, n.Log, n.PID
	}
	return nil
}

func (c *Cluster) find(name string) *Node {
	for _, n := range c.nodes {
		if n.Name == name {
			return n
		}
	}
	return nil
}

// At is the cluster in a directory that a test has made, below RunDir, for a playground
// that the test starts itself. Reread tells it what is there; Destroy ends it.
func At(dir string) *Cluster { return &Cluster{Dir: dir} }

// Forget takes nodes out of the cluster: those that have ended for good, or that
// others with their names replace. Start's cleanup ends their processes nevertheless.
func (c *Cluster) Forget(nodes ...*Node) { c.nodes = c.Others(nodes...) }

// Nodes returns the nodes in the order of their names.
func (c *Cluster) Nodes() []*Node { return c.nodes }

// Node returns a node by its name.
func (c *Cluster) Node(t testing.TB, name string) *Node {
	t.Helper()
	n := c.find(name)
	if n == nil {
		t.Fatalf("there is no node %q", name)
	}
	return n
}

// Others returns the nodes without some.
func (c *Cluster) Others(without ...*Node) []*Node {
	var out []*Node
next:
	for _, n := range c.nodes {
		for _, w := range without {
			if n == w {
				continue next
			}
		}
		out = append(out, n)
	}
	return out
}

// Leader awaits a leader, as the given node (or any) knows it.
func (c *Cluster) Leader(t testing.TB, ask ...*Node) *Node {
	t.Helper()
	if len(ask) == 0 {
		ask = c.nodes[:1]
	}
	var leader *Node
	Await(t, 15*time.Second, "a leader", func() string {
		st, err := ask[0].Status(t)
		if err != nil {
			return err.Error()
		}
		for _, m := range st.Members {
			if m.Role == "leader" && m.Leader {
				leader = c.find(m.Name)
			}
		}
		if leader == nil {
			return fmt.Sprintf("%s knows none: %+v", ask[0].Name, st)
		}
		return ""
	})
	return leader
}

// Kill ends nodes with SIGKILL, all at once, and waits until they are gone.
func (c *Cluster) Kill(t testing.TB, nodes ...*Node) {
	t.Helper()
	c.end(t, syscall.SIGKILL, nodes)
}

// Stop ends nodes with SIGTERM, all at once, and waits until they are gone.
func (c *Cluster) Stop(t testing.TB, nodes ...*Node) {
	t.Helper()
	c.end(t, syscall.SIGTERM, nodes)
}

// Signal sends a signal that does not end nodes.
func (c *Cluster) Signal(t testing.TB, signal syscall.Signal, nodes ...*Node) {
	t.Helper()
	for _, n := range nodes {
		if err := syscall.Kill(n.PID, signal); err != nil {
			t.Fatalf("%s to %s (pid %d): %v", signal, n.Name, n.PID, err)
		}
	}
}

func (c *Cluster) end(t testing.TB, signal syscall.Signal, nodes []*Node) {
	t.Helper()
	c.Signal(t, signal, nodes...)
	for _, n := range nodes {
		Await(t, 30*time.Second, n.Name+" is gone", func() string {
			if n.Running() {
				return "it runs"
			}
			return ""
		})
	}
}

// Restart starts a killed node again and waits until it is ready.
func (c *Cluster) Restart(t testing.TB, n *Node) {
	t.Helper()
	c.Quorate(t, "dev", "start", n.Name, "--data-dir", c.Dir)
	c.Reread(t)
}

// RestartAll starts all nodes again after all were killed.
func (c *Cluster) RestartAll(t testing.TB) {
	t.Helper()
	c.Quorate(t, "dev", "--data-dir", c.Dir, "--detach")
	c.Reread(t)
}

// Reread is Read of a cluster.json that must be there.
func (c *Cluster) Reread(t testing.TB) {
	t.Helper()
	if err := c.Read(); err != nil {
		t.Fatal(err)
	}
}

// Quorate runs a command of the binary under test and returns what it prints.
func (c *Cluster) Quorate(t testing.TB, args ...string) string {
	t.Helper()
	out, err := c.TryQuorate(t, args...)
	if err != nil {
		t.Fatalf("quorate %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// Admin is Quorate for the commands that take a kubeconfig.
func (c *Cluster) Admin(t testing.TB, args ...string) string {
	t.Helper()
	return c.Quorate(t, append(args, "--kubeconfig", c.Kubeconfig)...)
}

// TryQuorate is Quorate for commands that may fail. Both outputs are returned
// together.
func (c *Cluster) TryQuorate(t testing.TB, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), CommandWithin)
	defer cancel()
	out, err := c.Command(ctx, args...).CombinedOutput()
	return string(out), err
}

// Command is the binary under test, or Program, with arguments, with nothing of the user's own
// configuration. It ends with ctx.
func (c *Cluster) Command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, cmp.Or(c.Program, Binary()), args...)
	cmd.Env = CleanEnv("HOME=" + c.Dir)
	cmd.WaitDelay = time.Second
	return cmd
}

// CleanEnv is the environment without what would steer our programs.
func CleanEnv(add ...string) []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "QUORATE_") && !strings.HasPrefix(e, "KUBE") && !strings.HasPrefix(e, "HOME=") {
			env = append(env, e)
		}
	}
	return append(env, add...)
}

// Destroy ends every process of the cluster and removes its data.
func (c *Cluster) Destroy() error {
	for _, n := range c.nodes {
		n.closeClients()
	}
	deadline := time.Now().Add(10 * time.Second)
	for pids := ProcessesOf(c.Dir); len(pids) > 0; pids = ProcessesOf(c.Dir) {
		if time.Now().After(deadline) {
			return fmt.Errorf("processes %v do not end", pids)
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(5 * time.Millisecond)
	}
	if os.Getenv("KEEP") != "" {
		return nil
	}
	return os.RemoveAll(c.Dir)
}

// ShowLogs shows the end of every node's log.
func (c *Cluster) ShowLogs(t testing.TB) {
	for _, n := range c.nodes {
		b, err := os.ReadFile(n.Log)
		if err != nil {
			t.Log(err)
			continue
		}
		t.Logf("the end of %s's log:\n%s", n.Name, b[max(0, len(b)-4000):])
	}
}
