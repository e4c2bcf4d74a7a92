package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func devIn(dir string) devOptions {
	return devOptions{nodes: 3, dataDir: dir, kubeconfig: filepath.Join(dir, "kubeconfig"), apiPort: 20000}
}

// open makes or opens a playground and notes it, as its first start does.
func openPlayground(t *testing.T, o devOptions) *devCluster {
	t.Helper()
	c, err := openCluster(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.write(); err != nil {
		t.Fatal(err)
	}
	return c
}

// settingsOf resolves the file that a playground wrote for a node.
func settingsOf(t *testing.T, c *devCluster, n *devNode) *Config {
	t.Helper()
	cfg := &Config{}
	if _, err := resolve(cfg.flags(), c.settingsFile(n), nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := cfg.complete(); err != nil {
		t.Fatalf("%s would not start: %v", n.Name, err)
	}
	return cfg
}

func TestOpenClusterMakesOne(t *testing.T) {
	dir := t.TempDir()
	o := devIn(dir)
	o.set = []string{"snapshot-entries=77", "tls-san=a,b"}
	c := openPlayground(t, o)
	if got := strings.Join(c.names(), " "); got != "n1 n2 n3" {
		t.Fatalf("nodes %s", got)
	}
	for i, n := range c.Nodes {
		cfg := settingsOf(t, c, n)
		if cfg.Name != n.Name || cfg.DataDir != n.DataDir || cfg.BootstrapExpect != 3 || len(cfg.Join) != 3 || cfg.Join[i] != n.Peer {
			t.Errorf("%s: %+v", n.Name, cfg)
		}
		if cfg.SnapshotEntries != 77 || len(cfg.TLSNames) != 2 {
			t.Errorf("%s: --set was not heard: %d, %q", n.Name, cfg.SnapshotEntries, cfg.TLSNames)
		}
		if "https://"+cfg.APIListen != n.API || cfg.PeerListen != n.Peer {
			t.Errorf("%s listens on %s and %s, cluster.json says %s and %s", n.Name, cfg.APIListen, cfg.PeerListen, n.API, n.Peer)
		}
	}
	for _, secret := range []string{"cluster.json", "kubeconfig", "token", "n1.yaml", "pki/admin.key", "pki/sa.key"} {
		info, err := os.Stat(filepath.Join(dir, secret))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, want mode 0600 (%v)", secret, info, err)
		}
	}
}

func TestOpenClusterOfOne(t *testing.T) {
	o := devIn(t.TempDir())
	o.nodes = 1
	c := openPlayground(t, o)
	if cfg := settingsOf(t, c, c.Nodes[0]); cfg.BootstrapExpect != 1 || len(cfg.Join) != 0 {
		t.Errorf("expects %d, joins %q", cfg.BootstrapExpect, cfg.Join)
	}
}

// TestOpenClusterWithNonvoters: they join the voters, and nobody waits for them.
func TestOpenClusterWithNonvoters(t *testing.T) {
	o := devIn(t.TempDir())
	o.nodes, o.nonvoters = 1, 2
	c := openPlayground(t, o)
	if got := strings.Join(c.names(), " "); got != "n1 n2 n3" {
		t.Fatalf("nodes %s", got)
	}
	for i, n := range c.Nodes {
		cfg := settingsOf(t, c, n)
		if i == 0 && (cfg.Nonvoter || cfg.BootstrapExpect != 1 || len(cfg.Join) != 0) {
			t.Errorf("the voter: %+v", cfg)
		}
		if i > 0 && (!cfg.Nonvoter || cfg.BootstrapExpect != 0 || len(cfg.Join) != 1 || cfg.Join[0] != c.Nodes[0].Peer) {
			t.Errorf("%s: %+v", n.Name, cfg)
		}
	}
}

// TestOpenClusterKeeps: an existing cluster keeps its nodes, ports and secret,
// whatever the flags say; --set of a later start is added.
func TestOpenClusterKeeps(t *testing.T) {
	dir := t.TempDir()
	o := devIn(dir)
	o.set = []string{"snapshot-entries=77"}
	first := openPlayground(t, o)
	secret, err := os.ReadFile(filepath.Join(dir, "token"))
	if err != nil {
		t.Fatal(err)
	}
	o.nodes, o.apiPort, o.set, o.kubeconfig = 5, 30000, []string{"trailing-logs=88"}, filepath.Join(dir, "other")
	second := openPlayground(t, o)
	if len(second.Nodes) != 3 {
		t.Fatalf("%d nodes", len(second.Nodes))
	}
	for i, n := range second.Nodes {
		if n.API != first.Nodes[i].API || n.Peer != first.Nodes[i].Peer {
			t.Errorf("%s moved to %s and %s", n.Name, n.API, n.Peer)
		}
		cfg := settingsOf(t, second, n)
		if cfg.SnapshotEntries != 77 || cfg.TrailingLogs != 88 || len(cfg.Join) != 3 {
			t.Errorf("%s: snapshot-entries %d, trailing-logs %d, join %q", n.Name, cfg.SnapshotEntries, cfg.TrailingLogs, cfg.Join)
		}
	}
	if second.Kubeconfig != o.kubeconfig {
		t.Errorf("the kubeconfig is %s", second.Kubeconfig)
	}
	if now, err := os.ReadFile(filepath.Join(dir, "token")); err != nil || string(now) != string(secret) {
		t.Errorf("the secret has changed (%v)", err)
	}
}

// TestOpenClusterRefuses: bad flags make nothing.
func TestOpenClusterRefuses(t *testing.T) {
	for _, x := range []struct {
		name   string
		change func(*devOptions)
		want   string
	}{
		{"no nodes", func(o *devOptions) { o.nodes = 0 }, "--nodes 0"},
		{"too many nodes", func(o *devOptions) { o.nodes = 10 }, "--nodes 10"},
		{"too many with nonvoters", func(o *devOptions) { o.nonvoters = 7 }, "--nonvoters 7: must be 0 to 6"},
		{"fewer than no nonvoters", func(o *devOptions) { o.nonvoters = -1 }, "--nonvoters -1"},
		{"no port", func(o *devOptions) { o.apiPort = 0 }, "--api-port 0"},
		{"ports beyond the last", func(o *devOptions) { o.apiPort = 64534 }, "--api-port 64534"},
		{"set without value", func(o *devOptions) { o.set = []string{"nonvoter"} }, "must be flag=value"},
		{"set of nothing", func(o *devOptions) { o.set = []string{"nmae=a"} }, `there is no setting "nmae"`},
		{"set of another type", func(o *devOptions) { o.set = []string{"trailing-logs=many"} }, "--set trailing-logs=many"},
		{"set of its own", func(o *devOptions) { o.set = []string{"name=a"} }, "decides name by itself"},
	} {
		t.Run(x.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "play")
			o := devIn(dir)
			x.change(&o)
			if _, err := openCluster(o); err == nil || !strings.Contains(err.Error(), x.want) {
				t.Errorf("got %v, want %q in it", err, x.want)
			}
			if entries, _ := os.ReadDir(dir); len(entries) > 0 {
				t.Errorf("%s was made", entries[0].Name())
			}
		})
	}
	o := devIn(t.TempDir())
	o.apiPort = 64533 // the last peer port is 65535
	openPlayground(t, o)
}

// TestDamagedClusterFile: a cluster.json that cannot be read is no reason to make
// another cluster over the data of the first.
func TestDamagedClusterFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(clusterFile(dir), []byte(`{"nodes":`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openCluster(devIn(dir)); err == nil || errors.Is(err, errNoCluster) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "token")); err == nil {
		t.Error("a secret was made")
	}
}

// TestRunning: a pid that another program has got since is not a running node.
func TestRunning(t *testing.T) {
	n := &devNode{Name: "n1", DataDir: filepath.Join(t.TempDir(), "n1")}
	if n.running() {
		t.Error("a node that was never started runs")
	}
	n.PID = os.Getpid()
	if n.running() {
		t.Error("this test is taken for a node")
	}
}

func TestEnvironment(t *testing.T) {
	three := &devCluster{Nodes: make([]*devNode, 3)}
	for _, c := range []struct {
		env        []string
		processors int
		want       string
	}{
		{[]string{"PATH=/bin", "QUORATE_NAME=a", "QUORATES=b"}, 2, "PATH=/bin QUORATES=b GOMAXPROCS=2"},
		{nil, 8, "GOMAXPROCS=3"},
		{[]string{"GOMAXPROCS=7"}, 8, "GOMAXPROCS=7 GOMAXPROCS=7"},
	} {
		if got := strings.Join(three.environment(c.env, c.processors), " "); got != c.want {
			t.Errorf("%v on %d processors: %q, want %q", c.env, c.processors, got, c.want)
		}
	}
}

func TestTail(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(file, []byte("0123456789"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := tail(file, 4); got != "6789" {
		t.Errorf("got %q", got)
	}
	if got := tail(file, 40); got != "0123456789" {
		t.Errorf("got %q", got)
	}
}
