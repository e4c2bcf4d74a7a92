package apiserver_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/quorate/quorate/apiserver/controllers"
	"github.com/quorate/quorate/apiserver/objects/builtin/service"
	"github.com/quorate/quorate/internal/must"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/quorate/quorate/apiserver"
)

// endpoints is where the Service kubernetes leads to: by its Endpoints, and by its
// slices.
func (e *env) endpoints() (legacy, sliced string) {
	var eps corev1.Endpoints //lint:ignore SA1019 it is what is asked for
	if w, answer := e.do("GET", "/api/v1/namespaces/default/endpoints/kubernetes", nil, ""); w.StatusCode == 200 {
		must.OK(e.t, json.Unmarshal([]byte(answer), &eps))
	}
	for _, s := range eps.Subsets {
		for _, a := range s.Addresses {
			legacy += fmt.Sprintf("%s:%d ", a.IP, s.Ports[0].Port)
		}
	}
	var list discoveryv1.EndpointSliceList
	_, answer := e.do("GET", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?labelSelector=kubernetes.io/service-name=kubernetes", nil, "")
	must.OK(e.t, json.Unmarshal([]byte(answer), &list))
	for _, s := range list.Items {
		sliced += s.Name + "="
		for _, x := range s.Endpoints {
			sliced += fmt.Sprintf("%s:%d ", x.Addresses[0], *s.Ports[0].Port)
		}
	}
	return legacy, sliced
}

// TestKubernetesService: the Service that Pods reach the API by has the first address,
// follows the members, and comes back.
func TestKubernetesService(t *testing.T) {
	blocks, err := service.ParseBlocks("10.96.0.0/16")
	must.OK(t, err)
	e := newEnv(t, func(c *apiserver.Config) { c.ServiceBlocks = blocks })
	var urls atomic.Value
	urls.Store([]string{"https://192.0.2.2:6443", "https://api.example:6443", "https://192.0.2.1:6443"})
	var asked atomic.Int64
	servers := controllers.Servers{
		List: func() ([]string, error) {
			asked.Add(1)
			return urls.Load().([]string), nil
		}, Address: service.FirstAddress(blocks),
		Resolve: func(_ context.Context, host string) ([]netip.Addr, error) {
			if host != "api.example" {
				return nil, errors.New("no such host " + host)
			}
			return []netip.Addr{netip.MustParseAddr("192.0.2.3")}, nil
		},
	}
	stop := e.run(controllers.Config{Controllers: []controllers.Name{controllers.KubernetesController}, Servers: servers})
	leadsTo := func(legacy, sliced string) {
		t.Helper()
		must.Await(e.t, patience, "endpoints", func() string {
			if a, b := e.endpoints(); a != legacy || b != sliced {
				return fmt.Sprintf("%q and %q, want %q and %q", a, b, legacy, sliced)
			}
			return ""
		})
	}
	leadsTo("192.0.2.1:6443 192.0.2.2:6443 192.0.2.3:6443 ", "kubernetes=192.0.2.1:6443 192.0.2.2:6443 192.0.2.3:6443 ")
	_, answer := e.do("GET", "/api/v1/namespaces/default/services/kubernetes", nil, "")
	var s corev1.Service
	must.OK(t, json.Unmarshal([]byte(answer), &s))
	if s.Spec.ClusterIP != "10.96.0.1" || s.Labels["component"] != "apiserver" || s.Labels["provider"] != "kubernetes" ||
		len(s.Spec.Ports) != 1 || s.Spec.Ports[0].Port != 443 || s.Spec.Ports[0].TargetPort.IntValue() != 6443 || s.Spec.Ports[0].Name != "https" || s.Spec.Selector != nil {
		t.Errorf("the Service is %s", answer)
	}

	urls.Store([]string{"https://[2001:db8::1]:6443", "https://192.0.2.2:6443", "https://192.0.2.1:7443"})
	leadsTo("192.0.2.1:7443 192.0.2.2:6443 2001:db8::1:6443 ", "kubernetes=192.0.2.1:7443 kubernetes-ipv4-6443=192.0.2.2:6443 kubernetes-ipv6-6443=2001:db8::1:6443 ")
	// Names are resolved before anything is changed.
	urls.Store([]string{"https://no..where:6443"}) // no name at all: nobody is asked for it
	before := asked.Load()
	must.Await(e.t, patience, "a round with it is over", func() string {
		if n := asked.Load() - before; n < 2 {
			return fmt.Sprintf("%d rounds have begun", n)
		}
		return ""
	})
	leadsTo("192.0.2.1:7443 192.0.2.2:6443 2001:db8::1:6443 ", "kubernetes=192.0.2.1:7443 kubernetes-ipv4-6443=192.0.2.2:6443 kubernetes-ipv6-6443=2001:db8::1:6443 ")
	// The next leader takes away what this one made, and what of it was deleted comes back.
	stop()
	for _, path := range []string{"/api/v1/namespaces/default/services/kubernetes", "/api/v1/namespaces/default/endpoints/kubernetes"} {
		if w, answer := e.do("DELETE", path, nil, ""); w.StatusCode != 200 {
			t.Fatalf("delete %s: %d %s", path, w.StatusCode, answer)
		}
	}
	urls.Store([]string{"https://[2001:db8::1]:6443"})
	e.run(controllers.Config{Controllers: []controllers.Name{controllers.KubernetesController}, Servers: servers})
	leadsTo("2001:db8::1:6443 ", "kubernetes=2001:db8::1:6443 ")
	must.Await(e.t, patience, "the Service", func() string {
		if w, answer := e.do("GET", "/api/v1/namespaces/default/services/kubernetes", nil, ""); w.StatusCode != 200 {
			return answer
		}
		return ""
	})
}

// TestDefaultAccounts: every namespace has a service account, also one that lost it,
// and those that end are left alone.
func TestDefaultAccounts(t *testing.T) {
	e := newEnv(t, nil)
	e.run(controllers.Config{Controllers: []controllers.Name{controllers.AccountController}})
	account := func(ns string) string { return "/api/v1/namespaces/" + ns + "/serviceaccounts/default" }
	has := func(ns string) {
		t.Helper()
		must.Await(e.t, patience, ns, func() string {
			if w, answer := e.do("GET", account(ns), nil, ""); w.StatusCode != 200 {
				return answer
			}
			return ""
		})
	}
	has("default")
	has("kube-system")
	if w, answer := e.do("POST", "/api/v1/namespaces", nil, `{"metadata":{"name":"later","finalizers":["example.com/held"]}}`); w.StatusCode != 201 {
		t.Fatal(answer)
	}
	has("later")
	e.do("DELETE", account("default"), nil, "")
	has("default")
	e.do("DELETE", "/api/v1/namespaces/later", nil, "")
	e.do("DELETE", account("later"), nil, "")
	e.do("DELETE", account("default"), nil, "")
	has("default") // the node that makes this one has seen that
	if w, answer := e.do("GET", account("later"), nil, ""); w.StatusCode != 404 {
		t.Errorf("a namespace that ends got an account: %s", answer)
	}
}
