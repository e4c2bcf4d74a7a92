package apiserver_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/quorate/quorate/apiserver"
	"github.com/quorate/quorate/apiserver/observe/metrics"
	"github.com/quorate/quorate/internal/must"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/version"
	upstream "k8s.io/apiserver/pkg/endpoints/metrics"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/component-base/metrics/legacyregistry"
)

// TestRequestLabels compares the labels of apiserver_request_total with those that upstream's own code gives. What
// upstream knows of a request's route, its installer says (endpoints/installer.go): each row has it.
func TestRequestLabels(t *testing.T) {
	m, err := metrics.New(version.Info{}, "test")
	must.OK(t, err)
	upstream.Register()
	infos := &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	e := newEnv(t, func(c *apiserver.Config) { c.Observer = m })
	const (
		namespace = "/api/v1/namespaces/default"
		deploys   = "/apis/apps/v1/namespaces/default/deployments"
	)
	content := func(kind string) http.Header { return http.Header{"Content-Type": {kind}} }
	for _, x := range []struct {
		method, path string
		header       http.Header
		verb, scope  string // of the route: the installer's
	}{
		{"GET", maps, nil, "LIST", "namespace"},
		{"GET", maps + "?fieldSelector=metadata.name%3Da", nil, "LIST", "namespace"},
		{"GET", "/api/v1/configmaps", nil, "LIST", "cluster"},
		{"GET", "/api/v1/nodes", nil, "LIST", "cluster"},
		{"GET", maps + "/a", nil, "GET", "resource"},
		{"GET", namespace, nil, "GET", "resource"},
		{"GET", maps + "?watch=true", nil, "LIST", "namespace"},
		{"GET", maps + "?watch=true&fieldSelector=metadata.name%3Da", nil, "LIST", "namespace"},
		{"GET", "/api/v1/configmaps?watch=1", nil, "LIST", "cluster"},
		{"GET", "/api/v1/watch/namespaces/default/configmaps", nil, "WATCHLIST", "namespace"},
		{"GET", "/api/v1/watch/configmaps", nil, "WATCHLIST", "cluster"},
		{"GET", "/api/v1/watch/namespaces/default/configmaps/a", nil, "WATCH", "resource"},
		{"POST", maps, nil, "POST", "resource"},
		{"POST", maps + "?dryRun=All", nil, "POST", "resource"},
		{"POST", "/api/v1/namespaces", nil, "POST", "resource"},
		{"POST", "/api/v1/nodes", nil, "POST", "resource"},
		{"POST", namespace + "/pods/p/eviction", nil, "POST", "resource"},
		{"POST", namespace + "/serviceaccounts/default/token", nil, "POST", "resource"},
		{"PUT", maps + "/a", nil, "PUT", "resource"},
		{"PUT", namespace + "/finalize", nil, "PUT", "resource"},
		{"PATCH", maps + "/a", content("application/json-patch+json"), "PATCH", "resource"},
		{"PATCH", maps + "/a", content("application/merge-patch+json"), "PATCH", "resource"},
		{"PATCH", maps + "/a", content("application/strategic-merge-patch+json"), "PATCH", "resource"},
		{"PATCH", maps + "/a?fieldManager=m", content("application/apply-patch+yaml"), "PATCH", "resource"},
		{"PATCH", deploys + "/d/scale", content("application/apply-patch+yaml"), "PATCH", "resource"},
		{"GET", deploys + "/d/status", nil, "GET", "resource"},
		{"PUT", deploys + "/d/status", nil, "PUT", "resource"},
		{"GET", deploys + "/d/scale", nil, "GET", "resource"},
		{"DELETE", maps + "/a", nil, "DELETE", "resource"},
		{"DELETE", maps + "/a?dryRun=All", nil, "DELETE", "resource"},
		{"DELETE", maps, nil, "DELETECOLLECTION", "namespace"},
		{"DELETE", "/api/v1/nodes", nil, "DELETECOLLECTION", "cluster"},
		{"GET", namespace + "/pods/p/log", nil, "GET", "resource"},
		{"GET", namespace + "/pods/p/exec", nil, "CONNECT", "resource"},
		{"POST", namespace + "/pods/p/attach", nil, "CONNECT", "resource"},
		{"GET", namespace + "/pods/p/proxy/x", nil, "CONNECT", "resource"},
		{"DELETE", namespace + "/services/s/proxy/x", nil, "CONNECT", "resource"},
	} {
		t.Run(x.method+" "+x.path+" "+x.header.Get("Content-Type"), func(t *testing.T) {
			r, err := http.NewRequestWithContext(t.Context(), x.method, e.url+x.path, nil)
			must.OK(t, err)
			r.Header = x.header.Clone()
			info, err := infos.NewRequestInfo(r)
			must.OK(t, err)
			legacyregistry.Reset()
			upstream.MonitorRequest(r.WithContext(request.WithRequestInfo(r.Context(), info)), x.verb,
				info.APIGroup, info.APIVersion, info.Resource, info.Subresource, x.scope, upstream.APIServerComponent, false, "", 200, 0, time.Second)
			want := labelsOfRequests(t, legacyregistry.DefaultGatherer.(prometheus.Gatherer))
			if len(want) != 1 {
				t.Fatalf("upstream: %v", want)
			}
			before := labelsOfRequests(t, m.Registry())
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			w, err := e.client.Do(r.WithContext(ctx))
			must.OK(t, err)
			cancel() // of watches
			_ = w.Body.Close()
			must.Await(t, patience, "the request is counted", func() string {
				for labels, n := range labelsOfRequests(t, m.Registry()) {
					if n > before[labels] {
						if want[labels] == 0 {
							t.Errorf("it is counted as %s, want %v", labels, want)
						}
						return ""
					}
				}
				return "not yet"
			})
		})
	}
}

// labelsOfRequests are the counts of apiserver_request_total by their labels, without the code.
func labelsOfRequests(t *testing.T, from prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := from.Gather()
	must.OK(t, err)
	counts := map[string]float64{}
	for _, f := range families {
		if f.GetName() != "apiserver_request_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				if l.GetName() != "code" {
					labels = append(labels, l.GetName()+"="+l.GetValue())
				}
			}
			counts[strings.Join(labels, " ")] += m.GetCounter().GetValue()
		}
	}
	return counts
}
