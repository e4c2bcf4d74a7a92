package cluster

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AwaitEndpoints waits until the Service kubernetes leads to the API of all nodes of
// the cluster, and to nothing else.
func AwaitEndpoints(t *testing.T, c *Cluster, ask *Node) {
	t.Helper()
	var want []string
	for _, n := range c.Nodes() {
		u, err := url.Parse(n.API)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, u.Port())
	}
	slices.Sort(want)
	Await(t, 20*time.Second, "endpoints of the Service kubernetes", func() string {
		all, err := ask.Typed(t).DiscoveryV1().EndpointSlices("default").List(t.Context(), metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=kubernetes"})
		if err != nil {
			return err.Error()
		}
		var got []string
		for _, s := range all.Items {
			for _, e := range s.Endpoints {
				if e.Addresses[0] == "127.0.0.1" {
					got = append(got, strconv.Itoa(int(*s.Ports[0].Port)))
				}
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			return "ports " + strings.Join(got, " ") + ", want " + strings.Join(want, " ")
		}
		return ""
	})
}
