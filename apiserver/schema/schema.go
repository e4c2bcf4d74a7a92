// Package schema knows the shape of objects: which fields a model has, their
// types, defaults, list types and merge keys. It works on decoded JSON trees
// (map[string]any, []any, string, bool, int64, float64, nil).
package schema

import (
	"errors"

	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var errTodo = errors.New("schema: under construction")

// Model is a compiled schema. It is immutable and safe for concurrent use.
type Model struct {
	Name string // io.k8s.api.apps.v1.Deployment
}

// Lookup returns the compiled model of a name such as
// io.k8s.api.apps.v1.Deployment. Compiled on first use, shared afterwards.
func Lookup(name string) (*Model, error) { return nil, errTodo }

// Fit makes a decoded object conform to the model, in place: it drops unknown
// fields and returns their paths in upstream's words (`spec.foo`,
// `spec.containers[0].bar`), sorted; drops nulls of fields that are not
// nullable; and converts numbers to the field's type (1.0 -> int64 1). A value
// of the wrong type is an error in upstream's words:
//
//	json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32
//
// kind and apiVersion at the top level are known to every model.
func (m *Model) Fit(obj map[string]any) (unknown []string, err error) { return nil, errTodo }

// Default fills in defaults, in place.
func (m *Model) Default(obj map[string]any) {}

// Validate checks what the schema says about values: required fields, enums,
// formats, bounds. Metadata is not its business.
func (m *Model) Validate(obj map[string]any) field.ErrorList { return nil }

// PatchMeta is for strategicpatch.StrategicMergeMapPatchUsingLookupPatchMeta.
func (m *Model) PatchMeta() strategicpatch.LookupPatchMeta { return nil }
