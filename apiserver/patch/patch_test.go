package patch

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
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
