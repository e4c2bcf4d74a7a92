package patch

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"
)

// sameAsTheLibrary compares a JSON patch with what the library makes of the whole object.
func sameAsTheLibrary(t *testing.T, object, operations string) {
	t.Helper()
	var current map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(object), &current); err != nil || current == nil {
		t.Skip()
	}
	p, err := Parse(string(types.JSONPatchType), []byte(operations), true)
	if err != nil {
		t.Skip()
	}
	before, err := json.Marshal(current)
	must.OK(t, err)
	got, gotErr := p.Apply(current, nil)
	if after, err := json.Marshal(current); err != nil || string(after) != string(before) {
		t.Fatalf("%s has become %s: %v", before, after, err)
	}
	var want map[string]any
	doc, wantErr := p.apply(before)
	if wantErr == nil {
		wantErr = kjson.UnmarshalCaseSensitivePreserveInts(doc, &want)
	}
	switch {
	case wantErr == nil && want == nil:
		if gotErr == nil {
			t.Errorf("%s on %s: %v, want an error", operations, object, got)
		}
	case wantErr != nil || gotErr != nil:
		var tooMuch *jsonpatch.AccumulatedCopySizeError
		if wantErr != nil && !errors.As(wantErr, &tooMuch) {
			wantErr = rejected(wantErr)
		}
		if !reflect.DeepEqual(gotErr, wantErr) && tooMuch == nil {
			t.Errorf("%s on %s: %#v, want %#v", operations, object, gotErr, wantErr)
		}
	case !reflect.DeepEqual(got, want):
		t.Errorf("%s on %s: %v, want %v", operations, object, got, want)
	}
}

// object is one of the objects of TestOperations: members of several kinds at several depths.
const object = `{"a":{"b":{"c":1,"d":[1,{"e":2},[3]]},"":{"x":null}},"l":[{"k":1},{"k":2},null],"n":null,"s":"t","a/b":{"~":1},"m":{}}`

// TestOperations: all pairs of operations on all sorts of places, with and without a third that looks at the result.
func TestOperations(t *testing.T) {
	places := []string{"", "/", "a", "/a", "/a/b", "/a/b/c", "/a/b/d", "/a/b/d/1", "/a/b/d/1/e", "/a/b/d/-", "/a/b/d/-1", "/a//x", "/l", "/l/0/k",
		"/l/2/k", "/l/3", "/n", "/n/x", "/s", "/s/x", "/a~1b/~0", "/m/new", "/none", "/none/x"}
	if testing.Short() {
		places = slices.DeleteFunc(places, func(p string) bool { return strings.Count(p, "/") > 2 })
	}
	var operations []string
	for i, path := range places {
		from := places[(i*7+5)%len(places)]
		for _, op := range []string{
			`{"op":"add","path":%q,"value":{"k":[0]}}`, `{"op":"remove","path":%q}`, `{"op":"replace","path":%q,"value":[7]}`,
			`{"op":"test","path":%q,"value":{"c":1,"d":[1,{"e":2},[3]]}}`, `{"op":"test","path":%q,"value":null}`, `{"op":"replace","path":%q,"value":{"a":{}}}`,
		} {
			operations = append(operations, fmt.Sprintf(op, path))
		}
		operations = append(operations, fmt.Sprintf(`{"op":"move","from":%q,"path":%q}`, from, path), fmt.Sprintf(`{"op":"copy","from":%q,"path":%q}`, from, path),
			fmt.Sprintf(`{"op":"copy","from":%q,"path":%q}`, path, from))
	}
	for _, one := range operations {
		sameAsTheLibrary(t, object, "["+one+"]")
		for _, two := range operations {
			sameAsTheLibrary(t, object, "["+one+","+two+"]")
		}
	}
}

// TestOperationPanics: what makes the library dereference nil is a patch that does not fit the object.
func TestOperationPanics(t *testing.T) {
	for _, operation := range []string{
		`{"op":"replace","path":""}`,
		`{"op":"test","path":"/l","value":[null]}`,
		`{"op":"test","path":"","value":{"l":[null]}}`,
	} {
		p, err := Parse(string(types.JSONPatchType), []byte("["+operation+"]"), true)
		must.OK(t, err)
		_, err = p.Apply(map[string]any{"l": []any{nil}}, nil)
		if status, ok := err.(apierrors.APIStatus); !ok || status.Status().Code != http.StatusUnprocessableEntity {
			t.Errorf("%s: %v, want 422", operation, err)
		}
	}
}

func FuzzOperations(f *testing.F) {
	f.Add(object, `[{"op":"move","from":"/a","path":"/m/new"},{"op":"add","path":"/m/new/b/x","value":1},{"op":"test","path":"/a/b","value":null}]`)
	f.Add(`{"spec":{"replicas":1}}`, `[{"op":"replace","path":"/spec/replicas","value":2}]`)
	f.Add(object, `[{"op":"replace","path":"/a/b/c","value":2},{"op":"test","path":"`+strings.Repeat("/x", maxTouched+1)+`","value":1}]`)
	f.Fuzz(sameAsTheLibrary)
}

// TestTouched: what the library is given is what paths name.
func TestTouched(t *testing.T) {
	for path, want := range map[string]string{
		"/a/b/c":     `{"a":{"b":{"c":1}}}`,
		"/a/b/d/1/e": `{"a":{"b":{"d":[1,{"e":2},[3]]}}}`,
		"/m/new":     `{"m":{}}`,
		"/none/x":    `{}`,
		"/n/x":       `{"n":null}`,
		"/a~1b/~0":   `{"a/b":{"~":1}}`,
	} {
		p, err := Parse(string(types.JSONPatchType), fmt.Appendf(nil, `[{"op":"add","path":%q,"value":0}]`, path), true)
		must.OK(t, err)
		if got, err := json.Marshal(p.touched.of(must.Decode[map[string]any](t, object))); err != nil || string(got) != want {
			t.Errorf("%s: %s %v, want %s", path, got, err, want)
		}
	}
}

// TestTouchedIsBounded: however many parts the paths of a patch have, a bounded number is told apart; the library is given
// all of the object when there are more.
func TestTouchedIsBounded(t *testing.T) {
	var count func(*touched) int
	count = func(t *touched) int {
		n := 1
		for _, next := range t.keys {
			n += count(next)
		}
		return n
	}
	many := func(n, parts int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,{"op":"add","path":"/%d%s","from":"/from%d%s","value":0}`, i, strings.Repeat("/p", parts-1), i, strings.Repeat("/p", parts-1))
		}
		return "[" + b.String()[1:] + "]"
	}
	for _, row := range []struct {
		n, parts int
		all      bool
	}{
		{1, maxTouched / 2, false}, {1, maxTouched/2 + 1, true}, {1, 1 << 20, true},
		{maxTouched / 2, 1, false}, {maxTouched/2 + 1, 1, true}, {MaxOperations, 50, true},
	} {
		p, err := Parse(string(types.JSONPatchType), []byte(many(row.n, row.parts)), true)
		must.OK(t, err)
		if n := count(p.touched); p.touched.all != row.all || n > maxTouched+1 || row.all != (n == 1) {
			t.Errorf("%+v: all %v, %d parts", row, p.touched.all, n)
		}
	}
}

// BenchmarkOperations changes a number in an object of some kilobytes, most of which is elsewhere.
func BenchmarkOperations(b *testing.B) {
	current := map[string]any{"metadata": map[string]any{"name": "d"}, "spec": map[string]any{"replicas": int64(1), "template": map[string]any{}}}
	fields := map[string]any{}
	for i := range 100 {
		fields[fmt.Sprint("f:field", i)] = map[string]any{"f:name": map[string]any{}}
	}
	current["metadata"].(map[string]any)["managedFields"] = []any{map[string]any{"fieldsV1": fields}}
	current["spec"].(map[string]any)["template"] = maps.Clone(fields)
	p, err := Parse(string(types.JSONPatchType), []byte(`[{"op":"replace","path":"/spec/replicas","value":2},{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`), false)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Apply(current, nil); err != nil {
			b.Fatal(err)
		}
	}
}
