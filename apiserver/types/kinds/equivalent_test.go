package kinds

import (
	"fmt"
	"path"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestEquivalentResources: what a resource is called in other versions, and what the bodies of
// its subresources are.
func TestEquivalentResources(t *testing.T) {
	registry, err := Builtin()
	must.OK(t, err)
	for _, row := range []struct{ resource, subresource, equivalent, kind string }{
		{"v1/pods", "", "[/v1, Resource=pods]", "/v1, Kind=Pod"},
		{"v1/pods", "binding", "[/v1, Resource=pods]", "/v1, Kind=Binding"},
		{"v1/pods", "eviction", "[/v1, Resource=pods]", "policy/v1, Kind=Eviction"},
		{"v1/pods", "scale", "[]", "/, Kind="},
		{"v1/nothing", "", "[]", "/, Kind="},
		{"apps/v1/deployments", "scale", "[apps/v1, Resource=deployments]", "autoscaling/v1, Kind=Scale"},
		{"apps/v1/deployments", "status", "[apps/v1, Resource=deployments]", "apps/v1, Kind=Deployment"},
		{"autoscaling/v2/horizontalpodautoscalers", "", "[autoscaling/v2, Resource=horizontalpodautoscalers autoscaling/v1, Resource=horizontalpodautoscalers]", "autoscaling/v2, Kind=HorizontalPodAutoscaler"},
		{"autoscaling/v1/horizontalpodautoscalers", "status", "[autoscaling/v1, Resource=horizontalpodautoscalers autoscaling/v2, Resource=horizontalpodautoscalers]", "autoscaling/v1, Kind=HorizontalPodAutoscaler"},
		{"v1/events", "", "[/v1, Resource=events events.k8s.io/v1, Resource=events]", "/v1, Kind=Event"},
		{"authorization.k8s.io/v1/subjectaccessreviews", "", "[authorization.k8s.io/v1, Resource=subjectaccessreviews]", "authorization.k8s.io/v1, Kind=SubjectAccessReview"},
	} {
		gvr := parseGVR(row.resource)
		for range 2 { // the second answer is what the first has kept
			if got := fmt.Sprint(registry.EquivalentResources(gvr, row.subresource)); got != row.equivalent {
				t.Errorf("%s %q: equivalent are %s, want %s", row.resource, row.subresource, got, row.equivalent)
			}
		}
		if got := registry.KindFor(gvr, row.subresource).String(); got != row.kind {
			t.Errorf("%s %q: its bodies are %s, want %s", row.resource, row.subresource, got, row.kind)
		}
	}
}

// parseGVR reads GROUP/VERSION/RESOURCE or VERSION/RESOURCE.
func parseGVR(s string) schema.GroupVersionResource {
	gv, resource := path.Split(s)
	group, version := path.Split(strings.TrimSuffix(gv, "/"))
	return schema.GroupVersionResource{Group: strings.TrimSuffix(group, "/"), Version: version, Resource: resource}
}
