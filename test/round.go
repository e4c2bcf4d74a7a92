package test

import (
	"testing"
)

// round hands out the nodes of a cluster in turn, so that every step of a story
// goes through a different node than the one before.
type round struct {
	c    *Cluster
	next int
}

func (r *round) node() *Node {
	n := r.c.nodes[r.next%len(r.c.nodes)]
	r.next++
	return n
}

func (r *round) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return r.node().Kubectl(t, args...)
}

// try is kubectl for commands with an exit code of interest.
func (r *round) try(t *testing.T, env []string, args ...string) Output {
	t.Helper()
	return r.node().TryKubectl(t, env, "", args...)
}
