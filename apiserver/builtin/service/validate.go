package service

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Validate checks what the schema cannot say. s has been through Normalize; it may
// still lack what Allocate fills in. old is nil for a create.
func Validate(s, old *corev1.ServiceSpec) field.ErrorList {
	var errs field.ErrorList
	if old != nil {
		errs = append(errs, unchangedAddresses(s, old)...)
		errs = append(errs, unchangedFamilies(s, old)...)
		if old.Type == corev1.ServiceTypeLoadBalancer && s.Type == corev1.ServiceTypeLoadBalancer && !samePointer(s.LoadBalancerClass, old.LoadBalancerClass) {
			errs = append(errs, field.Invalid(specPath.Child("loadBalancerClass"), s.LoadBalancerClass, "may not change once set"))
		}
		if needsHealthPort(old) && needsHealthPort(s) && s.HealthCheckNodePort != old.HealthCheckNodePort {
			errs = append(errs, field.Forbidden(specPath.Child("healthCheckNodePort"), "field is immutable"))
		}
	}
	errs = append(errs, validateType(s)...)
	errs = append(errs, validatePorts(s)...)
	if s.Selector != nil {
		errs = append(errs, metav1validation.ValidateLabels(s.Selector, specPath.Child("selector"))...)
	}
	errs = append(errs, validateAffinity(s)...)
	errs = append(errs, validateAddresses(s, old)...)
	errs = append(errs, validateExternalIPs(s, old)...)
	errs = append(errs, duplicatePorts(s)...)
	errs = append(errs, validateBalancer(s, old)...)
	return append(errs, validateTraffic(s)...)
}

func validateType(s *corev1.ServiceSpec) (errs field.ErrorList) {
	if len(s.Ports) == 0 && !headless(s) && hasAddress(s) {
		errs = append(errs, field.Required(specPath.Child("ports"), ""))
	}
	switch s.Type {
	case corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort:
		if headless(s) {
			errs = append(errs, field.Invalid(specPath.Child("clusterIPs").Index(0), corev1.ClusterIPNone, fmt.Sprintf("may not be set to 'None' for %s services", s.Type)))
		}
	case corev1.ServiceTypeExternalName:
		const not = "may not be set for ExternalName services"
		if len(s.ClusterIPs) > 0 {
			errs = append(errs, field.Forbidden(specPath.Child("clusterIPs"), not))
		}
		if len(s.IPFamilies) > 0 {
			errs = append(errs, field.Forbidden(specPath.Child("ipFamilies"), not))
		}
		if s.IPFamilyPolicy != nil {
			errs = append(errs, field.Forbidden(specPath.Child("ipFamilyPolicy"), not))
		}
		name := strings.TrimSuffix(s.ExternalName, ".")
		if name == "" {
			return append(errs, field.Required(specPath.Child("externalName"), ""))
		}
		errs = append(errs, invalid(specPath.Child("externalName"), name, validation.IsDNS1123Subdomain(name))...)
	}
	return errs
}

func invalid(path *field.Path, value any, texts []string) (errs field.ErrorList) {
	for _, text := range texts {
		errs = append(errs, field.Invalid(path, value, text))
	}
	return errs
}

func validatePorts(s *corev1.ServiceSpec) (errs field.ErrorList) {
	names := map[string]bool{}
	for i := range s.Ports {
		p, path := &s.Ports[i], specPath.Child("ports").Index(i)
		switch {
		case p.Name == "" && len(s.Ports) > 1:
			errs = append(errs, field.Required(path.Child("name"), ""))
		case p.Name != "":
			errs = append(errs, invalid(path.Child("name"), p.Name, validation.IsDNS1123Label(p.Name))...)
			if names[p.Name] {
				errs = append(errs, field.Duplicate(path.Child("name"), p.Name))
			}
			names[p.Name] = true
		}
		errs = append(errs, invalid(path.Child("port"), p.Port, validation.IsValidPortNum(int(p.Port)))...)
		if p.TargetPort.Type == intstr.String {
			errs = append(errs, invalid(path.Child("targetPort"), p.TargetPort.StrVal, validation.IsValidPortName(p.TargetPort.StrVal))...)
		} else {
			errs = append(errs, invalid(path.Child("targetPort"), p.TargetPort.IntVal, validation.IsValidPortNum(int(p.TargetPort.IntVal)))...)
		}
		if p.AppProtocol != nil {
			errs = append(errs, invalid(path.Child("appProtocol"), *p.AppProtocol, validation.IsQualifiedName(*p.AppProtocol))...)
		}
	}
	return errs
}

func duplicatePorts(s *corev1.ServiceSpec) (errs field.ErrorList) {
	type number struct {
		protocol corev1.Protocol
		port     int32
	}
	ports, nodePorts := map[number]bool{}, map[number]bool{}
	for i := range s.Ports {
		p, path := &s.Ports[i], specPath.Child("ports").Index(i)
		if s.Type == corev1.ServiceTypeClusterIP && p.NodePort != 0 {
			errs = append(errs, field.Forbidden(path.Child("nodePort"), "may not be used when `type` is 'ClusterIP'"))
		}
		port, nodePort := number{p.Protocol, p.Port}, number{p.Protocol, p.NodePort}
		if p.NodePort != 0 && nodePorts[nodePort] {
			errs = append(errs, field.Duplicate(path.Child("nodePort"), p.NodePort))
		}
		if ports[port] {
			errs = append(errs, field.Duplicate(path, corev1.ServicePort{Protocol: p.Protocol, Port: p.Port}))
		}
		ports[port], nodePorts[nodePort] = true, true
	}
	return errs
}

func validateAffinity(s *corev1.ServiceSpec) field.ErrorList {
	const most = 86400
	c := s.SessionAffinityConfig
	if s.SessionAffinity != corev1.ServiceAffinityClientIP || c == nil || c.ClientIP == nil || c.ClientIP.TimeoutSeconds == nil {
		return nil
	}
	if n := *c.ClientIP.TimeoutSeconds; n <= 0 || n > most {
		return field.ErrorList{field.Invalid(specPath.Child("sessionAffinityConfig", "clientIP", "timeoutSeconds"), n, fmt.Sprintf("must be greater than 0 and less than %d", most))}
	}
	return nil
}

// validateAddresses checks clusterIP, clusterIPs and ipFamilies against each other.
func validateAddresses(s, old *corev1.ServiceSpec) (errs field.ErrorList) {
	if !hasAddress(s) {
		return nil
	}
	path := specPath.Child("clusterIPs")
	switch {
	case s.ClusterIP != "" && len(s.ClusterIPs) == 0:
		errs = append(errs, field.Required(path, ""))
	case s.ClusterIP != "" && s.ClusterIPs[0] != s.ClusterIP:
		errs = append(errs, field.Invalid(path, s.ClusterIPs, "first value must match `clusterIP`"))
	case s.ClusterIP == "" && len(s.ClusterIPs) != 0:
		errs = append(errs, field.Invalid(path, s.ClusterIPs, "must be empty when `clusterIP` is not specified"))
	}
	families := map[corev1.IPFamily]bool{}
	for i, f := range s.IPFamilies {
		if families[f] {
			errs = append(errs, field.Duplicate(specPath.Child("ipFamilies").Index(i), f))
		}
		families[f] = true
	}
	malformed := false
	for i, ip := range s.ClusterIPs {
		switch {
		case i == 0 && ip == corev1.ClusterIPNone:
			if len(s.ClusterIPs) > 1 {
				malformed = true
				errs = append(errs, field.Invalid(path, s.ClusterIPs, "'None' must be the first and only value"))
			}
		case old != nil && slices.Contains(old.ClusterIPs, ip):
		default:
			bad := validation.IsValidIP(path.Index(i), ip)
			malformed = malformed || len(bad) > 0
			errs = append(errs, bad...)
		}
	}
	if len(s.ClusterIPs) > 2 {
		errs = append(errs, field.Invalid(path, s.ClusterIPs, "may only hold up to 2 values"))
	}
	if malformed {
		return errs
	}
	if len(s.ClusterIPs) == 2 && familyOf(s.ClusterIPs[0]) == familyOf(s.ClusterIPs[1]) {
		errs = append(errs, field.Invalid(path, s.ClusterIPs, "may specify no more than one IP for each IP family"))
	}
	if headless(s) {
		return errs
	}
	for i, ip := range s.ClusterIPs {
		if i < len(s.IPFamilies) && s.IPFamilies[i] != familyOf(ip) {
			errs = append(errs, field.Invalid(path.Index(i), ip, fmt.Sprintf("expected an %s value as indicated by `ipFamilies[%v]`", s.IPFamilies[i], i)))
		}
	}
	return errs
}

// unchangedAddresses lets a second address come and go, and nothing else change.
func unchangedAddresses(s, old *corev1.ServiceSpec) (errs field.ErrorList) {
	if !hasAddress(s) || !hasAddress(old) || headless(s) && headless(old) {
		return nil
	}
	path := specPath.Child("clusterIPs")
	for i := range min(len(s.ClusterIPs), len(old.ClusterIPs)) {
		if s.ClusterIPs[i] != old.ClusterIPs[i] {
			errs = append(errs, field.Invalid(path.Index(i), s.ClusterIPs, "may not change once set"))
		}
	}
	if len(old.ClusterIPs) > 0 && len(s.ClusterIPs) == 0 {
		errs = append(errs, field.Invalid(path.Index(0), s.ClusterIPs, "primary clusterIP can not be unset"))
	}
	if len(old.ClusterIPs) == 2 && len(s.ClusterIPs) == 1 && policyOf(s) != corev1.IPFamilyPolicySingleStack {
		errs = append(errs, field.Invalid(specPath.Child("ipFamilyPolicy"), s.IPFamilyPolicy, "must be set to 'SingleStack' when releasing the secondary clusterIP"))
	}
	return errs
}

func unchangedFamilies(s, old *corev1.ServiceSpec) (errs field.ErrorList) {
	if !hasAddress(s) || !hasAddress(old) || headless(s) || headless(old) {
		return nil
	}
	for i := range min(len(s.IPFamilies), len(old.IPFamilies)) {
		if s.IPFamilies[i] != old.IPFamilies[i] {
			errs = append(errs, field.Invalid(specPath.Child("ipFamilies").Index(0), s.IPFamilies, "may not change once set"))
		}
	}
	return errs
}

// validateExternalIPs, as validateBalancer, lets addresses through that are not in their
// canonical form: that is a warning. One that is there already is not refused.
func validateExternalIPs(s, old *corev1.ServiceSpec) (errs field.ErrorList) {
	var known []string
	if old != nil {
		known = old.ExternalIPs
	}
	for i, text := range s.ExternalIPs {
		path := specPath.Child("externalIPs").Index(i)
		if bad := validation.IsValidIPForLegacyField(path, text, true, known); len(bad) > 0 {
			errs = append(errs, bad...)
			continue
		}
		ip, err := netip.ParseAddr(text)
		switch {
		case err != nil:
		case ip.IsUnspecified():
			errs = append(errs, field.Invalid(path, text, fmt.Sprintf("may not be unspecified (%v)", text)))
		case ip.IsLoopback():
			errs = append(errs, field.Invalid(path, text, "may not be in the loopback range (127.0.0.0/8, ::1/128)"))
		case ip.IsLinkLocalUnicast():
			errs = append(errs, field.Invalid(path, text, "may not be in the link-local range (169.254.0.0/16, fe80::/10)"))
		case ip.IsLinkLocalMulticast():
			errs = append(errs, field.Invalid(path, text, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"))
		}
	}
	return errs
}

func validateBalancer(s, old *corev1.ServiceSpec) (errs field.ErrorList) {
	var known []string
	if old != nil {
		for _, text := range old.LoadBalancerSourceRanges {
			known = append(known, strings.TrimSpace(text))
		}
	}
	const only = "may only be used when `type` is 'LoadBalancer'"
	balanced := s.Type == corev1.ServiceTypeLoadBalancer
	if len(s.LoadBalancerSourceRanges) > 0 {
		path := specPath.Child("LoadBalancerSourceRanges")
		if !balanced {
			errs = append(errs, field.Forbidden(path, only))
		}
		for i, text := range s.LoadBalancerSourceRanges {
			errs = append(errs, validation.IsValidCIDRForLegacyField(path.Index(i), strings.TrimSpace(text), true, known)...)
		}
	}
	if s.AllocateLoadBalancerNodePorts != nil && !balanced {
		errs = append(errs, field.Forbidden(specPath.Child("allocateLoadBalancerNodePorts"), only))
	}
	if s.LoadBalancerClass != nil {
		path := specPath.Child("loadBalancerClass")
		errs = append(errs, invalid(path, *s.LoadBalancerClass, validation.IsQualifiedName(*s.LoadBalancerClass))...)
		if !balanced {
			errs = append(errs, field.Forbidden(path, only))
		}
	}
	return errs
}

func validateTraffic(s *corev1.ServiceSpec) (errs field.ErrorList) {
	if s.ExternalTrafficPolicy != "" && !reachableFromOutside(s) {
		errs = append(errs, field.Invalid(specPath.Child("externalTrafficPolicy"), s.ExternalTrafficPolicy, "may only be set for externally-accessible services"))
	}
	path := specPath.Child("healthCheckNodePort")
	switch {
	case s.HealthCheckNodePort == 0:
	case !needsHealthPort(s):
		errs = append(errs, field.Invalid(path, s.HealthCheckNodePort, "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"))
	default:
		errs = append(errs, invalid(path, s.HealthCheckNodePort, validation.IsValidPortNum(int(s.HealthCheckNodePort)))...)
	}
	return errs
}
