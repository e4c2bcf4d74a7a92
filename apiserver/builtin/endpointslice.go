package builtin

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/tree"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var endpointSliceStrategy = objects.Strategy{Prepare: dropTopology, ValidateClients: validateEndpointSlice}

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

// validateEndpointSlice checks the addresses of an EndpointSlice, as validateEndpoints does.
func validateEndpointSlice(obj, old tree.Object) (errs field.ErrorList) {
	if old != nil && semanticEqual(obj["endpoints"], old["endpoints"]) {
		return nil
	}
	kind := tree.Text(obj, "addressType")
	for i, e := range tree.List(obj["endpoints"]) {
		path := field.NewPath("endpoints").Index(i).Child("addresses")
		for j, a := range tree.List(tree.As(e)["addresses"]) {
			ip, _ := a.(string)
			errs = append(errs, validateSliceAddress(kind, ip, path, path.Index(j))...)
		}
	}
	return errs
}

func validateSliceAddress(kind, ip string, all, at *field.Path) (errs field.ErrorList) {
	var family string
	switch kind {
	case "IPv4":
		family, errs = "IPv4", validation.IsValidIPForLegacyField(at, ip, true, nil)
	case "IPv6":
		family, errs = "IPv6", validation.IsValidIP(at, ip)
	case "FQDN":
		return validation.IsFullyQualifiedDomainName(at, ip)
	default:
		return nil // the schema knows the types
	}
	if len(errs) > 0 {
		return errs
	}
	if addr, err := netip.ParseAddr(ip); err == nil && addr.Is4() != (family == "IPv4") {
		errs = append(errs, field.Invalid(all, ip, "must be an "+family+" address"))
	}
	return append(errs, validateEndpointIP(ip, at)...)
}
