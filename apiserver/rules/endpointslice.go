package rules

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"
)

const hostnameLabel = "kubernetes.io/hostname"

// dropTopology takes deprecatedTopology out of endpoints that are written: only
// discovery.k8s.io/v1beta1 had it. What was stored stays as long as nobody changes the
// endpoints. A node's name that it held moves to nodeName.
func dropTopology(obj, old tree) {
	endpoints := list(obj["endpoints"])
	if old != nil && Equal(old["endpoints"], obj["endpoints"]) {
		return
	}
	known := map[string]bool{}
	for _, e := range list(old["endpoints"]) {
		known[text(asTree(asTree(e)["deprecatedTopology"]), hostnameLabel)] = true
	}
	dropped := false
	endpoints = slices.Clone(endpoints)
	for i, e := range endpoints {
		endpoint := asTree(e)
		topology, ok := endpoint["deprecatedTopology"]
		if !ok {
			continue
		}
		endpoint = maps.Clone(endpoint)
		node := text(asTree(topology), hostnameLabel)
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
