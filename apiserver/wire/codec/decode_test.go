package codec

import (
	"errors"
	"github.com/google/go-cmp/cmp"
	"reflect"
	"strings"
	"testing"

	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/internal/must"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestDecodeErrors(t *testing.T) {
	wrongMessage := string(appendDocument(nil, "v1", "Pod", []byte("\x0a\xff")))
	rows := []struct {
		contentType, body string
		res               *kinds.Resource
		code              int32
		text              string
	}{
		{JSON, `{"kind":`, pods, 400, `the object provided is unrecognized (must be of type Pod): couldn't get version/kind; json parse error: unexpected end of JSON input ({"kind":)`},
		{JSON, ``, pods, 400, `the object provided is unrecognized (must be of type Pod): couldn't get version/kind; json parse error: unexpected end of JSON input (<empty>)`},
		{JSON, `[]`, nil, 400, `the object provided is unrecognized: couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" } (5b5d)`},
		{JSON, `{"kind":1}`, pods, 400, `the object provided is unrecognized (must be of type Pod): couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .kind of type string ({"kind":1})`},
		{JSON, `{"metadata":{"name":"a very long name for a pod"}`, pods, 400, `the object provided is unrecognized (must be of type Pod): couldn't get version/kind; json parse error: unexpected end of JSON input ({"metadata":{"name":"a very lo ...)`},
		{YAML, "a: b: c", pods, 400, `the object provided is unrecognized (must be of type Pod): yaml: mapping values are not allowed in this context (613a20623a2063)`},
		{YAML, `{"kind":0}`, pods, 400, `the object provided is unrecognized (must be of type Pod): couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .kind of type string ({"kind":0})`},
		{YAML, `{"apiVersion":{"a":null}}`, pods, 400, `the object provided is unrecognized (must be of type Pod): couldn't get version/kind; json parse error: json: cannot unmarshal object into Go struct field .apiVersion of type string ({"apiVersion":{"a":null}})`},
		{Protobuf, "k8s\x00", pods, 400, "the object provided is unrecognized (must be of type Pod): empty body (6b387300)"},
		{Protobuf, `{}`, pods, 400, `the object provided is unrecognized (must be of type Pod): provided data does not appear to be a protobuf message, expected prefix [107 56 115 0] ({})`},
		{Protobuf, wrongMessage, pods, 400, `Pod in version "v1" cannot be handled as a Pod: unexpected EOF`},
		{Protobuf, string(appendDocument(nil, "v1", "Nothing", nil)), pods, 400, `Nothing in version "v1" cannot be handled as a Pod: no kind "Nothing" is registered for version "v1" in scheme`},
		{Protobuf, ``, widgets, 415, `the body of the request was in an unknown format - accepted media types include: application/json, application/yaml`},
		{"text/plain", ``, pods, 415, `the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf`},
		{"application/cbor", ``, nil, 415, `the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf`},
		{"//", ``, nil, 415, `the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf`},
		{JSON, strings.Repeat(" ", MaxBody+1), pods, 413, `Request entity too large: limit is 3145728`},
	}
	for _, row := range rows {
		_, err := Decode(row.contentType, []byte(row.body), row.res)
		var e *apierrors.StatusError
		if !errors.As(err, &e) || e.ErrStatus.Code != row.code || !strings.HasPrefix(e.ErrStatus.Message, row.text) {
			t.Errorf("%s %.40q: %v\nwant %d %s", row.contentType, row.body, err, row.code, row.text)
		}
	}
}

func TestDecodeSameInEveryMedium(t *testing.T) {
	body := readFile(t, "pod.json")
	want, err := Decode("application/json; charset=utf-8", []byte(body), pods)
	must.OK(t, err)
	asYAML := "kind: Pod\napiVersion: v1\nmetadata: {name: x, labels: &l {a: b}}\nspec: {nodeSelector: *l, priority: 3}\n"
	got, err := Decode(YAML, []byte(asYAML), pods)
	must.OK(t, err)
	if !reflect.DeepEqual(got.Object, map[string]any{"kind": "Pod", "apiVersion": "v1",
		"metadata": map[string]any{"name": "x", "labels": map[string]any{"a": "b"}},
		"spec":     map[string]any{"nodeSelector": map[string]any{"a": "b"}, "priority": int64(3)}}) {
		t.Errorf("yaml: %v", got.Object)
	}
	msg := typedTree(t, pods, want.Object)
	raw, err := msg.Marshal()
	must.OK(t, err)
	got, err = Decode(Protobuf, appendDocument(nil, "v1", "Pod", raw), pods)
	must.OK(t, err)
	wantValue, _, err := Encode(want.Object)
	must.OK(t, err)
	gotValue, _, err := Encode(got.Object)
	must.OK(t, err)
	if string(gotValue) != string(wantValue) {
		t.Errorf("protobuf: %s\njson: %s", gotValue, wantValue)
	}
}

func TestDecodeKeepsNothingOfTheBody(t *testing.T) {
	body := []byte(`{"kind":"Pod","metadata":{"name":"keep"}}`)
	got, err := Decode("", body, pods)
	must.OK(t, err)
	for i := range body {
		body[i] = 'x'
	}
	if got.Object["metadata"].(map[string]any)["name"] != "keep" {
		t.Errorf("%v", got.Object)
	}
}

func TestDuplicates(t *testing.T) {
	got, err := Decode(JSON, []byte(`{"spec":{"replicas":1,"replicas":2,"c":[{"n":1,"n":2}]}}`), deploys)
	must.OK(t, err)
	if want := []string{`duplicate field "spec.replicas"`, `duplicate field "spec.c[0].n"`}; !reflect.DeepEqual(got.Duplicates, want) {
		t.Errorf("%q", got.Duplicates)
	}
	if got.Object["spec"].(map[string]any)["replicas"] != int64(2) {
		t.Error("the last one counts")
	}
	got, err = Decode(YAML, []byte("a: 1\na: 2\n"), deploys)
	must.OK(t, err)
	if len(got.Duplicates) != 1 || !strings.Contains(got.Duplicates[0], `key "a" already set in map`) || got.Object["a"] != int64(2) {
		t.Errorf("%v %q", got.Object, got.Duplicates)
	}
}

func TestYAMLBombs(t *testing.T) {
	laughs := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'k'; c++ {
		p := string(c - 1)
		laughs += string(c) + ": &" + string(c) + " [" + strings.Repeat("*"+p+",", 8) + "*" + p + "]\n"
	}
	long := "a: &a " + strings.Repeat("x", 1<<20) + "\nb: [" + strings.Repeat("*a,", 2000) + "]\n"
	for _, doc := range []string{laughs, long} {
		if _, err := Decode(YAML, []byte(doc), pods); err == nil {
			t.Errorf("%.20q was decoded", doc)
		}
	}
}

func TestDeleteOptionsOfAnyGroup(t *testing.T) {
	grace := int64(0)
	raw, err := (&metav1.DeleteOptions{GracePeriodSeconds: &grace}).Marshal()
	must.OK(t, err)
	for _, version := range []string{"v1", "apps/v1", "meta.k8s.io/v1", "example.com/v7"} {
		got, err := Decode(Protobuf, appendDocument(nil, version, "DeleteOptions", raw), nil)
		must.OK(t, err)
		if got.Object["gracePeriodSeconds"] != int64(0) || got.Object["apiVersion"] != version {
			t.Errorf("%s: %v", version, got.Object)
		}
	}
}

func FuzzDecode(f *testing.F) {
	body := readFile(f, "pod.json")
	b, err := Decode(JSON, []byte(body), pods)
	must.OK(f, err)
	raw, err := typedTree(f, pods, b.Object).Marshal()
	must.OK(f, err)
	f.Add(0, []byte(body))
	f.Add(1, []byte("a: &x {b: 1}\nc: [*x, *x]\n? [1]\n: 2\n"))
	f.Add(2, appendDocument(nil, "v1", "Pod", raw))
	f.Add(2, appendDocument(nil, "", "", raw))
	f.Add(2, []byte("k8s\x00\x0a\xff\xff\xff\xff\x0f"))
	f.Fuzz(func(t *testing.T, medium int, body []byte) {
		types := []string{JSON, YAML, Protobuf}
		for _, res := range []*kinds.Resource{nil, pods, widgets} {
			got, err := Decode(types[uint(medium)%3], body, res)
			if err != nil {
				var e *apierrors.StatusError
				if !errors.As(err, &e) || e.ErrStatus.Code < 400 || e.ErrStatus.Code > 422 {
					t.Fatalf("error %v", err)
				}
				continue
			}
			if _, ok := got.Object["metadata"].(map[string]any); !ok && got.Object["metadata"] != nil {
				continue
			}
			value, offset, err := Encode(got.Object)
			if err != nil {
				t.Fatalf("encode: %v", err)
			}
			if _, _, err := parseJSON(string(withRevision(value, offset, 7))); err != nil {
				t.Fatalf("what was encoded does not parse: %v", err)
			}
			if _, err := metadataOf("k", value); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// FuzzJSONAsYAML: a document that is taken for JSON is in YAML the same, or none.
func FuzzJSONAsYAML(f *testing.F) {
	for _, s := range []string{
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"v\n\u00e9\/"}}`,
		`{"a":[1,-0,9223372036854775807,true,null,"2001-01-01","yes","<<","=",""]}`, `{"<<":{"a":1},"b":[{"<<":[{"c":2}]}]}`,
		`{"a":1,"a":2}`, `{"a":1.0}`, "{\"a\":\"\\ud83d\\ude00\",\"\u00e9\":\"\u2028\"}", "{\n\t\"a\": 1\n}\n", `{"a": "b: c # d", "e":"&f *g"}`, `{"? ":": ","y":"no"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		fast, ok := parseJSONAsYAML(body)
		if !ok {
			return
		}
		text, duplicate, err := YAMLToJSON(body)
		if err != nil || duplicate != "" {
			return // YAML has no surrogate pairs, and other bounds
		}
		slow, err := decodeJSON(string(text), text, nil)
		if err != nil {
			t.Fatalf("%q is nothing in YAML: %v", body, err)
		}
		if d := cmp.Diff(slow.Object, fast); d != "" {
			t.Fatalf("%q: YAML -, JSON +: %s", body, d)
		}
	})
}
