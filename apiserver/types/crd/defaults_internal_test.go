package crd

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"
)

func structural(t *testing.T, schema string) *structuralschema.Structural {
	t.Helper()
	var props apiextensionsv1.JSONSchemaProps
	must.OK(t, json.Unmarshal([]byte(schema), &props))
	internal := &apiextensions.JSONSchemaProps{}
	must.OK(t, apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&props, internal, nil))
	s, err := structuralschema.NewStructural(internal)
	must.OK(t, err)
	return s.DeepCopy()
}

func decoded(t *testing.T, text string) map[string]any {
	t.Helper()
	var obj map[string]any
	must.OK(t, kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &obj))
	return obj
}

// TestDefaultsAsUpstream: what fits is completed as upstream's library does it.
func TestDefaultsAsUpstream(t *testing.T) {
	const schema = `{"type":"object","properties":{
		"a":{"type":"string","default":"x"},
		"n":{"type":"integer","nullable":true,"default":3},
		"deep":{"type":"object","default":{"list":[{},{"k":"y"},null]},"properties":{
			"list":{"type":"array","items":{"type":"object","default":{"k":"null"},"properties":{"k":{"type":"string","default":"z"},"more":{"type":"array","items":{"type":"integer"},"default":[1,2]}}}}}},
		"plain":{"type":"object","properties":{"in":{"type":"object","default":{},"properties":{"b":{"type":"boolean","default":false}}}}},
		"map":{"type":"object","additionalProperties":{"type":"object","default":{"q":1},"properties":{"q":{"type":"integer"},"r":{"type":"string","default":"r"}}}},
		"any":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}`
	s := structural(t, schema)
	for _, text := range []string{
		`{}`, `{"a":null,"n":null}`, `{"a":"own","n":1,"deep":{}}`, `{"deep":{"list":[]}}`, `{"deep":null}`,
		`{"deep":{"list":[null,{},{"more":[]},{"k":null}]}}`, `{"plain":{}}`, `{"plain":{"in":{"b":true}}}`, `{"plain":null}`,
		`{"map":{"x":{},"y":null,"z":{"r":"own"}}}`, `{"any":{"a":null,"b":[{}]}}`, `{"unknown":{"a":1},"deep":[1],"map":7}`,
	} {
		want, got := decoded(t, text), decoded(t, text)
		defaulting.Default(want, s)
		if err := complete(got, s); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v\n got %v\nwant %v", text, err, got, want)
		}
	}
	// Nothing of the schema is handed out.
	first, second := map[string]any{}, map[string]any{}
	if complete(first, s) != nil || complete(second, s) != nil {
		t.Fatal("not completed")
	}
	first["deep"].(map[string]any)["list"].([]any)[0].(map[string]any)["k"] = "changed"
	if complete(second, s) != nil || second["deep"].(map[string]any)["list"].([]any)[0].(map[string]any)["k"] != "z" {
		t.Errorf("a default is shared: %v", second)
	}
}

// TestDefaultsAreBounded: a definition of a few KB, and an object of a few bytes, cannot become
// gigabytes.
func TestDefaultsAreBounded(t *testing.T) {
	empties := "[{}" + strings.Repeat(",{}", 999) + "]"
	nested := `{"type":"object","properties":{"x":{"type":"string","default":"x"}}}`
	for _, name := range []string{"c", "b", "a"} {
		nested = `{"type":"object","properties":{"` + name + `":{"type":"array","default":` + empties + `,"items":` + nested + `}}}`
	}
	large := `{"type":"object","properties":{"list":{"type":"array","items":{"type":"object","properties":{"x":{"type":"object","x-kubernetes-preserve-unknown-fields":true,"default":{"all":` + empties + `}}}}}}}`
	for name, c := range map[string]struct{ schema, object string }{
		"defaults within defaults": {nested, `{}`},
		"one in each element":      {large, `{"list":` + empties + `}`},
	} {
		t.Run(name, func(t *testing.T) {
			s, obj := structural(t, c.schema), decoded(t, c.object)
			if err := complete(obj, s); !errors.Is(err, ErrDefaults) {
				t.Errorf("error %v, want ErrDefaults", err)
			}
		})
	}
	// A thousand small ones are nothing unusual.
	s, obj := structural(t, nested), map[string]any{"a": []any{map[string]any{"b": []any{}}}}
	if err := complete(runtime.DeepCopyJSON(obj), s); err != nil {
		t.Error(err)
	}
}
