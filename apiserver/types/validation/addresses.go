package validation

import (
	"strings"

	apivalidation "k8s.io/kubernetes/pkg/apis/core/validation"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/networking"
)

// Upstream keeps addresses that were stored and that it would refuse today: each of the new object is
// sought in the list of the old one before it is looked at. That takes time by the square of the
// list, 22 s for 110,000 addresses of a Service. An address that is valid needs no such
// exception, so here the old object has only those that are not.

func refusedIP(ip string) bool { return len(apivalidation.IsValidIPForLegacyField(nil, ip, nil)) > 0 }

func refusedCIDR(cidr string) bool {
	return len(apivalidation.IsValidCIDRForLegacyField(nil, strings.TrimSpace(cidr), nil)) > 0
}

// kept are the values that are refused.
func kept[T any](all []T, refused func(T) bool) (out []T) {
	for _, x := range all {
		if refused(x) {
			out = append(out, x)
		}
	}
	return out
}

// withOldService is a validation of a Service's update for which the old one has of its addresses those that
// are refused today.
func withOldService(validate func(s, old *core.Service) field.ErrorList) func(s, old *core.Service) field.ErrorList {
	return func(s, old *core.Service) field.ErrorList {
		was := *old
		was.Spec.ExternalIPs = kept(old.Spec.ExternalIPs, refusedIP) //lint:ignore SA1019 it is served as long as upstream serves it
		was.Spec.LoadBalancerSourceRanges = kept(old.Spec.LoadBalancerSourceRanges, refusedCIDR)
		was.Status.LoadBalancer.Ingress = kept(old.Status.LoadBalancer.Ingress, func(i core.LoadBalancerIngress) bool { return refusedIP(i.IP) })
		return validate(s, &was)
	}
}

// withOldIngress is the same of an Ingress.
func withOldIngress(i, old *networking.Ingress, validate func(i, old *networking.Ingress) field.ErrorList) field.ErrorList {
	was := *old
	was.Status.LoadBalancer.Ingress = kept(old.Status.LoadBalancer.Ingress, func(i networking.IngressLoadBalancerIngress) bool { return refusedIP(i.IP) })
	return validate(i, &was)
}

// withOldPod is the same of a Pod's status.
func withOldPod(validate podValidation) podValidation {
	return func(p, old *core.Pod, opts apivalidation.PodValidationOptions) field.ErrorList {
		was := *old
		was.Status.PodIPs = kept(old.Status.PodIPs, func(ip core.PodIP) bool { return refusedIP(ip.IP) })
		was.Status.HostIPs = kept(old.Status.HostIPs, func(ip core.HostIP) bool { return refusedIP(ip.IP) })
		return validate(p, &was, opts)
	}
}

// refusedBlocks are the ranges of a policy that are refused today, in a spec of which nothing else is asked.
func refusedBlocks(of *networking.NetworkPolicySpec) (out networking.NetworkPolicySpec) {
	add := func(peers []networking.NetworkPolicyPeer) {
		for _, p := range peers {
			if p.IPBlock == nil {
				continue
			}
			b := networking.IPBlock{Except: kept(p.IPBlock.Except, refusedCIDR)}
			if refusedCIDR(p.IPBlock.CIDR) {
				b.CIDR = p.IPBlock.CIDR
			}
			if b.CIDR != "" || b.Except != nil {
				out.Ingress = append(out.Ingress, networking.NetworkPolicyIngressRule{From: []networking.NetworkPolicyPeer{{IPBlock: &b}}})
			}
		}
	}
	for _, r := range of.Ingress {
		add(r.From)
	}
	for _, r := range of.Egress {
		add(r.To)
	}
	return out
}
