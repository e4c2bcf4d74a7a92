package playground

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

// Target is a playground that runs, for programs that measure it.
type Target struct {
	Dir   string
	Nodes []*Node
	// TLS trusts the cluster's CA and presents the administrator's certificate.
	TLS *tls.Config

	// start starts a node's process that has ended, in the way of the others.
	start func(ctx context.Context, n *Node) error
	means
}

// Running is the playground of a directory. All its nodes must run, but those that were removed from the cluster.
func Running(dir string) (*Target, error) {
	c, err := readCluster(dir)
	if err != nil {
		return nil, err
	}
	for _, n := range c.members() {
		if !n.Running() {
			return nil, fmt.Errorf("%s does not run: start it with 'quorate dev start %s --data-dir %s'", n.Name, n.Name, dir)
		}
	}
	t, err := c.target()
	if err != nil {
		return nil, err
	}
	// As 'quorate dev start' does: the nodes outlive this process.
	t.start = func(ctx context.Context, n *Node) error {
		c, ran, err := startNodes(ctx, dir, []string{n.Name})
		if err != nil {
			return err
		}
		if len(ran) > 0 {
			return fmt.Errorf("%s was started by somebody else", n.Name)
		}
		started := c.node(n.Name)
		n.PID = started.PID
		go func() { _ = started.child.Wait() }() // reaps it, if it ends before this process
		return nil
	}
	return t, nil
}

// Temporary starts a playground of its own on free ports, with the Nodes, Nonvoters and Set of o.
// Its nodes end with this process, however that ends. end stops and removes it. Of one that begins
// with a backup the first node runs; the others join when they are started, one after the other.
func Temporary(ctx context.Context, o Options, progress io.Writer) (t *Target, end func() error, err error) {
	m, err := newMeans(o)
	if err != nil {
		return nil, nil, err
	}
	dir, err := os.MkdirTemp("", "quorate-bench-")
	if err != nil {
		return nil, nil, errors.Join(err, m.close())
	}
	c, err := temporaryCluster(o, dir, m)
	if err != nil {
		return nil, nil, errors.Join(err, m.close(), os.RemoveAll(dir))
	}
	var children sync.WaitGroup
	end = func() error {
		err := c.stop(context.WithoutCancel(ctx), io.Discard)
		children.Wait()
		return errors.Join(err, m.close(), os.RemoveAll(dir))
	}
	start := func(_ context.Context, n *Node) error {
		err := c.start(n)
		if child := n.child; err == nil {
			children.Go(func() { _ = child.Wait() }) // reaps it
		}
		return err
	}
	first := c.Nodes
	if o.Backup != "" {
		if err := c.restore(ctx, o.Backup); err != nil {
			return nil, nil, errors.Join(err, end())
		}
		first = first[:1]
	}
	fmt.Fprintf(progress, "starting %d voters and %d non-voters in %s\n", o.Nodes, o.Nonvoters, dir)
	for _, n := range first {
		if err := start(ctx, n); err != nil {
			return nil, nil, errors.Join(err, end())
		}
	}
	if _, err := c.waitReady(ctx, progress, false, first...); err != nil {
		return nil, nil, errors.Join(err, end())
	}
	if t, err = c.target(); err != nil {
		return nil, nil, errors.Join(err, end())
	}
	t.start, t.means = start, m
	return t, end, nil
}

// temporaryCluster makes the files of a cluster in a directory, on free ports.
func temporaryCluster(o Options, dir string, m means) (*cluster, error) {
	blocks := 2
	if o.Partitions {
		blocks = 3
	}
	port, err := freePorts(o.Nodes+o.Nonvoters, blocks)
	if err != nil {
		return nil, err
	}
	o.DataDir, o.Kubeconfig, o.APIPort = dir, filepath.Join(dir, "kubeconfig"), port
	c, err := openCluster(o)
	if err != nil {
		return nil, err
	}
	c.tied, c.means = true, m
	return c, m.listen(c.Nodes)
}

// restore makes the first node's directory from a backup, as an operator would.
func (c *cluster) restore(ctx context.Context, backup string) error {
	self, err := program()
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, self, "snapshot", "restore", backup, "--config", c.Nodes[0].settingsFile()).CombinedOutput()
	if err != nil {
		return fmt.Errorf("restore %s: %w: %s", backup, err, bytes.TrimSpace(out))
	}
	return nil
}

// CheckSettings asks quorate whether a node would take settings, given as flag=value.
func CheckSettings(ctx context.Context, set []string) error {
	if len(set) == 0 {
		return nil
	}
	self, err := program()
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, self, append([]string{"config", "check-set", "--"}, set...)...).CombinedOutput()
	if text, ok := bytes.CutPrefix(bytes.TrimSpace(out), []byte("error: ")); ok && err != nil {
		return errors.New(string(text))
	}
	return err
}

// Save writes a backup of the playground to a file.
func (t *Target) Save(ctx context.Context, file string) error {
	self, err := program()
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, self, "snapshot", "save", file, "--kubeconfig", filepath.Join(t.Dir, "kubeconfig")).CombinedOutput()
	if err != nil {
		return fmt.Errorf("save %s: %w: %s", file, err, bytes.TrimSpace(out))
	}
	return nil
}

// Ready waits until a node is ready, for as long as ctx lasts.
func (t *Target) Ready(ctx context.Context, name string) error {
	n := t.node(name)
	if n == nil {
		return fmt.Errorf("there is no node %q", name)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: t.TLS.Clone(), DisableKeepAlives: true}, Timeout: 10 * time.Second}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.API+"/readyz", nil)
		if err != nil {
			return err
		}
		if resp, err := client.Do(req); err == nil {
			if err := resp.Body.Close(); err == nil && resp.StatusCode == http.StatusOK {
				return nil
			}
		} else if !n.Running() {
			return fmt.Errorf("%s has ended before it was ready: see %s", name, n.Log)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w", name, ctx.Err())
		case <-tick.C:
		}
	}
}

func (c *cluster) target() (*Target, error) {
	nodes := c.members()
	if len(nodes) == 0 {
		return nil, c.allRemoved()
	}
	config, err := c.tls()
	if err != nil {
		return nil, err
	}
	return &Target{Dir: c.dir, Nodes: nodes, TLS: config}, nil
}

// freePorts returns the first of n ports of loopback that nobody has, and of which
// nobody has the ones peerOffset higher either, as often as there are blocks. They lie
// below those that the kernel gives to connections, so that they stay free, and above those of
// test/harness/cluster, which keeps them for nodes that are down.
func freePorts(n, blocks int) (int, error) {
next:
	for range 100 {
		first := 20000 + rand.IntN(10000)
		for block := range blocks {
			if !portsAreFree(first+block*peerOffset, n) {
				continue next
			}
		}
		return first, nil
	}
	return 0, errors.New("no free ports between 20000 and 32000")
}

func portsAreFree(first, n int) bool {
	for port := first; port < first+n; port++ {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			return false
		}
		l.Close()
	}
	return true
}
