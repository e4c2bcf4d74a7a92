package kinds

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/quorate/quorate/proto"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func lookup(t testing.TB, group, version, plural string) *Resource {
	t.Helper()
	r := registry(t).Lookup(schema.GroupVersionResource{Group: group, Version: version, Resource: plural})
	if r == nil {
		t.Fatalf("no %s.%s", plural, group)
	}
	return r
}

func flat(list []*proto.Attribute) (out []string) {
	for _, a := range list {
		out = append(out, a.Name+"="+a.Value)
	}
	return out
}

func TestAttributes(t *testing.T) {
	pod := map[string]any{
		"metadata": map[string]any{"name": "a", "namespace": "n", "labels": map[string]any{"z": "1", "b": "2"}},
		"spec":     map[string]any{"nodeName": "x", "hostNetwork": true},
		"status":   map[string]any{"phase": "Running"},
	}
	labels, fields := lookup(t, "", "v1", "pods").Attributes(pod)
	if d := cmp.Diff([]string{"b=2", "z=1"}, flat(labels)); d != "" {
		t.Error(d)
	}
	want := []string{"spec.hostNetwork=true", "spec.nodeName=x", "spec.restartPolicy=", "spec.schedulerName=", "spec.serviceAccountName=", "status.nominatedNodeName=", "status.phase=Running", "status.podIP="}
	if d := cmp.Diff(want, flat(fields)); d != "" {
		t.Error(d)
	}
}

// Both forms of events store their attributes under the same names.
func TestAttributesOfASharedTable(t *testing.T) {
	old, recent := lookup(t, "", "v1", "events"), lookup(t, "events.k8s.io", "v1", "events")
	if old.Table() != recent.Table() {
		t.Fatalf("tables %s and %s", old.Table(), recent.Table())
	}
	metadata := map[string]any{"name": "e", "namespace": "n"}
	_, a := old.Attributes(map[string]any{"metadata": metadata, "involvedObject": map[string]any{"kind": "Pod", "name": "p"}, "reportingComponent": "c", "reason": "r"})
	_, b := recent.Attributes(map[string]any{"metadata": metadata, "regarding": map[string]any{"kind": "Pod", "name": "p"}, "reportingController": "c", "reason": "r"})
	if d := cmp.Diff(flat(a), flat(b)); d != "" {
		t.Error(d)
	}
}

func BenchmarkAttributesPod(b *testing.B) {
	r := lookup(b, "", "v1", "pods")
	pod := map[string]any{"metadata": map[string]any{"name": "a", "namespace": "n", "labels": map[string]any{"z": "1", "b": "2"}}}
	b.ReportAllocs()
	for b.Loop() {
		r.Attributes(pod)
	}
}
