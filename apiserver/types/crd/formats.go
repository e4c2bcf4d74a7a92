package crd

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	formats "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// FormatWarnings are upstream's about a definition that was validated: formats in its schemas that
// nothing checks, but for those that old has, too. old is nil for a new one.
func FormatWarnings(obj, old map[string]any) (out []string) {
	added := unknownFormats(obj)
	if len(added) == 0 {
		return nil
	}
	for name := range unknownFormats(old) {
		delete(added, name)
	}
	for _, name := range slices.Sorted(maps.Keys(added)) {
		out = append(out, fmt.Sprintf("unrecognized format %q", name))
	}
	return out
}

// unknownFormats are the formats in the schemas of a definition that nothing checks. What cannot be
// read has none.
func unknownFormats(obj map[string]any) map[string]bool {
	if obj == nil {
		return nil
	}
	d, err := internalOf(obj)
	if err != nil {
		return nil
	}
	found, version := map[string]bool{}, environment.DefaultCompatibilityVersion()
	look := func(s *apiextensions.JSONSchemaProps) bool {
		for _, name := range formats.GetUnrecognizedFormats(&spec.Schema{SchemaProps: spec.SchemaProps{Format: s.Format, Type: []string{s.Type}}}, version) {
			found[name] = true
		}
		return false // go on
	}
	if v := d.Spec.Validation; v != nil { // of all versions, which upstream's conversion puts here
		validation.SchemaHas(v.OpenAPIV3Schema, look)
	}
	for i := range d.Spec.Versions {
		if v := d.Spec.Versions[i].Schema; v != nil {
			validation.SchemaHas(v.OpenAPIV3Schema, look)
		}
	}
	return found
}
