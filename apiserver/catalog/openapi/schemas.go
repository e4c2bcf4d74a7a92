package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/quorate/quorate/apiserver/types/kinds"
	"k8s.io/apimachinery/pkg/runtime/schema"
	openapispec "k8s.io/kube-openapi/pkg/validation/spec"

	models "github.com/quorate/quorate/apiserver/types/schema"
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
	own  map[string]func() (any, error) // models that package schema does not have
	out  map[string]any

	builtin []*kinds.Resource
	// part says that the set is beside that of the built-in resources, and leaves out
	// what is in there.
	part bool
}

// definition is what a custom resource is made of; *crd.Version satisfies it.
type definition interface {
	// Schema of the objects; v2 leaves out what version 2 cannot say.
	Schema(v2 bool) (*openapispec.Schema, error)
	// ListSchema is that of lists.
	ListSchema() (*openapispec.Schema, error)
	// Fingerprint is the same for those whose documents are equal.
	Fingerprint() string
	// SelectableFields is the value of an extension of both.
	SelectableFields() []map[string]string
}

// newSchemaSet prepares a set for the document of some resources. The kinds of options
// and events belong to every group version that is built in.
func newSchemaSet(builtin, resources []*kinds.Resource, v2, enums bool) *schemaSet {
	s := &schemaSet{
		v2: v2, enum: enums, gvks: map[string][]schema.GroupVersionKind{}, own: map[string]func() (any, error){}, out: map[string]any{}, builtin: builtin,
	}
	all := slices.Clone(builtin)
	for _, r := range resources {
		if _, custom := r.Origin.(definition); custom {
			all = append(all, r)
		}
	}
	seen := map[schema.GroupVersion]bool{}
	for _, r := range all {
		s.kind(r.Model, r.GVK())
		if r.HasVerb("list") {
			s.kind(listModel(r), r.GroupVersion().WithKind(r.ListKindName()))
		}
		if d, ok := r.Origin.(definition); ok {
			// The kinds of options and events are those of the built-in groups, so that
			// their documents do not change with every definition.
			s.own[r.Model] = func() (any, error) { return selectable(d)(d.Schema(v2)) }
			s.own[listModel(r)] = func() (any, error) { return selectable(d)(d.ListSchema()) }
			continue
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
	s.otherKinds()
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
	if _, ok := s.out[name]; ok || s.part && s.own[name] == nil {
		return nil
	}
	raw, err := s.raw(name)
	if err != nil {
		return err
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

// raw is a model as JSON.
func (s *schemaSet) raw(name string) ([]byte, error) {
	if own := s.own[name]; own != nil {
		model, err := own()
		if err != nil {
			return nil, err
		}
		return json.Marshal(model)
	}
	raw, ok := models.Raw(name)
	if !ok {
		return nil, fmt.Errorf("no schema of %s", name)
	}
	return raw, nil
}

// selectable adds the fields that selectors may name to a schema.
func selectable(d definition) func(*openapispec.Schema, error) (any, error) {
	return func(s *openapispec.Schema, err error) (any, error) {
		if err != nil {
			return nil, err
		}
		if fields := d.SelectableFields(); len(fields) > 0 {
			s.AddExtension("x-kubernetes-selectable-fields", fields)
		}
		return s, nil
	}
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
