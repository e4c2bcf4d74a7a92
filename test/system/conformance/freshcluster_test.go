package conformance

import (
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/test/harness/cluster"
)

// TestFreshCluster: what is there before anybody makes anything is enough for
// `kubectl create token` and for Pods that look for the API.
func TestFreshCluster(t *testing.T) {
	c := cluster.Shared(t)
	for _, n := range c.Nodes() {
		cluster.AwaitEndpoints(t, c, n)
	}
	n := c.Nodes()[0]
	cluster.Await(t, 10*time.Second, "a token for the first service account", func() string {
		if out := n.TryKubectl(t, nil, "", "create", "token", "default"); out.Code != 0 || strings.Count(strings.TrimSpace(out.Stdout), ".") != 2 {
			return out.Stderr
		}
		return ""
	})
	if out := n.Kubectl(t, "get", "service", "kubernetes"); !strings.Contains(out, "ClusterIP") || !strings.Contains(out, "10.0.0.1") || !strings.Contains(out, "443/TCP") {
		t.Errorf("kubectl get service kubernetes:\n%s", out)
	}
	c.Nodes()[1].Kubectl(t, "create", "namespace", "fresh")
	defer n.Kubectl(t, "delete", "namespace", "fresh")
	cluster.Await(t, 10*time.Second, "a service account", func() string {
		out := c.Nodes()[2].TryKubectl(t, nil, "", "--namespace", "fresh", "get", "serviceaccount", "default")
		if !strings.HasPrefix(out.Stdout, "NAME") {
			return out.Stderr
		}
		return ""
	})
}
