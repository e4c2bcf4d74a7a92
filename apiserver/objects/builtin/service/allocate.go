package service

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ErrFull is wrapped by errors of a Pool that has nothing left.
var ErrFull = errors.New("range is full")

// Pool hands out addresses and ports. Whatever it has handed out belongs to the
// caller until the pool takes it back.
type Pool interface {
	// Families are those of which there are addresses; the first one is the
	// default.
	Families() []corev1.IPFamily
	// Address claims an address of a family: the one that is wanted, or any if
	// want is empty. Errors: ErrFull, or why the wanted one cannot be had.
	Address(family corev1.IPFamily, want string) (string, error)
	// Port claims a port: the one that is wanted, or any if want is zero. A port
	// that the caller has claimed already is granted again. Errors as Address.
	Port(want int32) (int32, error)
}

var specPath = field.NewPath("spec")

// Allocate fills in the IP families, addresses and ports that a Service is to
// have. s has been through Normalize and has no errors of Validate that concern
// those fields; old is nil for a create. errs are for the client (422), err is
// not (500).
func Allocate(s, old *corev1.ServiceSpec, pool Pool) (errs field.ErrorList, err error) {
	if errs := families(s, old, pool.Families()); len(errs) > 0 {
		return errs, nil
	}
	if errs, err := addresses(s, old, pool); len(errs) > 0 || err != nil {
		return errs, err
	}
	if errs, err := ports(s, old, pool); len(errs) > 0 || err != nil {
		return errs, err
	}
	return nil, healthPort(s, old, pool)
}

// familyOf is the family of a valid address.
func familyOf(ip string) corev1.IPFamily {
	if a, err := netip.ParseAddr(ip); err == nil && a.Is6() && !a.Is4In6() {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

func otherFamily(f corev1.IPFamily) corev1.IPFamily {
	if f == corev1.IPv4Protocol {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

// keepsPreferred says that a Service which prefers two families is as it was: it
// is not upgraded or downgraded because the cluster has changed.
func keepsPreferred(s, old *corev1.ServiceSpec) bool {
	return old != nil && hasAddress(s) && hasAddress(old) &&
		policyOf(s) == corev1.IPFamilyPolicyPreferDualStack && policyOf(old) == corev1.IPFamilyPolicyPreferDualStack &&
		s.ClusterIP == old.ClusterIP && slices.Equal(s.ClusterIPs, old.ClusterIPs) && slices.Equal(s.IPFamilies, old.IPFamilies)
}

// families works out ipFamilyPolicy and ipFamilies.
func families(s, old *corev1.ServiceSpec, have []corev1.IPFamily) (errs field.ErrorList) {
	if !hasAddress(s) || keepsPreferred(s, old) {
		return nil
	}
	bare := headless(s) && len(s.Selector) == 0
	if s.IPFamilyPolicy == nil {
		policy := corev1.IPFamilyPolicySingleStack
		switch {
		case old != nil && old.IPFamilyPolicy != nil:
			policy = *old.IPFamilyPolicy
		case bare:
			policy = corev1.IPFamilyPolicyRequireDualStack
		}
		s.IPFamilyPolicy = &policy
	}
	if errs := matchPolicy(s, old); len(errs) > 0 {
		return errs
	}
	for i, ip := range s.ClusterIPs {
		if ip == corev1.ClusterIPNone || i < len(s.IPFamilies) {
			continue
		}
		family := familyOf(ip)
		if !slices.Contains(have, family) {
			errs = append(errs, field.Invalid(specPath.Child("clusterIPs").Index(i), s.ClusterIPs, fmt.Sprintf("%s is not configured on this cluster", family)))
			continue
		}
		s.IPFamilies = append(s.IPFamilies, family)
	}
	if len(errs) > 0 {
		return errs
	}
	if !bare {
		errs = available(s, have)
	}
	if len(errs) > 0 {
		return errs
	}
	if len(s.IPFamilies) == 0 && len(have) > 0 {
		s.IPFamilies = []corev1.IPFamily{have[0]}
	}
	if policyOf(s) != corev1.IPFamilyPolicySingleStack && len(s.IPFamilies) == 1 && (bare || len(have) == 2) {
		s.IPFamilies = append(s.IPFamilies, otherFamily(s.IPFamilies[0]))
	}
	return nil
}

// matchPolicy checks addresses and families against the policy.
func matchPolicy(s, old *corev1.ServiceSpec) (errs field.ErrorList) {
	path := specPath.Child("ipFamilyPolicy")
	single := policyOf(s) == corev1.IPFamilyPolicySingleStack
	if old != nil && single {
		// The policy alone says that the second one is to go.
		if slices.Equal(s.ClusterIPs, old.ClusterIPs) && len(s.ClusterIPs) > 1 {
			s.ClusterIPs = s.ClusterIPs[:1]
		}
		if slices.Equal(s.IPFamilies, old.IPFamilies) && len(s.IPFamilies) > 1 {
			s.IPFamilies = s.IPFamilies[:1]
		}
	}
	if old != nil && !single {
		if len(s.ClusterIPs) == 1 && len(old.ClusterIPs) == 2 && s.ClusterIPs[0] == old.ClusterIPs[0] {
			errs = append(errs, field.Invalid(path, s.IPFamilyPolicy, "must be 'SingleStack' to release the secondary cluster IP"))
		}
		if len(s.IPFamilies) == 1 && len(old.IPFamilies) == 2 && s.IPFamilies[0] == old.IPFamilies[0] {
			errs = append(errs, field.Invalid(path, s.IPFamilyPolicy, "must be 'SingleStack' to release the secondary IP family"))
		}
	}
	if single && len(s.ClusterIPs) == 2 {
		errs = append(errs, field.Invalid(path, s.IPFamilyPolicy, "must be 'RequireDualStack' or 'PreferDualStack' when multiple cluster IPs are specified"))
	}
	if single && len(s.IPFamilies) == 2 {
		errs = append(errs, field.Invalid(path, s.IPFamilyPolicy, "must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified"))
	}
	return errs
}

// available checks that the cluster has what is asked for.
func available(s *corev1.ServiceSpec, have []corev1.IPFamily) (errs field.ErrorList) {
	if policyOf(s) == corev1.IPFamilyPolicyRequireDualStack && len(have) < 2 {
		errs = append(errs, field.Invalid(specPath.Child("ipFamilyPolicy"), s.IPFamilyPolicy, "this cluster is not configured for dual-stack services"))
	}
	for i, f := range s.IPFamilies {
		if !slices.Contains(have, f) {
			errs = append(errs, field.Invalid(specPath.Child("ipFamilies").Index(i), f, "not configured on this cluster"))
		}
	}
	return errs
}

// addresses claims the addresses that s has and old has not.
func addresses(s, old *corev1.ServiceSpec, pool Pool) (field.ErrorList, error) {
	if !hasAddress(s) || headless(s) {
		return nil, nil
	}
	if old != nil && (headless(old) || keepsPreferred(s, old)) {
		// From headless there is no way to an address, as upstream has it;
		// validation says so.
		return nil, nil
	}
	if old != nil && hasAddress(old) && len(s.ClusterIPs) > 0 && len(old.ClusterIPs) > 0 && s.ClusterIPs[0] != old.ClusterIPs[0] {
		return nil, nil // nor to another one
	}
	for i, family := range s.IPFamilies {
		want := ""
		if i < len(s.ClusterIPs) {
			want = s.ClusterIPs[i]
		}
		if want != "" && old != nil && slices.Contains(old.ClusterIPs, want) {
			continue
		}
		if want == "" && old != nil && hasAddress(old) && i < len(old.ClusterIPs) {
			continue // to be refused: an address cannot be unset
		}
		got, err := pool.Address(family, want)
		switch {
		case errors.Is(err, ErrFull):
			return nil, fmt.Errorf("failed to allocate a serviceIP: %w", err)
		case err != nil && want != "":
			return field.ErrorList{field.Invalid(specPath.Child("clusterIPs"), s.ClusterIPs, fmt.Sprintf("failed to allocate IP %v: %v", want, err))}, nil
		case err != nil:
			return nil, fmt.Errorf("allocate a serviceIP: %w", err)
		}
		if i < len(s.ClusterIPs) {
			s.ClusterIPs[i] = got
		} else {
			s.ClusterIPs = append(s.ClusterIPs, got)
		}
	}
	if len(s.ClusterIPs) > 0 {
		s.ClusterIP = s.ClusterIPs[0]
	}
	return nil, nil
}

// ports claims the node ports that s has and old has not. Ports of one Service
// with the same number, for two protocols, get the same node port.
func ports(s, old *corev1.ServiceSpec, pool Pool) (field.ErrorList, error) {
	if !mayHavePorts(s) {
		return nil, nil
	}
	held := map[int32]bool{}
	if old != nil && mayHavePorts(old) {
		for _, p := range old.Ports {
			held[p.NodePort] = p.NodePort != 0
		}
	}
	byPort := map[int32]int32{}
	for i := range s.Ports {
		p := &s.Ports[i]
		if p.NodePort != 0 && !held[p.NodePort] {
			if _, err := pool.Port(p.NodePort); err != nil {
				return field.ErrorList{field.Invalid(specPath.Child("ports").Index(i).Child("nodePort"), p.NodePort, err.Error())}, nil
			}
		}
		if p.NodePort != 0 && byPort[p.Port] == 0 {
			byPort[p.Port] = p.NodePort
		}
	}
	for i := range s.Ports {
		p := &s.Ports[i]
		if p.NodePort != 0 || !needsPorts(s) {
			continue
		}
		if old == nil && byPort[p.Port] != 0 {
			p.NodePort = byPort[p.Port]
			continue
		}
		number, err := pool.Port(0)
		if err != nil {
			return nil, fmt.Errorf("failed to allocate a nodePort: %w", err)
		}
		p.NodePort = number
		byPort[p.Port] = number
	}
	return nil, nil
}

func healthPort(s, old *corev1.ServiceSpec, pool Pool) error {
	if !needsHealthPort(s) || old != nil && needsHealthPort(old) {
		return nil
	}
	want := s.HealthCheckNodePort
	got, err := pool.Port(want)
	switch {
	case err != nil && want != 0:
		return fmt.Errorf("failed to allocate requested HealthCheck NodePort %v: %w", want, err)
	case err != nil:
		return fmt.Errorf("failed to allocate a HealthCheck NodePort: %w", err)
	}
	s.HealthCheckNodePort = got
	return nil
}

// Held returns the addresses and node ports that a stored Service holds.
func Held(s *corev1.ServiceSpec) (addresses []string, ports []int32) {
	if hasAddress(s) && !headless(s) {
		for _, ip := range s.ClusterIPs {
			if ip != "" {
				addresses = append(addresses, ip)
			}
		}
		if len(addresses) == 0 && s.ClusterIP != "" {
			addresses = []string{s.ClusterIP}
		}
	}
	if mayHavePorts(s) {
		for _, p := range s.Ports {
			if p.NodePort != 0 && !slices.Contains(ports, p.NodePort) {
				ports = append(ports, p.NodePort)
			}
		}
	}
	if needsHealthPort(s) && s.HealthCheckNodePort != 0 {
		ports = append(ports, s.HealthCheckNodePort)
	}
	return addresses, ports
}
