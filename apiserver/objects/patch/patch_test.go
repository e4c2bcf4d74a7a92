package patch

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

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
		must.OK(t, err)
		current := must.Decode[map[string]any](t, x[0])
		got, err := p.Apply(current, nil)
		must.OK(t, err)
		// Numbers are int64 on one side and float64 on the other.
		b, err := json.Marshal(got)
		if err != nil || !reflect.DeepEqual(must.Decode[map[string]any](t, string(b)), must.Decode[map[string]any](t, x[2])) {
			t.Errorf("%s + %s = %s, want %s", x[0], x[1], b, x[2])
		}
		if !reflect.DeepEqual(current, must.Decode[map[string]any](t, x[0])) {
			t.Errorf("%s has become %v", x[0], current)
		}
	}
}

// TestContentTypes: the media type counts, whatever its letters and parameters; a patch of the
// server-side apply is known and not parsed here.
func TestContentTypes(t *testing.T) {
	for _, row := range []struct {
		contentType string
		kind        types.PatchType // empty: it is refused
		builtinOnly bool
	}{
		{"application/json-patch+json", types.JSONPatchType, false},
		{"application/merge-patch+json; charset=utf-8", types.MergePatchType, false},
		{"Application/Strategic-Merge-Patch+JSON", types.StrategicMergePatchType, true},
		{"application/json", "", false},
		{"application/json-patch+json; charset", "", false},
		{"", "", false},
	} {
		for _, custom := range []bool{false, true} {
			body := `{}`
			if row.kind == types.JSONPatchType {
				body = `[]`
			}
			p, err := Parse(row.contentType, []byte(body), custom)
			checked := Check(row.contentType, custom)
			switch takes := row.kind != "" && !(custom && row.builtinOnly); {
			case takes && (err != nil || checked != nil || p.Type != row.kind):
				t.Errorf("%q, custom %v: %v, %v, %v", row.contentType, custom, p, err, checked)
			case !takes && (!apierrors.IsUnsupportedMediaType(err) || !apierrors.IsUnsupportedMediaType(checked)):
				t.Errorf("%q, custom %v: %v, %v, want 415", row.contentType, custom, err, checked)
			}
			if IsApply(row.contentType) {
				t.Errorf("%q is an apply", row.contentType)
			}
		}
	}
	for _, contentType := range []string{string(types.ApplyYAMLPatchType), "application/apply-patch+yaml; charset=utf-8"} {
		for _, custom := range []bool{false, true} {
			_, err := Parse(contentType, []byte(`{}`), custom)
			if !IsApply(contentType) || Check(contentType, custom) != nil || !apierrors.IsUnsupportedMediaType(err) {
				t.Errorf("%q, custom %v: apply %v, %v", contentType, custom, IsApply(contentType), err)
			}
		}
	}
}

// TestMergeAsUpstream: nulls in a merge patch are what they are to the library that upstream merges with.
func TestMergeAsUpstream(t *testing.T) {
	for _, row := range []struct{ object, patch string }{
		{`{}`, `{"a":[{"b":null,"c":1}]}`},
		{`{"a":[{"b":2}]}`, `{"a":[{"b":null,"c":[null,{"d":null}]},null]}`},
		{`{"a":1}`, `{"a":[{"b":null}]}`},
		{`{"a":null}`, `{"a":[{"b":null}]}`},
		{`{"a":{"b":1}}`, `{"a":[{"b":null}]}`},
		{`{"a":{"b":1}}`, `{"a":{"b":null,"c":[{"d":null}],"e":{"f":null}}}`},
		{`{}`, `{"a":{"b":null,"c":[{"d":null}]}}`},
		{`{"a":1}`, `{"a":{"b":null,"c":[[{"d":null}]]}}`},
	} {
		want, err := jsonpatch.MergePatch([]byte(row.object), []byte(row.patch))
		must.OK(t, err)
		p, err := Parse(string(types.MergePatchType), []byte(row.patch), true)
		must.OK(t, err)
		got, err := p.Apply(must.Decode[map[string]any](t, row.object), nil)
		must.OK(t, err)
		if text, err := json.Marshal(got); err != nil || string(text) != string(want) {
			t.Errorf("%s of %s: %s, %v, want %s", row.patch, row.object, text, err, want)
		}
	}
}

// TestApplyAndErrors: what a patch makes of an object, or the code and the message of the refusal, by
// Parse or by Apply.
func TestApplyAndErrors(t *testing.T) {
	const noMap = "json: cannot unmarshal array into Go value of type map[string]interface {}"
	jsonType, merge, strategic := types.JSONPatchType, types.MergePatchType, types.StrategicMergePatchType
	for _, row := range []struct {
		kind types.PatchType
		body string
		want string // the object, or the code and the message
	}{
		{jsonType, `[]`, `{"a":"b"}`},
		{jsonType, `[{"op":"add","path":"/c","value":1},{"op":"remove","path":"/a"}]`, `{"c":1}`},
		{jsonType, `[{"op":"replace","path":"","value":{"d":2}}]`, `{"d":2}`},
		{jsonType, `[{"op":"replace","path":"","value":[]}]`, `422 `},
		{jsonType, `[{"op":"replace","path":"","value":null}]`, `422 `},
		{jsonType, `[{"op":"test","path":"/a","value":"c"}]`, `422 `},
		{jsonType, `{}`, `400 error decoding patch: json: cannot unmarshal object`},
		{jsonType, `[7]`, `400 error decoding patch: `},
		{merge, `{}`, `{"a":"b"}`},
		{merge, ` null`, `400 Invalid JSON Patch`},
		{merge, `[]`, `400 error decoding patch: ` + noMap},
		{merge, `{`, `400 error decoding patch: unexpected end of JSON input`},
		{strategic, `{"c":null,"d":1}`, `{"a":"b","d":1}`},
		{strategic, `null`, `{"a":"b"}`},
		{strategic, `[]`, `400 ` + noMap},
		{strategic, `{`, `400 unexpected end of JSON input`},
		{strategic, `{"metadata":{"finalizers":[{"a":1}]}}`, `{"a":"b","metadata":{"finalizers":[{"a":1}]}}`},
	} {
		got := ""
		p, err := Parse(string(row.kind), []byte(row.body), false)
		if err == nil {
			var patched map[string]any
			patched, err = p.Apply(must.Decode[map[string]any](t, `{"a":"b"}`), strategicMeta(t))
			if err == nil {
				b, _ := json.Marshal(patched)
				got = string(b)
			}
		}
		if err != nil {
			status, ok := err.(apierrors.APIStatus)
			if !ok {
				t.Errorf("%s of %s: %T", row.kind, row.body, err)
				continue
			}
			got = fmt.Sprint(status.Status().Code, " ", status.Status().Message)
		}
		if got != row.want && (err == nil || !strings.HasPrefix(got, row.want)) {
			t.Errorf("%s of %s: %s, want %s", row.kind, row.body, got, row.want)
		}
	}
}

// TestAtTheBounds: as many operations, and as much work, as the bounds say are allowed.
func TestAtTheBounds(t *testing.T) {
	operations := func(n int) []byte {
		const op = `{"op":"test","path":"/a/0","value":1}`
		return []byte("[" + strings.Repeat(op+",", n-1) + op + "]")
	}
	p, err := Parse(string(types.JSONPatchType), operations(MaxOperations), false)
	must.OK(t, err)
	if _, err := p.Apply(map[string]any{"a": []any{int64(1)}}, nil); err != nil {
		t.Errorf("%d operations: %v", MaxOperations, err)
	}
	const n = 4096
	p, err = Parse(string(types.JSONPatchType), operations(n), false)
	must.OK(t, err)
	room := maxWork/n - n - len(`{"a":[1,""]}`) // each operation has a value of one byte
	for more := range 2 {
		_, err := p.Apply(map[string]any{"a": []any{int64(1), strings.Repeat("x", room+more)}}, nil)
		if apierrors.IsRequestEntityTooLargeError(err) != (more > 0) || more == 0 && err != nil {
			t.Errorf("%d operations on %d bytes more than are allowed: %v", n, more, err)
		}
	}
}

// TestWorkIsOfWhatGrows: the length of a patch does not count, what it makes of an object does.
func TestWorkIsOfWhatGrows(t *testing.T) {
	list := func(op string, n int) []byte { return []byte("[" + strings.Repeat(op+",", n-1) + op + "]") }
	for _, x := range []struct {
		name    string
		body    []byte
		refused bool
	}{
		{"long paths", list(`{"op":"test","path":"/a~1`+strings.Repeat("b", 100)+`/0","value":1}`, MaxOperations), false},
		{"values", list(`{"op":"add","path":"/l/-","value":"`+strings.Repeat("x", 60)+`"}`, MaxOperations), true},
		{"copies", []byte("[" + strings.Repeat(`{"op":"copy","from":"/l","path":"/l/-"},`, 30) + string(list(`{"op":"test","path":"/n","value":1}`, 3000)[1:])), true},
		{"a copy", []byte("[" + `{"op":"copy","from":"/l","path":"/m"},` + string(list(`{"op":"test","path":"/n","value":1}`, 9000)[1:])), false},
	} {
		p, err := Parse(string(types.JSONPatchType), x.body, false)
		if err != nil {
			t.Fatalf("%s: %v", x.name, err)
		}
		_, err = p.Apply(map[string]any{"l": []any{"x"}, "n": int64(1), "a/" + strings.Repeat("b", 100): []any{int64(1)}}, nil)
		if refused := apierrors.IsRequestEntityTooLargeError(err); refused != x.refused || !refused && err != nil {
			t.Errorf("%s: %v", x.name, err)
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
	must.OK(t, err)
	if _, err := p.Apply(must.Decode[map[string]any](t, `{"a":{"x":"y"}}`), nil); !apierrors.IsRequestEntityTooLargeError(err) {
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
		got, err := p.Apply(must.Decode[map[string]any](t, `{"a":["b",{"c":1}],"d":{"e":null}}`), nil)
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
	must.OK(t, err)
	return meta
}

// TestStrategicPanics: what the library cannot stand is the client's mistake.
func TestStrategicPanics(t *testing.T) {
	currents := []string{strategicObject, `{"metadata":{"ownerReferences":[]}}`}
	for i, body := range strategicPanics {
		p, err := Parse(string(types.StrategicMergePatchType), []byte(body), false)
		must.OK(t, err)
		if _, err := p.Apply(must.Decode[map[string]any](t, currents[i]), strategicMeta(t)); !apierrors.IsBadRequest(err) {
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
			current := must.Decode[map[string]any](t, object)
			if _, err := p.Apply(current, meta); err != nil {
				if _, ok := err.(apierrors.APIStatus); !ok {
					t.Errorf("%T: %v", err, err)
				}
			}
			if !reflect.DeepEqual(current, must.Decode[map[string]any](t, object)) {
				t.Errorf("%s has changed the current object: %v", body, current)
			}
		}
	})
}
