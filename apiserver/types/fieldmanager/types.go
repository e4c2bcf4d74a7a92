package fieldmanager

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/schemaconv"
	"k8s.io/kube-openapi/pkg/validation/spec"
	smdschema "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/quorate/quorate/apiserver/types/schema"
)

// builtin is the schema of all models, made on first use and shared by all
// resources.
var builtin = sync.OnceValues(func() (*smdschema.Schema, error) {
	models := map[string]*spec.Schema{}
	for _, name := range schema.Names() {
		raw, _ := schema.Raw(name)
		s := &spec.Schema{}
		if err := json.Unmarshal(raw, s); err != nil {
			return nil, fmt.Errorf("parse model %s: %w", name, err)
		}
		models[name] = s
	}
	// Unknown fields were dropped when the body was read: there are none here.
	return schemaconv.ToSchemaFromOpenAPI(models, false)
})

// types is the managedfields.TypeConverter of one resource in all its versions.
type types map[apischema.GroupVersionKind]typed.ParseableType

var _ managedfields.TypeConverter = types{}

// typesOf returns the types of a resource's versions.
func typesOf(versions []Version) (types, error) {
	s, err := builtin()
	if err != nil {
		return nil, fmt.Errorf("schema for merging: %w", err)
	}
	if s, err = withOwn(s, versions); err != nil {
		return nil, err
	}
	out := types{}
	for _, v := range versions {
		ref := smdschema.TypeRef{NamedType: &v.Model}
		if _, ok := s.Resolve(ref); !ok {
			return nil, fmt.Errorf("schema for merging: %w: %s", schema.ErrUnknownModel, v.Model)
		}
		out[v.GVK] = typed.ParseableType{Schema: s, TypeRef: ref}
	}
	return out, nil
}

// TypeConverter merges objects of some versions by their schemas, without their owners. It is
// safe for concurrent use. Errors: a model is not known, or a schema cannot be merged by.
func TypeConverter(versions ...Version) (managedfields.TypeConverter, error) {
	t, err := typesOf(versions)
	if err != nil {
		return nil, err
	}
	return t, nil
}

// metadataModels are what the schemas of custom resources refer to.
var metadataModels = sync.OnceValues(func() ([]smdschema.TypeDef, error) {
	s, err := builtin()
	if err != nil {
		return nil, err
	}
	var out []smdschema.TypeDef
	for _, t := range s.Types {
		if strings.HasPrefix(t.Name, "io.k8s.apimachinery.pkg.apis.meta.v1.") || strings.HasPrefix(t.Name, "__untyped_") {
			out = append(out, t)
		}
	}
	return out, nil
})

// withOwn returns a schema that has those of the versions that bring one along, and
// the metadata's, or builtin if none does.
func withOwn(builtin *smdschema.Schema, versions []Version) (*smdschema.Schema, error) {
	models := map[string]*spec.Schema{}
	for _, v := range versions {
		if v.Schema != nil {
			models[v.Model] = v.Schema
		}
	}
	if len(models) == 0 {
		return builtin, nil
	}
	own, err := schemaconv.ToSchemaFromOpenAPI(models, false)
	if err != nil {
		return nil, fmt.Errorf("schema for merging: %w", err)
	}
	shared, err := metadataModels()
	if err != nil {
		return nil, err
	}
	has := map[string]bool{}
	for _, t := range own.Types {
		has[t.Name] = true
	}
	for _, t := range shared {
		if !has[t.Name] {
			own.Types = append(own.Types, t)
		}
	}
	return own, nil
}

// ObjectToTyped implements managedfields.TypeConverter.
func (t types) ObjectToTyped(obj runtime.Object, opts ...typed.ValidationOptions) (*typed.TypedValue, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("type a %T: only trees have a type here", obj)
	}
	of, ok := t[u.GroupVersionKind()]
	if !ok {
		return nil, runtime.NewNotRegisteredErrForKind("this server", u.GroupVersionKind())
	}
	return of.FromUnstructured(u.Object, opts...)
}

// TypedToObject implements managedfields.TypeConverter.
func (types) TypedToObject(v *typed.TypedValue) (runtime.Object, error) {
	m, ok := v.AsValue().Unstructured().(map[string]any)
	if !ok {
		return nil, fmt.Errorf("a merged object is a %T", v.AsValue().Unstructured())
	}
	return &unstructured.Unstructured{Object: m}, nil
}
