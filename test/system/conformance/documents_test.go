package conformance

import (
	"net/http"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

// TestDocumentsAlike: discovery and OpenAPI have the same tags on all nodes, so that what a client has from one it
// need not have again from another.
func TestDocumentsAlike(t *testing.T) {
	nodes := cluster.Shared(t).Nodes()
	get := func(n *cluster.Node, path, accept, tag string) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.API+path, nil)
		must.OK(t, err)
		req.Header.Set("Accept", accept)
		if tag != "" {
			req.Header.Set("If-None-Match", tag)
		}
		resp, err := n.HTTP(t).Do(req)
		must.OK(t, err)
		_ = resp.Body.Close()
		return resp
	}
	const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	for _, x := range [...]struct{ path, accept string }{
		{"/api", aggregated}, {"/apis", aggregated},
		{"/openapi/v2", "application/json"}, {"/openapi/v2", "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"},
		{"/openapi/v3/apis/apps/v1", "application/json"}, {"/openapi/v3/api/v1", "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"},
	} {
		tag := get(nodes[0], x.path, x.accept, "").Header.Get("ETag")
		if tag == "" {
			t.Errorf("%s has no tag", x.path)
		}
		for _, n := range nodes[1:] {
			if got := get(n, x.path, x.accept, "").Header.Get("ETag"); got != tag {
				t.Errorf("%s has the tag %s on %s, %s on %s", x.path, tag, nodes[0].Name, got, n.Name)
			}
			if resp := get(n, x.path, x.accept, tag); resp.StatusCode != http.StatusNotModified {
				t.Errorf("%s: %s of what %s has, from %s: %s", x.path, x.accept, n.Name, nodes[0].Name, resp.Status)
			}
		}
	}
}
