package quotas

import (
	"fmt"
	"testing"

	"github.com/quorate/quorate/test/harness/cluster"
)

// TestQuotaOfNewCluster: a quota that is among the first objects of a cluster holds from the
// moment in which it is acknowledged.
func TestQuotaOfNewCluster(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		t.Run(fmt.Sprint(nodes, " nodes"), func(t *testing.T) {
			e := newEdge(t, cluster.Start(t, nodes), `{"metadata":{"name":"edge"},"spec":{"hard":{"count/configmaps":"31"}}}`)
			e.fill("configmaps", configMap)
			if there, _, ok := e.look(0); !ok || there.ConfigMaps != limit.ConfigMaps {
				t.Errorf("%d ConfigMaps are there (%v), the limit is %d", there.ConfigMaps, ok, limit.ConfigMaps)
			}
		})
	}
}
