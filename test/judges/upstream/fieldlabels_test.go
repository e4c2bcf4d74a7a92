package upstream

import (
	"testing"

	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/internal/must"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
)

// TestFieldLabels: selectors may name the fields that upstream's may, by the same names.
func TestFieldLabels(t *testing.T) {
	registry, err := kinds.Builtin()
	must.OK(t, err)
	labels := map[string]bool{"name": true, "metadata.name": true, "metadata.namespace": true, "metadata.uid": true, "spec.host": true, "spec.replicas": true, "status.podIPs": true, "": true}
	for _, res := range registry.All() {
		for _, f := range res.SelectableFields {
			labels[f.Path] = true
		}
	}
	for _, res := range registry.All() {
		gvk := res.GVK()
		if !legacyscheme.Scheme.Recognizes(gvk) || !res.HasVerb("list") {
			continue
		}
		for label := range labels {
			_, _, err := legacyscheme.Scheme.ConvertFieldLabel(gvk, label, "x")
			_, ok := res.FieldAttribute(label)
			if label == "metadata.namespace" && len(res.SelectableFields) == 0 {
				ok = true // also of kinds without namespaces
			}
			if gvk.Kind == "ReplicaSet" && label == "status.replicas" {
				continue // the documents of Kubernetes name it, the server does not take it
			}
			if ok != (err == nil) {
				t.Errorf("%s by %q: %v, upstream: %v", gvk, label, ok, err)
			}
		}
	}
}
