package rules

import (
	"fmt"
	"net/netip"

	"github.com/quorate/quorate/apiserver/tree"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// endpointAddresses checks the addresses of Endpoints. What is stored already is no
// reason to refuse an update that leaves it alone.
func endpointAddresses(obj, old tree.Object) (errs field.ErrorList) {
	if old != nil && Equal(obj["subsets"], old["subsets"]) {
		return nil
	}
	for i, s := range tree.List(obj["subsets"]) {
		path := field.NewPath("subsets").Index(i)
		for _, kind := range [...]string{"addresses", "notReadyAddresses"} {
			for j, a := range tree.List(tree.As(s)[kind]) {
				at := path.Child(kind).Index(j).Child("ip")
				ip := tree.Text(tree.As(a), "ip")
				errs = append(errs, validation.IsValidIPForLegacyField(at, ip, true, nil)...)
				errs = append(errs, endpointIP(ip, at)...)
			}
		}
	}
	return errs
}

// sliceAddresses checks the addresses of an EndpointSlice, as endpointAddresses does.
func sliceAddresses(obj, old tree.Object) (errs field.ErrorList) {
	if old != nil && Equal(obj["endpoints"], old["endpoints"]) {
		return nil
	}
	kind := tree.Text(obj, "addressType")
	for i, e := range tree.List(obj["endpoints"]) {
		path := field.NewPath("endpoints").Index(i).Child("addresses")
		for j, a := range tree.List(tree.As(e)["addresses"]) {
			ip, _ := a.(string)
			errs = append(errs, sliceAddress(kind, ip, path, path.Index(j))...)
		}
	}
	return errs
}

func sliceAddress(kind, ip string, all, at *field.Path) (errs field.ErrorList) {
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
	return append(errs, endpointIP(ip, at)...)
}

// endpointIP refuses addresses that lead to the machine of anyone who connects there, or to
// its neighbours: clients with more rights than the writer connect to endpoints, this
// server among them.
func endpointIP(text string, path *field.Path) (errs field.ErrorList) {
	ip, err := netip.ParseAddr(text)
	if err != nil {
		return field.ErrorList{field.Invalid(path, text, "must be a valid IP address")}
	}
	ip = ip.Unmap()
	if ip.IsUnspecified() {
		errs = append(errs, field.Invalid(path, text, fmt.Sprintf("may not be unspecified (%v)", text)))
	}
	if ip.IsLoopback() {
		errs = append(errs, field.Invalid(path, text, "may not be in the loopback range (127.0.0.0/8, ::1/128)"))
	}
	if ip.IsLinkLocalUnicast() {
		errs = append(errs, field.Invalid(path, text, "may not be in the link-local range (169.254.0.0/16, fe80::/10)"))
	}
	if ip.IsLinkLocalMulticast() {
		errs = append(errs, field.Invalid(path, text, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"))
	}
	return errs
}
