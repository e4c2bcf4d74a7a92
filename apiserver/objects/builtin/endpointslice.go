package builtin

import (
	"maps"
	"slices"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/types/tree"
	"k8s.io/apimachinery/pkg/util/validation"
)

// endpointSliceStrategy is that of EndpointSlices: as endpointsStrategy.
var endpointSliceStrategy = objects.Strategy{Prepare: dropTopology, TrustsNode: true}

const hostnameLabel = "kubernetes.io/hostname"

// dropTopology takes deprecatedTopology out of endpoints that are written: only
// discovery.k8s.io/v1beta1 had it. What was stored stays as long as nobody changes the
// endpoints. A node's name that it held moves to nodeName.
func dropTopology(obj, old tree.Object) {
	endpoints := tree.List(obj["endpoints"])
	if old != nil && tree.Equal(old["endpoints"], obj["endpoints"]) {
		return
	}
	known := map[string]bool{}
	for _, e := range tree.List(old["endpoints"]) {
		known[tree.Text(tree.As(tree.As(e)["deprecatedTopology"]), hostnameLabel)] = true
	}
	dropped := false
	endpoints = slices.Clone(endpoints)
	for i, e := range endpoints {
		endpoint := tree.As(e)
		topology, ok := endpoint["deprecatedTopology"]
		if !ok {
			continue
		}
		endpoint = maps.Clone(endpoint)
		node := tree.Text(tree.As(topology), hostnameLabel)
		if endpoint["nodeName"] == nil && known[node] && len(validation.IsDNS1123Subdomain(node)) == 0 {
			endpoint["nodeName"] = node
		}
		delete(endpoint, "deprecatedTopology")
		endpoints[i], dropped = endpoint, true
	}
	if dropped {
		obj["endpoints"] = endpoints
	}
}
