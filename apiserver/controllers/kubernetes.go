package controllers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/quorate/quorate/apiserver/objects"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Servers says where the API is served.
type Servers struct {
	// List returns the URLs under which clients reach the members of the cluster, as
	// the leader knows them now.
	List func() ([]string, error)
	// Address is the one that Pods reach the Service under, normally the first of the
	// range of service addresses.
	Address netip.Addr
	// Resolve looks a host's addresses up. Nil: the system's resolver.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)
}

const (
	kubernetesService = "kubernetes"
	portName          = "https"
	servicePort       = 443
)

var (
	servicesResource  = corev1.SchemeGroupVersion.WithResource("services")
	endpointsResource = corev1.SchemeGroupVersion.WithResource("endpoints")
	slicesResource    = discoveryv1.SchemeGroupVersion.WithResource("endpointslices")
)

// Pauses of the loop: until it asks again who is a member, and until it looks at the
// objects although nobody came or went, as often as upstream does.
const (
	membersPeriod = time.Second
	servicePeriod = 10 * time.Second
	resolveWithin = 5 * time.Second
)

// serviceSync keeps the Service kubernetes of the namespace default, and the endpoints that lead to the members.
type serviceSync struct {
	base
	Servers
}

func (s *serviceSync) run(ctx context.Context) error {
	var known []netip.AddrPort
	var looked time.Time
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
		}
		timer.Reset(membersPeriod)
		now, err := s.endpoints(ctx)
		if err == nil && (!slices.Equal(now, known) || time.Since(looked) >= servicePeriod) {
			if err = ensureService(ctx, s.api, s.Address, now); err == nil {
				known, looked = now, time.Now()
			}
		}
		if ctx.Err() == nil && !apierrors.IsConflict(err) {
			s.reports.tried("cannot sync the kubernetes Service, retrying", err)
		}
	}
}

// endpoints are the sorted addresses of the members.
func (s *Servers) endpoints(ctx context.Context) ([]netip.AddrPort, error) {
	urls, err := s.List()
	if err != nil {
		return nil, fmt.Errorf("list members: %w", err)
	}
	var out []netip.AddrPort
	for _, raw := range urls {
		u, err := url.Parse(raw)
		if err != nil {
			return nil, fmt.Errorf("address of a member: %w", err)
		}
		port, err := strconv.ParseUint(u.Port(), 10, 16)
		if err != nil {
			return nil, fmt.Errorf("address of a member: %s: %w", raw, err)
		}
		addrs, err := s.resolve(ctx, u.Hostname())
		if err != nil {
			return nil, fmt.Errorf("address of a member: %w", err)
		}
		for _, a := range addrs {
			out = append(out, netip.AddrPortFrom(a.Unmap(), uint16(port)))
		}
	}
	slices.SortFunc(out, netip.AddrPort.Compare)
	return slices.Compact(out), nil
}

func (s *Servers) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, resolveWithin)
	defer cancel()
	if s.Resolve != nil {
		return s.Resolve(ctx, host)
	}
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}

// ensureService makes what is missing and mends the endpoints. The Service itself is
// never changed once it is there, as upstream has it.
func ensureService(ctx context.Context, api objects.Client, address netip.Addr, endpoints []netip.AddrPort) error {
	if len(endpoints) == 0 {
		return errors.New("no member says where it serves")
	}
	var there corev1.Service
	err := api.Get(ctx, servicesResource, corev1.NamespaceDefault, kubernetesService, &there)
	if apierrors.IsNotFound(err) {
		err = api.Create(ctx, servicesResource, corev1.NamespaceDefault, serviceFor(address, endpoints))
		if apierrors.IsAlreadyExists(err) {
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("service: %w", err)
	}
	if err := ensureEndpoints(ctx, api, endpointsFor(endpoints)); err != nil {
		return fmt.Errorf("endpoints: %w", err)
	}
	return ensureSlices(ctx, api, slicesFor(endpoints))
}

func serviceFor(address netip.Addr, endpoints []netip.AddrPort) *corev1.Service {
	single := corev1.IPFamilyPolicySingleStack
	s := &corev1.Service{Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeClusterIP, IPFamilyPolicy: &single, SessionAffinity: corev1.ServiceAffinityNone,
		Ports: []corev1.ServicePort{{
			Name: portName, Protocol: corev1.ProtocolTCP, Port: servicePort, TargetPort: intstr.FromInt32(int32(endpoints[0].Port())),
		}},
	}}
	if address.IsValid() {
		s.Spec.ClusterIP = address.String()
	}
	s.Namespace, s.Name = corev1.NamespaceDefault, kubernetesService
	s.Labels = map[string]string{"component": "apiserver", "provider": kubernetesService}
	return s
}

// endpointGroup is where members listen on the same port, in addresses of one
// family.
type endpointGroup struct {
	port  uint16
	ip6   bool
	addrs []string
}

// groups sorts addresses by port and family. Members normally share both.
func groups(endpoints []netip.AddrPort) []endpointGroup {
	var out []endpointGroup
	for _, e := range endpoints {
		ip6 := e.Addr().Is6()
		i := slices.IndexFunc(out, func(g endpointGroup) bool { return g.port == e.Port() && g.ip6 == ip6 })
		if i < 0 {
			i = len(out)
			out = append(out, endpointGroup{port: e.Port(), ip6: ip6})
		}
		out[i].addrs = append(out[i].addrs, e.Addr().String())
	}
	return out
}

// slicesFor are the slices of the Service. The first one has upstream's name; more are
// needed only for members on different ports or of both families.
func slicesFor(endpoints []netip.AddrPort) []*discoveryv1.EndpointSlice {
	var out []*discoveryv1.EndpointSlice
	for _, g := range groups(endpoints) {
		name, port, protocol, ready := portName, int32(g.port), corev1.ProtocolTCP, true
		s := &discoveryv1.EndpointSlice{
			AddressType: discoveryv1.AddressTypeIPv4,
			Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &protocol}},
		}
		s.Namespace, s.Name = corev1.NamespaceDefault, kubernetesService
		s.Labels = map[string]string{discoveryv1.LabelServiceName: kubernetesService}
		if g.ip6 {
			s.AddressType = discoveryv1.AddressTypeIPv6
		}
		if len(out) > 0 {
			family := "ipv4"
			if g.ip6 {
				family = "ipv6"
			}
			s.Name = fmt.Sprintf("%s-%s-%d", kubernetesService, family, g.port)
			s.Labels[discoveryv1.LabelManagedBy] = string(KubernetesController)
		}
		for _, a := range g.addrs {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}})
		}
		out = append(out, s)
	}
	return out
}
