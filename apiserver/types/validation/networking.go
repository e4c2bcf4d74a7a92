package validation

import (
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/discovery"
	upstreamdiscovery "k8s.io/kubernetes/pkg/apis/discovery/v1"
	discoveryvalidation "k8s.io/kubernetes/pkg/apis/discovery/validation"
	"k8s.io/kubernetes/pkg/apis/networking"
	v1 "k8s.io/kubernetes/pkg/apis/networking/v1"
	"k8s.io/kubernetes/pkg/apis/networking/validation"
)

var networkingKinds = map[string]Kind{
	"endpointslices.discovery.k8s.io": rules[discoveryv1.EndpointSlice, discovery.EndpointSlice]{
		convert: upstreamdiscovery.Convert_v1_EndpointSlice_To_discovery_EndpointSlice,
		warn:    endpointSliceWarnings,
		create:  discoveryvalidation.ValidateEndpointSliceCreate,
		update:  discoveryvalidation.ValidateEndpointSliceUpdate,
	},
	"ingresses.networking.k8s.io": rules[networkingv1.Ingress, networking.Ingress]{
		convert: v1.Convert_v1_Ingress_To_networking_Ingress,
		warn:    ingressWarnings,
		create:  validation.ValidateIngressCreate,
		update: func(i, old *networking.Ingress) field.ErrorList {
			return withOldIngress(i, old, validation.ValidateIngressUpdate)
		},
		parts: map[string]func(i, old *networking.Ingress) field.ErrorList{"status": func(i, old *networking.Ingress) field.ErrorList {
			return withOldIngress(i, old, validation.ValidateIngressStatusUpdate)
		}},
	},
	"ingressclasses.networking.k8s.io": rules[networkingv1.IngressClass, networking.IngressClass]{
		convert: v1.Convert_v1_IngressClass_To_networking_IngressClass,
		create:  validation.ValidateIngressClass,
		update:  validation.ValidateIngressClassUpdate,
	},
	"ipaddresses.networking.k8s.io": rules[networkingv1.IPAddress, networking.IPAddress]{
		convert: v1.Convert_v1_IPAddress_To_networking_IPAddress,
		create:  validation.ValidateIPAddress,
		update: func(ip, old *networking.IPAddress) field.ErrorList {
			return append(validation.ValidateIPAddress(ip), validation.ValidateIPAddressUpdate(ip, old)...)
		},
	},
	"networkpolicies.networking.k8s.io": rules[networkingv1.NetworkPolicy, networking.NetworkPolicy]{
		convert: v1.Convert_v1_NetworkPolicy_To_networking_NetworkPolicy,
		warn:    networkPolicyWarnings,
		create: func(p *networking.NetworkPolicy) field.ErrorList {
			return validation.ValidateNetworkPolicy(p, validation.ValidationOptionsForNetworking(p, nil))
		},
		update: func(p, old *networking.NetworkPolicy) field.ErrorList {
			was := networking.NetworkPolicy{ObjectMeta: old.ObjectMeta, Spec: refusedBlocks(&old.Spec)}
			return validation.ValidateNetworkPolicyUpdate(p, &was, validation.ValidationOptionsForNetworking(p, old))
		},
	},
	"servicecidrs.networking.k8s.io": rules[networkingv1.ServiceCIDR, networking.ServiceCIDR]{
		convert: v1.Convert_v1_ServiceCIDR_To_networking_ServiceCIDR,
		create:  validation.ValidateServiceCIDR,
		update:  validation.ValidateServiceCIDRUpdate,
		parts:   map[string]func(c, old *networking.ServiceCIDR) field.ErrorList{"status": validation.ValidateServiceCIDRStatusUpdate},
	},
}
