package ecosystem

import (
	"os"
	"os/exec"
	"testing"

	"github.com/quorate/quorate/test/harness/cluster"
)

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }

// onlyInFull skips what takes more than its share of `make test-all`, unless the
// environment has ECOSYSTEM=full.
func onlyInFull(t *testing.T) {
	t.Helper()
	if os.Getenv("ECOSYSTEM") != "full" {
		t.Skip("takes long: ECOSYSTEM=full")
	}
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// turns hands out the nodes of a cluster that run, one after the other, so that
// every command goes through another node than the one before.
type turns struct {
	c    *cluster.Cluster
	dead *cluster.Node
	next int
}

func (r *turns) node() *cluster.Node {
	for {
		n := r.c.Nodes()[r.next%len(r.c.Nodes())]
		r.next++
		if n != r.dead {
			return n
		}
	}
}

// killLeader kills the node that leads and returns without waiting for another
// leader.
func (r *turns) killLeader(t *testing.T) {
	t.Helper()
	r.dead = r.c.Leader(t)
	r.c.Kill(t, r.dead)
}

// revive starts the node again that killLeader has killed.
func (r *turns) revive(t *testing.T) {
	t.Helper()
	r.c.Restart(t, r.dead)
	r.dead = nil
}

func (r *turns) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return r.node().Kubectl(t, args...)
}

// caughtUp makes sure that each node has what was written through the others: a list is
// linearizable, and what a node serves follows from the same state.
func (r *turns) caughtUp(t *testing.T) {
	t.Helper()
	for _, n := range r.c.Nodes() {
		if n != r.dead {
			n.MustGet(t, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
		}
	}
}

// feed is kubectl with something on its standard input.
func (r *turns) feed(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	out := r.node().TryKubectl(t, nil, stdin, args...)
	if out.Code != 0 {
		t.Fatalf("kubectl %q: exit code %d\n%s%s", args, out.Code, out.Stdout, out.Stderr)
	}
	return out.Stdout
}

// kubeconfigOf is a kubeconfig whose current context is a node.
func kubeconfigOf(t *testing.T, c *cluster.Cluster, n *cluster.Node) string {
	t.Helper()
	b, err := os.ReadFile(c.Kubeconfig)
	noError(t, err)
	path := t.TempDir() + "/kubeconfig"
	noError(t, os.WriteFile(path, b, 0o600))
	if out, err := exec.CommandContext(t.Context(), binary(t, "KUBECTL", "kubectl"), "--kubeconfig", path, "config", "use-context", "quorate-"+n.Name).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}
