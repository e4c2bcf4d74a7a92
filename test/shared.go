package test

import (
	"sync"
	"testing"
)

// A test that leaves the cluster as it was uses the shared one.
var sharedCluster struct {
	sync.Mutex
	c *Cluster
}

// shared returns a cluster of three nodes that lives until the end of the run:
// the reaper ends it.
func shared(t *testing.T) *Cluster {
	t.Helper()
	sharedCluster.Lock()
	defer sharedCluster.Unlock()
	if sharedCluster.c == nil {
		c, err := launch(3, nil)
		if err != nil {
			t.Fatal(err)
		}
		sharedCluster.c = c
	}
	t.Cleanup(func() {
		if t.Failed() {
			sharedCluster.c.showLogs(t)
		}
	})
	return sharedCluster.c
}
