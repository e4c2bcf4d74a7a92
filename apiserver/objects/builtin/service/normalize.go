package service

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

func headless(s *corev1.ServiceSpec) bool {
	return len(s.ClusterIPs) == 1 && s.ClusterIPs[0] == corev1.ClusterIPNone || s.ClusterIP == corev1.ClusterIPNone
}

func hasAddress(s *corev1.ServiceSpec) bool { return s.Type != corev1.ServiceTypeExternalName }

// mayHavePorts says that a type can have node ports, needsPorts that those that
// are missing are to be found.
func mayHavePorts(s *corev1.ServiceSpec) bool {
	return s.Type == corev1.ServiceTypeNodePort || s.Type == corev1.ServiceTypeLoadBalancer
}

func needsPorts(s *corev1.ServiceSpec) bool {
	return s.Type == corev1.ServiceTypeNodePort ||
		s.Type == corev1.ServiceTypeLoadBalancer && (s.AllocateLoadBalancerNodePorts == nil || *s.AllocateLoadBalancerNodePorts)
}

// needsHealthPort says that nodes are asked whether they have an endpoint.
func needsHealthPort(s *corev1.ServiceSpec) bool {
	return s.Type == corev1.ServiceTypeLoadBalancer && s.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

func reachableFromOutside(s *corev1.ServiceSpec) bool {
	return mayHavePorts(s) || s.Type == corev1.ServiceTypeClusterIP && len(s.ExternalIPs) > 0
}

func policyOf(s *corev1.ServiceSpec) corev1.IPFamilyPolicy {
	if s.IPFamilyPolicy == nil {
		return ""
	}
	return *s.IPFamilyPolicy
}

// Normalize makes dependent fields agree before anything is allocated: what was
// allocated for old and is left out stays, what the new type has no use for goes,
// and clusterIP and clusterIPs say the same. old is nil for a create.
func Normalize(s, old *corev1.ServiceSpec) {
	if old != nil {
		dropUnused(s, old)
		keepAllocated(s, old)
	}
	agree(s, old)
	// Upstream leaves it out of what is read. One that is wrong stays, for validation to refuse.
	if p := s.InternalTrafficPolicy; p != nil && !hasAddress(s) && (*p == corev1.ServiceInternalTrafficPolicyCluster || *p == corev1.ServiceInternalTrafficPolicyLocal) {
		s.InternalTrafficPolicy = nil
	}
}

// dropUnused removes what was there for the old type only. What the client has
// changed at the same time stays, for validation to refuse.
func dropUnused(s, old *corev1.ServiceSpec) {
	if hasAddress(old) && !hasAddress(s) {
		if s.ClusterIP == old.ClusterIP && slices.Equal(s.ClusterIPs, old.ClusterIPs) {
			s.ClusterIP, s.ClusterIPs = "", nil
		}
		if slices.Equal(s.IPFamilies, old.IPFamilies) {
			s.IPFamilies = nil
		}
		if policyOf(s) == policyOf(old) {
			s.IPFamilyPolicy = nil
		}
	}
	if mayHavePorts(old) && !mayHavePorts(s) && !addsPorts(s, old) {
		for i := range s.Ports {
			s.Ports[i].NodePort = 0
		}
	}
	if needsHealthPort(old) && !needsHealthPort(s) && s.HealthCheckNodePort == old.HealthCheckNodePort {
		s.HealthCheckNodePort = 0
	}
	if old.Type == corev1.ServiceTypeLoadBalancer && s.Type != corev1.ServiceTypeLoadBalancer {
		if samePointer(s.AllocateLoadBalancerNodePorts, old.AllocateLoadBalancerNodePorts) {
			s.AllocateLoadBalancerNodePorts = nil
		}
		if samePointer(s.LoadBalancerClass, old.LoadBalancerClass) {
			s.LoadBalancerClass = nil
		}
	}
	if reachableFromOutside(old) && !reachableFromOutside(s) && s.ExternalTrafficPolicy == old.ExternalTrafficPolicy {
		s.ExternalTrafficPolicy = ""
	}
}

func samePointer[T comparable](a, b *T) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}

// addsPorts reports whether s has a node port that old has not.
func addsPorts(s, old *corev1.ServiceSpec) bool {
	for _, p := range s.Ports {
		if p.NodePort != 0 && !usesPort(old, p.NodePort) {
			return true
		}
	}
	return false
}

func usesPort(s *corev1.ServiceSpec, number int32) bool {
	return slices.ContainsFunc(s.Ports, func(p corev1.ServicePort) bool { return p.NodePort == number })
}

// keepAllocated lets a client send what it once created again, without what was
// allocated then.
func keepAllocated(s, old *corev1.ServiceSpec) {
	if hasAddress(old) && hasAddress(s) {
		if s.ClusterIP == "" {
			s.ClusterIP = old.ClusterIP
		}
		if len(s.ClusterIPs) == 0 {
			s.ClusterIPs = slices.Clone(old.ClusterIPs)
		}
	}
	if needsPorts(old) && needsPorts(s) {
		byName := map[string]int32{}
		for _, p := range old.Ports {
			byName[p.Name] = p.NodePort
		}
		for i := range s.Ports {
			if p := &s.Ports[i]; p.NodePort == 0 && !usesPort(s, byName[p.Name]) {
				p.NodePort = byName[p.Name]
			}
		}
	}
	if needsHealthPort(old) && needsHealthPort(s) && s.HealthCheckNodePort == 0 {
		s.HealthCheckNodePort = old.HealthCheckNodePort
	}
}

// agree fills in clusterIPs for clients that know only clusterIP.
func agree(s, old *corev1.ServiceSpec) {
	switch {
	case old == nil:
		if s.ClusterIP != "" && len(s.ClusterIPs) == 0 {
			s.ClusterIPs = []string{s.ClusterIP}
		}
	case s.ClusterIP == old.ClusterIP:
		if len(s.ClusterIPs) == 0 {
			s.ClusterIPs = slices.Clone(old.ClusterIPs)
		}
	case slices.Equal(s.ClusterIPs, old.ClusterIPs):
		// Only clusterIP was changed.
		s.ClusterIPs = nil
		if s.ClusterIP != "" {
			s.ClusterIPs = []string{s.ClusterIP}
		}
	}
}
