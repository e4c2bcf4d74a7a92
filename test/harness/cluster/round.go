package cluster

import "testing"

// Round hands out the nodes of a cluster in turn, so that every step of a story
// goes through a different node than the one before.
type Round struct {
	Cluster *Cluster
	next    int
}

// Node returns the next node.
func (r *Round) Node() *Node {
	n := r.Cluster.nodes[r.next%len(r.Cluster.nodes)]
	r.next++
	return n
}

// Kubectl runs kubectl against the next node and returns what it prints.
func (r *Round) Kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return r.Node().Kubectl(t, args...)
}

// Try is kubectl for commands with an exit code of interest.
func (r *Round) Try(t *testing.T, env []string, args ...string) Output {
	t.Helper()
	return r.Node().TryKubectl(t, env, "", args...)
}
