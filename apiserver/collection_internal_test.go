package apiserver

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/raftstore/memstore"
)

// TestSingleCollection: a list costs little only if its selector names the one object.
func TestSingleCollection(t *testing.T) {
	mem := memstore.New()
	defer func() { must.Close(t, mem) }()
	registry, err := kinds.Builtin()
	must.OK(t, err)
	s := &Server{cfg: Config{Store: mem}}
	for target, single := range map[string]bool{
		"/api/v1/namespaces/a/pods":                                                 false,
		"/api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Dx":                 true,
		"/api/v1/nodes?fieldSelector=metadata.name=x":                               true,
		"/api/v1/pods?fieldSelector=metadata.name=x":                                false,
		"/api/v1/namespaces/a/pods?x=metadata.name":                                 false,
		"/api/v1/namespaces/a/pods?labelSelector=metadata.name=x":                   false,
		"/api/v1/namespaces/a/pods?fieldSelector=metadata.name!%3Dx":                false,
		"/api/v1/namespaces/a/pods?fieldSelector=status.phase=metadata.name":        false,
		"/api/v1/namespaces/a/pods?fieldSelector=a%3Db&fieldSelector=metadata.name": false,
	} {
		r := httptest.NewRequest(http.MethodGet, target, nil)
		var o objects.Op
		if !o.Info.Parse(r) {
			t.Fatal(target)
		}
		o.Resource = registry.Lookup(o.Info.GVR())
		o.Info.ReadSelector(r.URL.RawQuery)
		if of := s.collection(&o, r.URL.RawQuery); of.Single != single {
			t.Errorf("%s: single %t", target, of.Single)
		}
	}
}
