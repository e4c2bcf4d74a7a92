// Package services finds out where a Service of the cluster is, for the node itself, which calls
// webhooks. It looks into this node's state, so that it needs no DNS and no quorum.
package services

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"

	"github.com/quorate/quorate/apiserver/types/state"
	"github.com/quorate/quorate/raftstore/mvcc"
	"github.com/quorate/quorate/raftstore/view"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	servicesGR       = apischema.GroupResource{Resource: "services"}
	endpointSlicesGR = apischema.GroupResource{Group: "discovery.k8s.io", Resource: "endpointslices"}
)

// Resolver says where Services are. Safe for concurrent use.
type Resolver struct {
	state     *state.State
	endpoints bool
}

// New returns the Resolver of a store. endpoints: a Service is at one of its ready endpoints
// instead of its cluster IP.
func New(store view.Store, endpoints bool) *Resolver {
	return &Resolver{state.New(store), endpoints}
}

// Resolve returns the address, host:port, at which the node reaches a Service. Errors: there is
// none, in upstream's words.
func (r *Resolver) Resolve(_ context.Context, namespace, name string, port int32) (string, error) {
	svc, err := r.service(namespace, name)
	if err != nil {
		return "", err
	}
	switch spec := &svc.Spec; spec.Type {
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort:
		at := slices.IndexFunc(spec.Ports, func(p corev1.ServicePort) bool { return p.Port == port })
		switch {
		case !r.endpoints && spec.Type == corev1.ServiceTypeClusterIP && spec.ClusterIP == corev1.ClusterIPNone:
			return "", errors.New(`cannot route to service with ClusterIP "None"`)
		case at < 0:
			return "", apierrors.NewServiceUnavailable(fmt.Sprintf("no service port %d found for service %q", port, name))
		case r.endpoints:
			return r.endpoint(svc, spec.Ports[at].Name)
		}
		return net.JoinHostPort(spec.ClusterIP, strconv.Itoa(int(port))), nil
	case corev1.ServiceTypeExternalName:
		if !r.endpoints {
			return net.JoinHostPort(spec.ExternalName, strconv.Itoa(int(port))), nil
		}
	}
	return "", fmt.Errorf("unsupported service type %q", svc.Spec.Type)
}

func (r *Resolver) service(namespace, name string) (*corev1.Service, error) {
	svc, err := state.Get[corev1.Service](r.state, servicesGR, namespace, name)
	if err != nil || svc != nil {
		return svc, err
	}
	e := apierrors.NewNotFound(servicesGR, name)
	e.ErrStatus.Message = fmt.Sprintf("service %q not found", name)
	return nil, e
}

// endpoint is a ready one of a service, of the service's first family if there are
// several.
func (r *Resolver) endpoint(svc *corev1.Service, port string) (string, error) {
	slices, err := state.In[discoveryv1.EndpointSlice](r.state, endpointSlicesGR, svc.Namespace, func(v *mvcc.Version) bool {
		of, _ := v.Labels.Get(discoveryv1.LabelServiceName)
		return of == svc.Name
	})
	if err != nil {
		return "", err
	}
	var first, second []string
	for _, slice := range slices {
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
	return "", apierrors.NewServiceUnavailable(fmt.Sprintf("no endpoints available for service %q", svc.Name))
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
