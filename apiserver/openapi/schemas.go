package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/quorate/quorate/apiserver/kinds"
	"k8s.io/apimachinery/pkg/runtime/schema"

	models "github.com/quorate/quorate/apiserver/schema"
)

const (
	refV3 = "#/components/schemas/"
	refV2 = "#/definitions/"
	gvkX  = "x-kubernetes-group-version-kind"
)

// schemaSet collects models and everything they refer to.
type schemaSet struct {
	v2   bool
	enum bool
	gvks map[string][]schema.GroupVersionKind
	out  map[string]any
}

// newSchemaSet prepares a set for the documents of a registry. The kinds of
// options and events belong to every group version.
func newSchemaSet(registry *kinds.Registry, v2, enums bool) *schemaSet {
	s := &schemaSet{v2: v2, enum: enums, gvks: map[string][]schema.GroupVersionKind{}, out: map[string]any{}}
	seen := map[schema.GroupVersion]bool{}
	for _, r := range registry.All() {
		s.kind(r.Model, r.GVK())
		if r.HasVerb("list") {
			s.kind(listModel(r), r.GroupVersion().WithKind(r.ListKindName()))
		}
		for _, sub := range r.Subresources {
			if sub.Model != "" && sub.Kind != "" && sub.Version != "" {
				s.kind(sub.Model, schema.GroupVersionKind{Group: sub.Group, Version: sub.Version, Kind: sub.Kind})
			}
		}
		if gv := r.GroupVersion(); !seen[gv] {
			seen[gv] = true
			s.kind(modelDeleteOptions, gv.WithKind("DeleteOptions"))
			s.kind(modelWatchEvent, gv.WithKind("WatchEvent"))
		}
	}
	s.kind(modelResourceList, schema.GroupVersionKind{Version: "v1", Kind: "APIResourceList"})
	s.kind(modelStatus, schema.GroupVersionKind{Version: "v1", Kind: "Status"})
	return s
}

func (s *schemaSet) kind(model string, gvk schema.GroupVersionKind) {
	if model != "" && !slices.Contains(s.gvks[model], gvk) {
		s.gvks[model] = append(s.gvks[model], gvk)
	}
}

// add puts a model and its closure into the set.
func (s *schemaSet) add(name string) error {
	if _, ok := s.out[name]; ok {
		return nil
	}
	raw, ok := models.Raw(name)
	if !ok {
		return fmt.Errorf("no schema of %s", name)
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var tree map[string]any
	if err := decoder.Decode(&tree); err != nil {
		return fmt.Errorf("schema of %s: %w", name, err)
	}
	s.out[name] = tree
	var refs []string
	s.rewrite(tree, &refs)
	if gvks := s.gvks[name]; len(gvks) > 0 {
		list := make([]any, len(gvks))
		for i, k := range gvks {
			list[i] = gvkMap(k)
		}
		tree[gvkX] = list
	}
	for _, ref := range refs {
		if err := s.add(ref); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func gvkMap(k schema.GroupVersionKind) map[string]string {
	return map[string]string{"group": k.Group, "version": k.Version, "kind": k.Kind}
}

// rewrite gives a schema the form of its document, in place, and collects the
// models it refers to. Only schemas are walked: a property may be called anything,
// "$ref" and "default" included.
func (s *schemaSet) rewrite(tree map[string]any, refs *[]string) {
	if ref, ok := tree["$ref"].(string); ok {
		name := strings.TrimPrefix(ref, refV3)
		*refs = append(*refs, name)
		s.reference(tree, name)
	}
	if !s.enum {
		delete(tree, "enum")
	}
	if s.v2 {
		// Version 2 knows no alternatives; upstream writes the string form.
		if _, ok := tree["oneOf"]; ok {
			delete(tree, "oneOf")
			tree["type"] = "string"
		}
		delete(tree, "default")
		delete(tree, "nullable")
		delete(tree, "anyOf")
		delete(tree, "not")
	}
	for _, key := range []string{"properties", "patternProperties"} {
		if m, ok := tree[key].(map[string]any); ok {
			for _, child := range m {
				s.child(child, refs)
			}
		}
	}
	for _, key := range []string{"items", "additionalProperties"} {
		s.child(tree[key], refs)
	}
	for _, key := range []string{"oneOf", "anyOf"} {
		if list, ok := tree[key].([]any); ok {
			for _, child := range list {
				s.child(child, refs)
			}
		}
	}
}

func (s *schemaSet) child(v any, refs *[]string) {
	if m, ok := v.(map[string]any); ok {
		s.rewrite(m, refs)
	}
}

// reference writes a reference: in version 3 nothing may stand beside one, so that
// one with a description is wrapped.
func (s *schemaSet) reference(tree map[string]any, name string) {
	if s.v2 {
		tree["$ref"] = refV2 + name
		return
	}
	if len(tree) == 1 {
		tree["$ref"] = refV3 + name
		return
	}
	delete(tree, "$ref")
	tree["allOf"] = []any{map[string]any{"$ref": refV3 + name}}
}
