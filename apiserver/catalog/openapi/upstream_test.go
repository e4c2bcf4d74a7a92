package openapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/internal/facts"
	"github.com/quorate/quorate/internal/must"
)

// What OpenAPI v3 says of models and operations is what upstream publishes, but
// for the files of differences.
func TestUpstream(t *testing.T) {
	registry, err := kinds.Available()
	must.OK(t, err)
	h := New(func() *kinds.Registry { return registry }, "v1.36.3")
	var root struct{ Paths map[string]any }
	read(t, h, "/openapi/v3", &root)
	var models, operations []string
	others := others(registry.All()) // test/system/golden compares these
	for name := range root.Paths {
		if _, other := others[name]; other {
			continue
		}
		var d spec
		read(t, h, "/openapi/v3/"+name, &d)
		models = append(models, d.models()...)
		operations = append(operations, d.operations(t)...)
	}
	t.Run("models", func(t *testing.T) {
		facts.Compare(t, "testdata/models.txt", "testdata/models-differences.txt", models)
	})
	t.Run("operations", func(t *testing.T) {
		facts.Compare(t, "testdata/operations.txt", "testdata/operations-differences.txt", operations)
	})
}

func read(t *testing.T, h http.Handler, path string, into any) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	if w.Code != http.StatusOK {
		t.Fatalf("%s: %d", path, w.Code)
	}
	if err := json.Unmarshal(w.Body.Bytes(), into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// spec is what is compared of a document; the same words as in
// tools/upstreamfacts, which is a module of its own.
type spec struct {
	Paths      map[string]map[string]json.RawMessage
	Components struct{ Schemas map[string]*specSchema }
}

type specSchema struct {
	Ref                  string                 `json:"$ref"`
	AllOf                []*specSchema          `json:"allOf"`
	OneOf                []*specSchema          `json:"oneOf"`
	Type                 string                 `json:"type"`
	Format               string                 `json:"format"`
	Default              any                    `json:"default"`
	Required             []string               `json:"required"`
	Properties           map[string]*specSchema `json:"properties"`
	Items                *specSchema            `json:"items"`
	AdditionalProperties *specSchema            `json:"additionalProperties"`
	GVK                  []specGVK              `json:"x-kubernetes-group-version-kind"`
	ListType             string                 `json:"x-kubernetes-list-type"`
	ListMapKeys          []string               `json:"x-kubernetes-list-map-keys"`
	MapType              string                 `json:"x-kubernetes-map-type"`
	PatchStrategy        string                 `json:"x-kubernetes-patch-strategy"`
	PatchMergeKey        string                 `json:"x-kubernetes-patch-merge-key"`
	Unions               []any                  `json:"x-kubernetes-unions"`
	IntOrString          bool                   `json:"x-kubernetes-int-or-string"`
	Preserve             bool                   `json:"x-kubernetes-preserve-unknown-fields"`
}

type specGVK struct{ Group, Version, Kind string }

func (d *spec) models() []string {
	var lines []string
	for name, s := range d.Components.Schemas {
		lines = append(lines, strings.TrimSpace(name+" "+s.facts()))
		for _, k := range s.GVK {
			if !strings.HasSuffix(name, ".DeleteOptions") && !strings.HasSuffix(name, ".WatchEvent") {
				lines = append(lines, fmt.Sprintf("%s gvk=%s/%s/%s", name, k.Group, k.Version, k.Kind))
			}
		}
		for field, p := range s.Properties {
			lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s .%s %s", name, field, p.facts())))
		}
	}
	return lines
}

func (s *specSchema) facts() string {
	var out []string
	add := func(key, value string) {
		if value != "" {
			out = append(out, key+"="+value)
		}
	}
	add("type", s.typeName())
	slices.Sort(s.Required)
	add("required", strings.Join(s.Required, ","))
	if s.Default != nil {
		b, _ := json.Marshal(s.Default)
		add("default", string(b))
	}
	add("listType", s.ListType)
	add("listMapKeys", strings.Join(s.ListMapKeys, ","))
	add("mapType", s.MapType)
	add("patchStrategy", s.PatchStrategy)
	add("patchMergeKey", s.PatchMergeKey)
	if len(s.Unions) > 0 {
		b, _ := json.Marshal(s.Unions)
		add("unions", string(b))
	}
	if s.IntOrString {
		add("intOrString", "true")
	}
	if s.Preserve {
		add("preserveUnknown", "true")
	}
	return strings.Join(out, " ")
}

func (s *specSchema) typeName() string {
	if s == nil {
		return ""
	}
	ref := s.Ref
	if ref == "" && len(s.AllOf) == 1 {
		ref = s.AllOf[0].Ref
	}
	switch {
	case ref != "":
		return ref[strings.LastIndex(ref, "/")+1:]
	case len(s.OneOf) > 0:
		var types []string
		for _, o := range s.OneOf {
			types = append(types, o.typeName())
		}
		return strings.Join(types, "|")
	case s.Items != nil:
		return "[]" + s.Items.typeName()
	case s.AdditionalProperties != nil:
		return "map[" + s.AdditionalProperties.typeName() + "]"
	case s.Format != "":
		return s.Type + ":" + s.Format
	}
	return s.Type
}

type specContent map[string]struct{ Schema specSchema }

type specOperation struct {
	ID         string   `json:"operationId"`
	Action     string   `json:"x-kubernetes-action"`
	GVK        *specGVK `json:"x-kubernetes-group-version-kind"`
	Parameters []struct{ Name, In string }
	Tags       []string
	Body       *struct{ Content specContent } `json:"requestBody"`
	Responses  map[string]struct{ Content specContent }
}

func (d *spec) operations(t *testing.T) []string {
	t.Helper()
	var lines []string
	for path, methods := range d.Paths {
		for method, raw := range methods {
			var o specOperation
			if err := json.Unmarshal(raw, &o); err != nil {
				t.Fatalf("%s %s: %v", method, path, err)
			}
			lines = append(lines, path+" "+method+" "+o.facts())
		}
	}
	return lines
}

func (o *specOperation) facts() string {
	var params []string
	for _, p := range o.Parameters {
		if p.In != "path" {
			params = append(params, p.Name)
		}
	}
	slices.Sort(params)
	out := fmt.Sprintf("id=%s action=%s tags=%s", o.ID, o.Action, strings.Join(o.Tags, ","))
	if o.GVK != nil {
		out += fmt.Sprintf(" gvk=%s/%s/%s", o.GVK.Group, o.GVK.Version, o.GVK.Kind)
	}
	out += " params=" + strings.Join(params, ",")
	if o.Body != nil {
		out += " body=" + o.Body.Content.model()
	}
	for _, code := range slices.Sorted(maps.Keys(o.Responses)) {
		out += " " + code + "=" + o.Responses[code].Content.model()
	}
	return out
}

func (c specContent) model() string {
	for _, x := range c { // all have the same
		return x.Schema.typeName()
	}
	return ""
}
