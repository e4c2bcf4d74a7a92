package kinds

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/quorate/quorate/internal/must"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestAutoscalerVersions reads testdata/autoscaler.txt.
func TestAutoscalerVersions(t *testing.T) {
	all, err := Available()
	must.OK(t, err)
	res := all.Lookup(schema.GroupVersionResource{Group: "autoscaling", Version: "v1", Resource: "horizontalpodautoscalers"})
	if res == nil {
		t.Fatal("autoscaling/v1 is not there")
	}
	raw, err := os.ReadFile("testdata/autoscaler.txt")
	must.OK(t, err)
	for _, block := range strings.Split(string(raw), "\n\n")[1:] {
		lines := strings.Split(strings.TrimSpace(block), "\n")
		how, title, _ := strings.Cut(lines[0], " ")
		objects := map[string]map[string]any{}
		for _, line := range lines[1:] {
			version, text, _ := strings.Cut(line, " ")
			objects[version] = must.Decode[map[string]any](t, text)
		}
		t.Run(title, func(t *testing.T) {
			check := func(what string, convert func(map[string]any) (map[string]any, error), in, want map[string]any) {
				t.Helper()
				before := must.Decode[map[string]any](t, must.Encode(t, in))
				got, err := convert(in)
				must.OK(t, err)
				if d := cmp.Diff(want, must.Decode[map[string]any](t, must.Encode(t, got))); d != "" {
					t.Errorf("%s: -want +got\n%s", what, d)
				}
				if d := cmp.Diff(before, in); d != "" {
					t.Errorf("%s changed what it was given:\n%s", what, d)
				}
			}
			if strings.HasPrefix(how, "<-") {
				check("to v2", res.ToStored, objects["v1"], objects["v2"])
			}
			if strings.HasSuffix(how, "->") {
				check("to v1", res.FromStored, objects["v2"], objects["v1"])
			}
		})
	}
}

// TestMoves: moves lead to the stored version's fields and back, whatever the object
// has of them, and leave the object that they are given as it is.
func TestMoves(t *testing.T) {
	for _, c := range []struct {
		name          string
		moves         []Move
		shown, stored string
		oneWay        bool // back is another object: what is no object gave way
	}{
		{name: "of another name", moves: []Move{{From: "note", To: "message"}}, shown: `{"metadata":{"name":"n"},"note":"a"}`, stored: `{"metadata":{"name":"n"},"message":"a"}`},
		{name: "absent", moves: []Move{{From: "note", To: "message"}}, shown: `{"reason":"r"}`, stored: `{"reason":"r"}`},
		{name: "exchanged", moves: []Move{{From: "a", To: "b"}, {From: "b", To: "a"}}, shown: `{"a":1,"b":2}`, stored: `{"a":2,"b":1}`},
		{name: "deeper", moves: []Move{{From: "spec.a", To: "spec.old.a"}}, shown: `{"spec":{"a":1,"b":2,"old":{"c":3}}}`, stored: `{"spec":{"b":2,"old":{"a":1,"c":3}}}`},
		{name: "below what is no object", moves: []Move{{From: "spec.a", To: "b"}}, shown: `{"spec":"x"}`, stored: `{"spec":"x"}`},
		{name: "into what is no object", moves: []Move{{From: "a", To: "spec.a"}}, shown: `{"a":1,"spec":"x"}`, stored: `{"spec":{"a":1}}`, oneWay: true},
		{name: "empty in the stored version", moves: []Move{{From: "a", To: "b", Empty: "", EmptyIn: EmptyInStored}}, shown: `{"c":1}`, stored: `{"b":"","c":1}`},
		{name: "empty in this version", moves: []Move{{From: "s.n", To: "s.n", Empty: "", EmptyIn: EmptyInThis}}, shown: `{"s":{"n":"","o":1}}`, stored: `{"s":{"o":1}}`},
		{name: "not empty", moves: []Move{{From: "a", To: "b", Empty: "", EmptyIn: EmptyInStored}}, shown: `{"a":"x"}`, stored: `{"b":"x"}`},
		{name: "empty of what is not there", moves: []Move{{From: "s.n", To: "s.n", Empty: "", EmptyIn: EmptyInThis}}, shown: `{"o":1}`, stored: `{"o":1}`},
		{name: "null", moves: []Move{{From: "a", To: "b"}}, shown: `{"a":null}`, stored: `{"b":null}`},
	} {
		res := &Resource{Version: "v2", Kind: "Thing", Plural: "things", StorageVersion: "v1", Moves: c.moves}
		check := func(what string, convert func(map[string]any) (map[string]any, error), in, want string) {
			t.Helper()
			obj := must.Decode[map[string]any](t, in)
			got, err := convert(obj)
			must.OK(t, err)
			if d := cmp.Diff(must.Decode[map[string]any](t, want), got); d != "" {
				t.Errorf("%s %s: -want +got\n%s", c.name, what, d)
			}
			if d := cmp.Diff(must.Decode[map[string]any](t, in), obj); d != "" {
				t.Errorf("%s %s changed what it was given:\n%s", c.name, what, d)
			}
		}
		check("to stored", res.ToStored, c.shown, c.stored)
		if !c.oneWay {
			check("from stored", res.FromStored, c.stored, c.shown)
		}
	}
}

// TestConvert: an object of one version in another, by moves, by code, or by its type
// alone; it is a new one, even where both versions have the same fields.
func TestConvert(t *testing.T) {
	all, err := Available()
	must.OK(t, err)
	for _, c := range []struct {
		from, to  schema.GroupVersionKind
		obj, want string
	}{
		{
			schema.GroupVersionKind{Version: "v1", Kind: "Event"}, schema.GroupVersionKind{Group: "events.k8s.io", Version: "v1", Kind: "Event"},
			`{"apiVersion":"v1","kind":"Event","message":"m","count":2}`, `{"apiVersion":"events.k8s.io/v1","kind":"Event","note":"m","deprecatedCount":2}`,
		},
		{
			schema.GroupVersionKind{Group: "events.k8s.io", Version: "v1", Kind: "Event"}, schema.GroupVersionKind{Version: "v1", Kind: "Event"},
			`{"apiVersion":"events.k8s.io/v1","kind":"Event","note":"m"}`, `{"apiVersion":"v1","kind":"Event","message":"m","reportingComponent":"","reportingInstance":""}`,
		},
		{
			schema.GroupVersionKind{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"}, schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "HorizontalPodAutoscaler"},
			`{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler","metadata":{},"spec":{"maxReplicas":3}}`,
			`{"apiVersion":"autoscaling/v1","kind":"HorizontalPodAutoscaler","metadata":{},"spec":{"maxReplicas":3}}`,
		},
		{
			schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1", Kind: "IPAddress"}, schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1beta1", Kind: "IPAddress"},
			`{"apiVersion":"networking.k8s.io/v1","kind":"IPAddress"}`, `{"apiVersion":"networking.k8s.io/v1beta1","kind":"IPAddress"}`,
		},
	} {
		from, to := all.LookupKind(c.from), all.LookupKind(c.to)
		if from == nil || to == nil {
			t.Errorf("%s or %s is not there", c.from, c.to)
			continue
		}
		obj := must.Decode[map[string]any](t, c.obj)
		got, err := Convert(obj, from, to)
		must.OK(t, err)
		if d := cmp.Diff(must.Decode[map[string]any](t, c.want), must.Decode[map[string]any](t, must.Encode(t, got))); d != "" {
			t.Errorf("%s to %s: -want +got\n%s", c.from, c.to, d)
		}
		if d := cmp.Diff(must.Decode[map[string]any](t, c.obj), obj); d != "" {
			t.Errorf("%s to %s changed what it was given:\n%s", c.from, c.to, d)
		}
	}
}
