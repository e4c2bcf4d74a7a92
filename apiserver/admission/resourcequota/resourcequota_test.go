package resourcequota_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/resourcequota"
	"github.com/quorate/quorate/apiserver/objects/objectstest"
	"github.com/quorate/quorate/apiserver/types/state"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/memstore"
	"github.com/quorate/quorate/raftstore/view"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func options(t *testing.T, config string) objectstest.Options {
	return objectstest.Options{Admission: func(s view.Store, _ auth.Authorizer) []admission.Named {
		p, err := resourcequota.New(state.New(s), strings.NewReader(config), slog.Default())
		must.OK(t, err)
		return []admission.Named{{Name: "ResourceQuota", Plugin: p}}
	}}
}

const empty = `{"apiVersion":"apiserver.config.k8s.io/v1","kind":"ResourceQuotaConfiguration"}`

func TestOperations(t *testing.T) {
	objectstest.Run(t, "testdata/quotas.txt", options(t, empty))
}

// TestLimitedResources: what only a quota allows.
func TestLimitedResources(t *testing.T) {
	objectstest.Run(t, "testdata/limited.txt", options(t, `{"apiVersion":"apiserver.config.k8s.io/v1","kind":"ResourceQuotaConfiguration","limitedResources":[
		{"resource":"pods","matchContains":["cpu"],"matchScopes":[{"scopeName":"PriorityClass","operator":"In","values":["high"]}]},
		{"resource":"persistentvolumeclaims","matchContains":[".storageclass.storage.k8s.io/requests.storage"]}]}`))
}

func TestConfiguration(t *testing.T) {
	for config, want := range map[string]string{
		`{"apiVersion":"apiserver.config.k8s.io/v1","kind":"ResourceQuotaConfiguration","limitedResources":[{}]}`: "limitedResources[0].resource: Required value",
		`{"apiVersion":"apiserver.config.k8s.io/v1","kind":"ResourceQuotaConfiguration","x":1}`:                   "unknown field",
		`{"apiVersion":"v1","kind":"Pod"}`:                                               "no kind \"Pod\" is registered",
		`{"apiVersion":"resourcequota.admission.k8s.io/v1beta1","kind":"Configuration"}`: "",
	} {
		_, err := resourcequota.New(state.New(memstore.New()), strings.NewReader(config), slog.Default())
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", config, err, want)
		}
	}
}

// BenchmarkManyQuotas is the decision on a ConfigMap in a namespace of a thousand quotas with a
// hundred bounds each, of which one is about ConfigMaps.
func BenchmarkManyQuotas(b *testing.B) {
	mem := memstore.New()
	defer mem.Close()
	var hard strings.Builder
	limit := &proto.Limit{}
	for i := range 99 {
		fmt.Fprintf(&hard, `"count/a%02d.example.com":"1",`, i)
		limit.Bounds = append(limit.Bounds, &proto.Bound{Name: fmt.Sprintf("count/a%02d.example.com", i), Max: 1, Table: fmt.Sprint("t", i)})
	}
	limit.Bounds = append(limit.Bounds, &proto.Bound{Name: "count/configmaps", Max: 1, Table: "configmaps"})
	for i := range 1000 {
		if _, err := mem.Propose(b.Context(), &proto.Write{
			Table: "resourcequotas", Key: fmt.Sprintf("n/q%d", i), Op: proto.Op_OP_PUT, Limits: []*proto.Limit{limit},
			Value: fmt.Appendf(nil, `{"metadata":{"name":"q%d","namespace":"n"},"spec":{"hard":{%s"count/configmaps":"1"}}}`, i, hard.String()),
		}); err != nil {
			b.Fatal(err)
		}
	}
	p, err := resourcequota.New(state.New(mem), nil, slog.Default())
	if err != nil {
		b.Fatal(err)
	}
	a := &admission.Attributes{
		Operation: admission.Create, Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Namespace: "n",
		Object: map[string]any{"metadata": map[string]any{"name": "c"}},
	}
	if err := p.Validate(b.Context(), a); err != nil { // decodes the quotas, once
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := p.Validate(b.Context(), a); err != nil {
			b.Fatal(err)
		}
	}
}
