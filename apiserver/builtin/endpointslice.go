package builtin

import (
	"fmt"
	"maps"
	"slices"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/tree"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// endpointSliceStrategy is that of EndpointSlices: as endpointsStrategy.
var endpointSliceStrategy = objects.Strategy{Prepare: dropTopology, TrustsNode: true, Warnings: warningsForEndpointSlice}

// warningsForEndpointSlice are of addresses that clients write: upstream's controllers write good ones.
func warningsForEndpointSlice(obj, old tree.Object) (out []string) {
	if old == nil && tree.Text(obj, "addressType") == string(discoveryv1.AddressTypeFQDN) {
		out = append(out, "spec.addressType: FQDN endpoints are deprecated")
	}
	labels := tree.As(tree.Field(obj, "metadata", "labels"))
	switch tree.Text(labels, discoveryv1.LabelManagedBy) {
	case "endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io":
		return out
	}
	for i, e := range tree.List(obj["endpoints"]) {
		for j, a := range tree.List(tree.As(e)["addresses"]) {
			out = append(out, warningsForIP(tree.Scalar(a), func() string { return fmt.Sprintf("endpoints[%d].addresses[%d]", i, j) })...)
		}
	}
	return out
}

const hostnameLabel = "kubernetes.io/hostname"

// dropTopology takes deprecatedTopology out of endpoints that are written: only
// discovery.k8s.io/v1beta1 had it. What was stored stays as long as nobody changes the
// endpoints. A node's name that it held moves to nodeName.
func dropTopology(obj, old tree.Object) {
	endpoints := tree.List(obj["endpoints"])
	if old != nil && semanticEqual(old["endpoints"], obj["endpoints"]) {
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
