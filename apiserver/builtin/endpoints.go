package builtin

import (
	"fmt"
	"net/netip"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/tree"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var endpointsStrategy = objects.Strategy{ValidateClients: validateEndpoints}

// validateEndpoints checks the addresses of Endpoints. What is stored already is no
// reason to refuse an update that leaves it alone.
func validateEndpoints(obj, old tree.Object) (errs field.ErrorList) {
	if old != nil && semanticEqual(obj["subsets"], old["subsets"]) {
		return nil
	}
	for i, s := range tree.List(obj["subsets"]) {
		path := field.NewPath("subsets").Index(i)
		for _, kind := range [...]string{"addresses", "notReadyAddresses"} {
			for j, a := range tree.List(tree.As(s)[kind]) {
				at := path.Child(kind).Index(j).Child("ip")
				ip := tree.Text(tree.As(a), "ip")
				errs = append(errs, validation.IsValidIPForLegacyField(at, ip, true, nil)...)
				errs = append(errs, validateEndpointIP(ip, at)...)
			}
		}
	}
	return errs
}

// validateEndpointIP refuses addresses that lead to the machine of anyone who connects
// there, or to its neighbours: clients with more rights than the writer connect to
// endpoints, this server among them.
func validateEndpointIP(text string, path *field.Path) (errs field.ErrorList) {
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
