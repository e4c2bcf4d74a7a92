package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

type document struct {
	Paths      map[string]map[string]json.RawMessage
	Components struct{ Schemas map[string]*schema }
}

// schema is what is compared of a schema: not descriptions, and not enums, which
// upstream's servers have and its published documents leave out.
type schema struct {
	Ref                  string             `json:"$ref"`
	AllOf                []*schema          `json:"allOf"`
	OneOf                []*schema          `json:"oneOf"`
	Type                 string             `json:"type"`
	Format               string             `json:"format"`
	Default              any                `json:"default"`
	Required             []string           `json:"required"`
	Properties           map[string]*schema `json:"properties"`
	Items                *schema            `json:"items"`
	AdditionalProperties *schema            `json:"additionalProperties"`
	GVK                  []gvk              `json:"x-kubernetes-group-version-kind"`
	ListType             string             `json:"x-kubernetes-list-type"`
	ListMapKeys          []string           `json:"x-kubernetes-list-map-keys"`
	MapType              string             `json:"x-kubernetes-map-type"`
	PatchStrategy        string             `json:"x-kubernetes-patch-strategy"`
	PatchMergeKey        string             `json:"x-kubernetes-patch-merge-key"`
	Unions               []any              `json:"x-kubernetes-unions"`
	IntOrString          bool               `json:"x-kubernetes-int-or-string"`
	Preserve             bool               `json:"x-kubernetes-preserve-unknown-fields"`
}

type gvk struct{ Group, Version, Kind string }

// modelFacts has one line per model and one per field, over the documents of all
// group versions; a model is the same wherever it occurs, its kinds aside.
func modelFacts(dir string) ([]string, error) {
	docs, err := documents(dir)
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, d := range docs {
		for name, s := range d.Components.Schemas {
			lines = append(lines, name+" "+s.facts())
			for _, k := range s.GVK {
				// The options of requests belong to every group version; whether one
				// is served says discovery.
				if !strings.HasSuffix(name, ".DeleteOptions") && !strings.HasSuffix(name, ".WatchEvent") {
					lines = append(lines, fmt.Sprintf("%s gvk=%s/%s/%s", name, k.Group, k.Version, k.Kind))
				}
			}
			for field, p := range s.Properties {
				lines = append(lines, fmt.Sprintf("%s .%s %s", name, field, p.facts()))
			}
		}
	}
	return lines, nil
}

// documents are those of the versions that a server may have: no alpha ones.
func documents(dir string) ([]*document, error) {
	files, err := filepath.Glob(filepath.Join(dir, "api*__v*_openapi.json"))
	if err != nil {
		return nil, err
	}
	var docs []*document
	for _, f := range files {
		if strings.Contains(f, "alpha") {
			continue
		}
		d := &document{}
		if err := read(f, d); err != nil {
			return nil, err
		}
		docs = append(docs, d)
	}
	return docs, nil
}

// facts are the rules of one value in a fixed order.
func (s *schema) facts() string {
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

func (s *schema) typeName() string {
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

type operation struct {
	ID         string `json:"operationId"`
	Action     string `json:"x-kubernetes-action"`
	GVK        *gvk   `json:"x-kubernetes-group-version-kind"`
	Parameters []parameter
	Tags       []string
	Body       *struct {
		Content map[string]struct{ Schema schema }
	} `json:"requestBody"`
	Responses map[string]struct {
		Content map[string]struct{ Schema schema }
	}
}

type parameter struct{ Name, In string }

// operationFacts has one line per method of a path. The deprecated paths below
// /watch/ and those of groups themselves are left out.
func operationFacts(dir string) ([]string, error) {
	docs, err := documents(dir)
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, d := range docs {
		for path, methods := range d.Paths {
			var shared []parameter
			if raw, ok := methods["parameters"]; ok {
				if err := json.Unmarshal(raw, &shared); err != nil {
					return nil, fmt.Errorf("%s: %w", path, err)
				}
			}
			for method, raw := range methods {
				if method == "parameters" || strings.Contains(path, "/watch/") {
					continue
				}
				var o operation
				if err := json.Unmarshal(raw, &o); err != nil {
					return nil, fmt.Errorf("%s %s: %w", method, path, err)
				}
				o.Parameters = append(o.Parameters, shared...)
				lines = append(lines, path+" "+method+" "+o.facts())
			}
		}
	}
	return lines, nil
}

func (o *operation) facts() string {
	var params []string
	for _, p := range o.Parameters {
		if p.In != "path" { // those are in the path
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
		out += " body=" + model(o.Body.Content)
	}
	for _, code := range slices.Sorted(maps.Keys(o.Responses)) {
		out += " " + code + "=" + model(o.Responses[code].Content)
	}
	return out
}

func model(types map[string]struct{ Schema schema }) string {
	for _, c := range types { // all have the same
		return c.Schema.typeName()
	}
	return ""
}
