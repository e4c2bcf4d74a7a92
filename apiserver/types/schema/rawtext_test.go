package schema

import (
	"encoding/json"
	"testing"

	"github.com/quorate/quorate/internal/must"
	kjson "sigs.k8s.io/json"
)

// TestRawTexts: texts go to the fields that mean the same, of those first to the one of their place.
func TestRawTexts(t *testing.T) {
	model, err := Lookup("io.k8s.api.resource.v1.DeviceClass")
	must.OK(t, err)
	config := func(parameters ...string) string {
		out := ""
		for _, p := range parameters {
			if out != "" {
				out += ","
			}
			out += `{"opaque":{"driver":"d","parameters":` + p + `}}`
		}
		return `{"spec":{"config":[` + out + `]}}`
	}
	for _, x := range []struct{ name, obj, sent, want string }{
		{"in place", config(`{"a":1}`), config(`{"a":1.0}`), config(`{"a":1.0}`)},
		{"elsewhere", config(`{"a":1}`), config(`2`, `{"a":1.0}`), config(`{"a":1.0}`)},
		{"two that mean the same", config(`1e30`, `1e30`), config(`1e30`, `1.0e30`), config(`1e30`, `1.0e30`)},
		{"changed since", config(`{"a":2}`), config(`{"a":1.0}`), config(`{"a":2}`)},
		{"order of fields", config(`{"a":1,"b":{"d":2,"c":3}}`), config(`{"b":{"d":2,"c":3},"a":1}`), config(`{"b":{"d":2,"c":3},"a":1}`)},
		{"null", config(`null`), config(`null`), config(`null`)},
		{"nothing was sent", config(`1`), ``, config(`1`)},
		{"something else was sent", config(`1`), `[{"spec":1}]`, config(`1`)},
		{"another type at the place", config(`1`), `{"spec":{"config":{"opaque":1}}}`, config(`1`)},
	} {
		var obj map[string]any
		must.OK(t, kjson.UnmarshalCaseSensitivePreserveInts([]byte(x.obj), &obj))
		before := meaning(obj)
		out, err := json.Marshal(model.WithRaw(obj, model.RawTexts([]byte(x.sent))))
		if err != nil || string(out) != x.want {
			t.Errorf("%s: %s, %v, want %s", x.name, out, err, x.want)
		}
		if meaning(obj) != before {
			t.Errorf("%s: the object was changed", x.name)
		}
	}
	for name, want := range map[string]bool{
		"io.k8s.api.apps.v1.ControllerRevision": true, "io.k8s.api.resource.v1.ResourceClaim": true, "io.k8s.api.resource.v1.ResourceClaimTemplate": true,
		"io.k8s.api.core.v1.Pod": false, "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition": false,
	} {
		m, err := Lookup(name)
		if err != nil || m.HasRaw() != want {
			t.Errorf("%s: %v, %v", name, m.HasRaw(), err)
		}
	}
}

func TestWithinRaw(t *testing.T) {
	for _, x := range []struct {
		model, path string
		want        bool
	}{
		{"io.k8s.api.apps.v1.ControllerRevision", "data.a", true},
		{"io.k8s.api.apps.v1.ControllerRevision", "data.a[0].b", true},
		{"io.k8s.api.apps.v1.ControllerRevision", "data", false}, // the field itself
		{"io.k8s.api.apps.v1.ControllerRevision", "metadata.labels.a", false},
		{"io.k8s.api.resource.v1.DeviceClass", "spec.config[1].opaque.parameters.a", true},
		{"io.k8s.api.resource.v1.DeviceClass", "spec.config[1].opaque.driver", false},
		{"io.k8s.api.core.v1.ConfigMap", "data.a", false},
	} {
		m, err := Lookup(x.model)
		must.OK(t, err)
		if got := m.WithinRaw(x.path); got != x.want {
			t.Errorf("%s of %s: %v", x.path, x.model, got)
		}
	}
}
