package apiserver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/status"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	servicesGVR       = apischema.GroupVersionResource{Version: "v1", Resource: "services"}
	endpointSlicesGVR = apischema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}
)

// resolveService returns the address at which the server reaches a Service: its cluster
// IP, or with Config.EndpointRouting one of its ready endpoints. It looks into this
// node's state, so that it needs no DNS and no quorum.
func (s *Server) resolveService(_ context.Context, namespace, name string, port int32) (string, error) {
	svc, err := s.service(namespace, name)
	if err != nil {
		return "", err
	}
	switch spec := &svc.Spec; spec.Type {
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort:
		at := slices.IndexFunc(spec.Ports, func(p corev1.ServicePort) bool { return p.Port == port })
		switch {
		case !s.cfg.EndpointRouting && spec.Type == corev1.ServiceTypeClusterIP && spec.ClusterIP == corev1.ClusterIPNone:
			return "", errors.New(`cannot route to service with ClusterIP "None"`)
		case at < 0:
			return "", apierrors.NewServiceUnavailable(fmt.Sprintf("no service port %d found for service %q", port, name))
		case s.cfg.EndpointRouting:
			return s.endpoint(svc, spec.Ports[at].Name)
		}
		return net.JoinHostPort(spec.ClusterIP, strconv.Itoa(int(port))), nil
	case corev1.ServiceTypeExternalName:
		if !s.cfg.EndpointRouting {
			return net.JoinHostPort(spec.ExternalName, strconv.Itoa(int(port))), nil
		}
	}
	return "", fmt.Errorf("unsupported service type %q", svc.Spec.Type)
}

func (s *Server) service(namespace, name string) (*corev1.Service, error) {
	res := s.cfg.Kinds().Lookup(servicesGVR)
	if res == nil {
		return nil, status.NotFound(servicesGVR.GroupResource(), name)
	}
	v, err := s.objects.Current(res.Table(), res.Key(namespace, name))
	if err != nil {
		return nil, err
	}
	if v == nil {
		e := status.NotFound(servicesGVR.GroupResource(), name)
		e.ErrStatus.Message = fmt.Sprintf("service %q not found", name)
		return nil, e
	}
	svc := &corev1.Service{}
	return svc, objects.Typed(res, v, svc)
}

// endpoint is a ready one of a service, of the service's first family if there are
// several.
func (s *Server) endpoint(svc *corev1.Service, port string) (string, error) {
	none := apierrors.NewServiceUnavailable(fmt.Sprintf("no endpoints available for service %q", svc.Name))
	res := s.cfg.Kinds().Lookup(endpointSlicesGVR)
	if res == nil {
		return "", none
	}
	versions, err := s.objects.Range(res.Table(), svc.Namespace+"/")
	if err != nil {
		return "", err
	}
	var first, second []string
	for _, v := range versions {
		if of, _ := v.Labels.Get(discoveryv1.LabelServiceName); of != svc.Name {
			continue
		}
		slice := &discoveryv1.EndpointSlice{}
		if err := objects.Typed(res, v, slice); err != nil {
			return "", err
		}
		ready := readyEndpoints(slice, port)
		if families := svc.Spec.IPFamilies; len(families) == 0 || string(families[0]) == string(slice.AddressType) {
			first = append(first, ready...)
		} else {
			second = append(second, ready...)
		}
	}
	for _, ready := range [...][]string{first, second} {
		if len(ready) > 0 {
			return ready[rand.IntN(len(ready))], nil
		}
	}
	return "", none
}

// readyEndpoints are the addresses of a slice at which a named port answers.
func readyEndpoints(slice *discoveryv1.EndpointSlice, port string) (out []string) {
	for _, p := range slice.Ports {
		if p.Port == nil || p.Name == nil || *p.Name != port {
			continue
		}
		for _, e := range slice.Endpoints {
			if len(e.Addresses) > 0 && (e.Conditions.Ready == nil || *e.Conditions.Ready) {
				out = append(out, net.JoinHostPort(e.Addresses[0], strconv.Itoa(int(*p.Port))))
			}
		}
	}
	return out
}
