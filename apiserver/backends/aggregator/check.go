package aggregator

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/quorate/quorate/apiserver/types/state"
	"github.com/quorate/quorate/raftstore/mvcc"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

var (
	servicesGR = apischema.GroupResource{Resource: "services"}
	slicesGR   = apischema.GroupResource{Group: "discovery.k8s.io", Resource: "endpointslices"}
)

// attempts are how many addresses of a Service are tried at once.
const attempts = 5

// Basis is what a check of an APIService would look at in this node's state: while it is the same,
// only the server itself can answer otherwise. Its values can be compared.
type Basis struct {
	server   *server // which has the connections: another one for what they depend on
	revision string  // of the Service, and of its slices
}

// Basis of a check of an APIService.
func (a *Aggregator) Basis(r *Remote) Basis {
	var at strings.Builder
	if v := a.state.Version(servicesGR, r.server.namespace, r.server.name); v != nil {
		fmt.Fprintln(&at, v.Revision)
	}
	for _, v := range a.state.In(slicesGR, r.server.namespace) {
		if of, _ := v.Labels.Get(discoveryv1.LabelServiceName); of == r.server.name {
			fmt.Fprintln(&at, v.Key, v.Revision)
		}
	}
	return Basis{r.server, at.String()}
}

// Check says whether the server of an APIService is there and answers, in upstream's words. It takes six
// seconds at most.
func (a *Aggregator) Check(ctx context.Context, r *Remote) apiregistrationv1.APIServiceCondition {
	c := apiregistrationv1.APIServiceCondition{Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionFalse}
	s := r.server
	of := s.String()
	if gv := r.GroupVersion(); a.builtin(gv) {
		c.Reason, c.Message = "BuiltIn", fmt.Sprintf("%s is built into this API server, which goes on to serve it: requests never go to %s", gv, of)
		return c
	}
	svc, err := state.Get[corev1.Service](a.state, servicesGR, s.namespace, s.name)
	switch {
	case err != nil:
		c.Status, c.Reason, c.Message = apiregistrationv1.ConditionUnknown, "ServiceAccessError", fmt.Sprintf("%s cannot be checked due to: %v", of, err)
		return c
	case svc == nil:
		c.Reason, c.Message = "ServiceNotFound", of+" is not present"
		return c
	}
	if svc.Spec.Type == corev1.ServiceTypeClusterIP {
		port := slices.IndexFunc(svc.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == s.port })
		if port < 0 {
			c.Reason, c.Message = "ServicePortError", fmt.Sprintf("%s is not listening on port %d", of, s.port)
			return c
		}
		name := svc.Spec.Ports[port].Name
		found, err := state.In[discoveryv1.EndpointSlice](a.state, slicesGR, s.namespace, func(v *mvcc.Version) bool {
			owner, _ := v.Labels.Get(discoveryv1.LabelServiceName)
			return owner == s.name
		})
		switch {
		case err != nil:
			c.Status, c.Reason, c.Message = apiregistrationv1.ConditionUnknown, "EndpointsAccessError", fmt.Sprintf("%s cannot be checked due to: %v", of, err)
			return c
		case len(found) == 0:
			c.Reason, c.Message = "EndpointsNotFound", "cannot find endpointslices for "+of
			return c
		case !slices.ContainsFunc(found, func(e *discoveryv1.EndpointSlice) bool { return hasEndpoint(e, name) }):
			c.Reason, c.Message = "MissingEndpoints", fmt.Sprintf("endpointslices for %s have no addresses with port name %q", of, name)
			return c
		}
	}
	if err := a.answers(ctx, r); err != nil {
		c.Reason, c.Message = "FailedDiscoveryCheck", fmt.Sprintf("%.*s", failureLength, err)
		return c
	}
	c.Status, c.Reason, c.Message = apiregistrationv1.ConditionTrue, "Passed", "all checks passed"
	return c
}

// hasEndpoint reports whether a slice has an address that is ready, and a port of that name.
func hasEndpoint(e *discoveryv1.EndpointSlice, port string) bool {
	return slices.ContainsFunc(e.Endpoints, func(e discoveryv1.Endpoint) bool {
		return e.Conditions.Ready == nil || *e.Conditions.Ready
	}) && slices.ContainsFunc(e.Ports, func(p discoveryv1.EndpointPort) bool {
		return p.Name != nil && *p.Name == port
	})
}

// String is the Service in upstream's words.
func (s *server) String() string { return fmt.Sprintf("service/%s in %q", s.name, s.namespace) }

// answers asks a server for the version that it is to serve. One answer of several attempts is
// enough: each may be at another endpoint.
func (a *Aggregator) answers(ctx context.Context, r *Remote) error {
	if r.server.err != nil {
		return r.server.err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	path := "/apis/" + r.GroupVersion().String()
	results := make(chan error, attempts)
	for range attempts {
		go func() { results <- a.attempt(ctx, r.server, path) }()
	}
	var err error
	for range attempts {
		if err = <-results; err == nil {
			return nil
		}
	}
	r.server.transport.CloseIdleConnections()
	return fmt.Errorf("failing or missing response from %s: %w", r.server, err)
}

// attempt asks a server for a path, and for no more than whether that is there.
func (a *Aggregator) attempt(ctx context.Context, s *server, path string) error {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	res, err := a.send(ctx, s, http.MethodGet, url.URL{Path: path}, "", nil, itself)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode < 200 || res.StatusCode >= 300 {
		return fmt.Errorf("bad status from %s: %d", res.Request.URL, res.StatusCode)
	}
	_ = leave(res) // the connection may be used again
	return nil
}
