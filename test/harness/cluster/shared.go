package cluster

import (
	"sync"
	"testing"
)

// A test that leaves the cluster as it was uses the shared one.
var sharedCluster struct {
	sync.Mutex
	c *Cluster
}

// Shared returns a cluster of three nodes that lives until the end of the run:
// the reaper ends it.
func Shared(t *testing.T) *Cluster {
	t.Helper()
	sharedCluster.Lock()
	defer sharedCluster.Unlock()
	if sharedCluster.c == nil {
		c, err := launch("", 3, nil)
		if err != nil {
			t.Fatal(err)
		}
		sharedCluster.c = c
	}
	t.Cleanup(func() {
		if t.Failed() {
			sharedCluster.c.ShowLogs(t)
		}
	})
	return sharedCluster.c
}
