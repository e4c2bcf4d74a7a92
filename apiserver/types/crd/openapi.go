package crd

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/quorate/quorate/apiserver/types/schema"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	openapiv2 "k8s.io/apiextensions-apiserver/pkg/controller/openapi/v2"
	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

const (
	refPrefix  = "#/components/schemas/"
	objectMeta = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
	listMeta   = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"
	// typed is a model with the properties that every kind has.
	typed = "io.k8s.api.core.v1.ConfigMap"
)

var (
	objectDescriptions = metav1beta1.PartialObjectMetadata{}.SwaggerDoc()
	listDescriptions   = metav1beta1.PartialObjectMetadataList{}.SwaggerDoc()
)

// Schema is the version's schema as OpenAPI shows it, and as applies are merged by,
// with references to models of package schema in its form. It is the caller's. v2
// leaves out what version 2 of OpenAPI cannot say.
func (v *Version) Schema(v2 bool) (*spec.Schema, error) {
	props, err := v.schema()
	if err != nil {
		return nil, err
	}
	s, err := structuralschema.NewStructural(props)
	if err != nil {
		return nil, fmt.Errorf("schema of %s: %w", v.resource.GVK(), err)
	}
	// Value validations are lifted into the structure, where clients look for them.
	s = s.Unfold()
	if v2 {
		if s.XPreserveUnknownFields {
			// kubectl would refuse the unknown fields if there were known ones.
			return &spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}}}, nil
		}
		s = openapiv2.ToStructuralOpenAPIV2(s)
	}
	out := s.ToKubeOpenAPI()
	if err := addType(out); err != nil {
		return nil, err
	}
	out.SetProperty("metadata", reference(objectMeta, objectDescriptions["metadata"]))
	return out, addEmbedded(out, v2)
}

// Fingerprint is the same for versions that are served in the same way: their
// documents are equal.
func (v *Version) Fingerprint() string {
	return hex.EncodeToString(v.definition.serving[:]) + "/" + v.document.Name
}

// ListSchema is that of lists.
func (v *Version) ListSchema() (*spec.Schema, error) {
	r := v.resource
	out := new(spec.Schema).Typed("object", "").
		WithDescription(r.ListKindName()+" is a list of "+r.Kind).
		WithRequired("items").
		SetProperty("items", *spec.ArrayProperty(spec.RefSchema(refPrefix + r.Model)).
			WithDescription("List of " + r.Plural + ". More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md")).
		SetProperty("metadata", reference(listMeta, listDescriptions["metadata"]))
	return out, addType(out)
}

// SelectableFields are the fields that selectors may name, in the form of the
// extension x-kubernetes-selectable-fields.
func (v *Version) SelectableFields() []map[string]string {
	var out []map[string]string
	for _, f := range v.resource.SelectableFields {
		out = append(out, map[string]string{"fieldPath": f.Path})
	}
	return out
}

func reference(model, description string) spec.Schema {
	return *spec.RefSchema(refPrefix + model).WithDescription(description)
}

// typeProperty is the apiVersion or kind of every object.
func typeProperty(name string) (spec.Schema, error) {
	raw, ok := schema.Raw(typed)
	if !ok {
		return spec.Schema{}, fmt.Errorf("%w: %s", schema.ErrUnknownModel, typed)
	}
	var s spec.Schema
	if err := json.Unmarshal(raw, &s); err != nil {
		return spec.Schema{}, fmt.Errorf("schema of %s: %w", typed, err)
	}
	return s.Properties[name], nil
}

func addType(s *spec.Schema) error {
	for _, name := range [...]string{"apiVersion", "kind"} {
		p, err := typeProperty(name)
		if err != nil {
			return err
		}
		s.SetProperty(name, p)
	}
	return nil
}

// addEmbedded gives embedded objects what every object has.
func addEmbedded(s *spec.Schema, v2 bool) error {
	if s == nil {
		return nil
	}
	for name, p := range s.Properties {
		if err := addEmbedded(&p, v2); err != nil {
			return err
		}
		s.Properties[name] = p
	}
	if s.Items != nil {
		if err := addEmbedded(s.Items.Schema, v2); err != nil {
			return err
		}
	}
	if s.AdditionalProperties != nil {
		if err := addEmbedded(s.AdditionalProperties.Schema, v2); err != nil {
			return err
		}
	}
	if open, _ := s.Extensions.GetBool("x-kubernetes-preserve-unknown-fields"); open && v2 {
		return nil
	}
	if object, _ := s.Extensions.GetBool("x-kubernetes-embedded-resource"); !object {
		return nil
	}
	for _, e := range embedded {
		p, err := typeProperty(e.name)
		if err != nil {
			return err
		}
		s.SetProperty(e.name, *p.WithDescription(e.text))
		if !slices.Contains(s.Required, e.name) {
			s.AddRequired(e.name)
		}
	}
	s.SetProperty("metadata", reference(objectMeta, objectDescriptions["metadata"]))
	return nil
}

// embedded are the properties that every embedded object must have.
var embedded = []struct{ name, text string }{
	{"kind", "kind is a string value representing the type of this object. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds"},
	{"apiVersion", "apiVersion defines the versioned schema of this representation of an object. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources"},
}
