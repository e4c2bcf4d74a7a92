package patch

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

func parse(t testing.TB, s string) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(s), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestMerge is the example table of RFC 7386, as far as both sides are objects.
func TestMerge(t *testing.T) {
	for _, x := range [][3]string{
		{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`},
		{`{"a":"b"}`, `{"a":null}`, `{}`},
		{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`},
		{`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"c"}`, `{"a":["b"]}`, `{"a":["b"]}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`},
		{`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
		{`{"e":null}`, `{"a":1}`, `{"e":null,"a":1}`},
		{`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
	} {
		p, err := Parse(string(types.MergePatchType), []byte(x[1]), true)
		if err != nil {
			t.Fatal(err)
		}
		current := parse(t, x[0])
		got, err := p.Apply(current, nil)
		if err != nil {
			t.Fatal(err)
		}
		// Numbers are int64 on one side and float64 on the other.
		b, err := json.Marshal(got)
		if err != nil || !reflect.DeepEqual(parse(t, string(b)), parse(t, x[2])) {
			t.Errorf("%s + %s = %s, want %s", x[0], x[1], b, x[2])
		}
		if !reflect.DeepEqual(current, parse(t, x[0])) {
			t.Errorf("%s has become %v", x[0], current)
		}
	}
}

// TestBounds: patches that are small and do much.
func TestBounds(t *testing.T) {
	ops := "[" + strings.Repeat(`{"op":"test","path":"/a","value":1},`, MaxOperations) + `{"op":"test","path":"/a","value":1}]`
	if _, err := Parse(string(types.JSONPatchType), []byte(ops), false); !apierrors.IsRequestEntityTooLargeError(err) {
		t.Errorf("%d operations: %v", MaxOperations+1, err)
	}
	var bomb []string
	for i := range 40 {
		bomb = append(bomb, fmt.Sprintf(`{"op":"copy","from":"/a","path":"/a/k%d"}`, i))
	}
	p, err := Parse(string(types.JSONPatchType), []byte("["+strings.Join(bomb, ",")+"]"), false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Apply(parse(t, `{"a":{"x":"y"}}`), nil); !apierrors.IsRequestEntityTooLargeError(err) {
		t.Errorf("a document that doubles forty times: %v", err)
	}
}

func FuzzPatch(f *testing.F) {
	for _, s := range []string{
		`[{"op":"add","path":"/a/-","value":1}]`, `[{"op":"copy","from":"","path":"/a"}]`, `[{"op":"remove","path":""}]`,
		`[{"op":"replace","path":"","value":[]}]`, `[{"op":"test"}]`, `[null]`, `[{}]`, `{"a":null}`, `{"a":{"b":[1]}}`, `null`,
		`[{"op":"move","from":"/a","path":"/a/b"}]`, `[{"op":"add","path":"/a/99999999999","value":1}]`,
	} {
		f.Add([]byte(s), true)
		f.Add([]byte(s), false)
	}
	f.Fuzz(func(t *testing.T, body []byte, merge bool) {
		kind := types.JSONPatchType
		if merge {
			kind = types.MergePatchType
		}
		p, err := Parse(string(kind), body, true)
		if err != nil {
			if _, ok := err.(apierrors.APIStatus); !ok {
				t.Errorf("%T: %v", err, err)
			}
			return
		}
		got, err := p.Apply(parse(t, `{"a":["b",{"c":1}],"d":{"e":null}}`), nil)
		if err == nil && got == nil {
			t.Error("neither an object nor an error")
		}
		if err != nil {
			if _, ok := err.(apierrors.APIStatus); !ok {
				t.Errorf("%T: %v", err, err)
			}
		}
	})
}

// strategicPanics are patches that the library fails on with a panic.
var strategicPanics = []string{
	`{"metadata":{"$setElementOrder/finalizers":["x",null,{}]}}`,
	`{"metadata":{"ownerReferences":[null]}}`,
}

const strategicObject = `{"metadata":{"name":"a","labels":{"a":"b"},"finalizers":["a"],"ownerReferences":[{"uid":"1","name":"o"}]}}`

func strategicMeta(t testing.TB) strategicpatch.LookupPatchMeta {
	t.Helper()
	meta, err := strategicpatch.NewPatchMetaFromStruct(metav1.PartialObjectMetadata{})
	if err != nil {
		t.Fatal(err)
	}
	return meta
}

// TestStrategicPanics: what the library cannot stand is the client's mistake.
func TestStrategicPanics(t *testing.T) {
	currents := []string{strategicObject, `{"metadata":{"ownerReferences":[]}}`}
	for i, body := range strategicPanics {
		p, err := Parse(string(types.StrategicMergePatchType), []byte(body), false)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Apply(parse(t, currents[i]), strategicMeta(t)); !apierrors.IsBadRequest(err) {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func FuzzStrategic(f *testing.F) {
	for _, s := range append(strategicPanics,
		`{"$patch":"delete"}`, `{"metadata":{"$patch":"replace","name":"b"}}`, `{"metadata":{"$retainKeys":["name"],"labels":null}}`,
		`{"metadata":{"ownerReferences":[{"uid":"1","$patch":"delete"},{"uid":"2"}],"$setElementOrder/ownerReferences":[{"uid":"2"}]}}`,
		`{"metadata":{"finalizers":["b"],"$deleteFromPrimitiveList/finalizers":["a"]}}`,
	) {
		f.Add([]byte(s))
	}
	meta := strategicMeta(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		p, err := Parse(string(types.StrategicMergePatchType), body, false)
		if err != nil {
			return
		}
		for _, object := range []string{strategicObject, `{"metadata":{"ownerReferences":[],"finalizers":[]}}`} {
			current := parse(t, object)
			if _, err := p.Apply(current, meta); err != nil {
				if _, ok := err.(apierrors.APIStatus); !ok {
					t.Errorf("%T: %v", err, err)
				}
			}
			if !reflect.DeepEqual(current, parse(t, object)) {
				t.Errorf("%s has changed the current object: %v", body, current)
			}
		}
	})
}
