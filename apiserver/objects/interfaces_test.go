package objects

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/internal/must"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestTypedAsJSON: webhooks are sent the object that upstream's encoder makes of the same tree, and
// what is decoded from that is the tree.
func TestTypedAsJSON(t *testing.T) {
	for _, obj := range []tree.Object{
		{"apiVersion": "v1", "kind": "ConfigMap"},
		{"apiVersion": "v1", "kind": "ConfigMap", "metadata": tree.Object{}},
		{"apiVersion": "v1", "kind": "ConfigMap", "data": tree.Object{"b": "<&>\u2028\x00\"", "a": "é"}, "metadata": tree.Object{
			"name": "a", "namespace": "default", "uid": "1", "resourceVersion": "7", "generation": int64(3), "creationTimestamp": "2026-01-02T03:04:05Z",
			"labels": tree.Object{"z": "1", "a": "2"}, "managedFields": []any{tree.Object{"manager": "m", "fieldsV1": tree.Object{"f:data": tree.Object{}}}},
		}},
	} {
		got, err := json.Marshal(runtime.RawExtension{Object: &typed{&unstructured.Unstructured{Object: obj}, ""}})
		must.OK(t, err)
		want, err := json.Marshal(runtime.RawExtension{Object: &unstructured.Unstructured{Object: obj}})
		must.OK(t, err)
		if inOrder(t, got) != inOrder(t, want) {
			t.Errorf("it is %s, want %s", got, want)
		}
	}
	if _, err := json.Marshal(&typed{&unstructured.Unstructured{Object: tree.Object{"x": math.NaN()}}, ""}); err == nil {
		t.Error("what JSON cannot say was encoded")
	}
}

func inOrder(t *testing.T, raw []byte) string {
	t.Helper()
	var v any
	must.OK(t, json.Unmarshal(raw, &v))
	out, err := json.Marshal(v)
	must.OK(t, err)
	return string(out)
}

// TestTypedFromJSON: what does not say its kind is one of that of which it was made, and null is nothing.
func TestTypedFromJSON(t *testing.T) {
	for raw, want := range map[string]string{
		`{"metadata":{"name":"a"}}`:                       `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`,
		`{"kind":"","apiVersion":""}`:                     `{"apiVersion":"v1","kind":"ConfigMap"}`,
		`{"kind":"Secret","apiVersion":"x/v2","data":{}}`: `{"apiVersion":"x/v2","kind":"Secret"}`,
		`null`: "", `[]`: "", `7`: "",
	} {
		made := &unstructured.Unstructured{Object: tree.Object{"apiVersion": "v1", "kind": "ConfigMap"}}
		got := &typed{made, "io.k8s.api.core.v1.ConfigMap"}
		switch err := json.Unmarshal([]byte(raw), got); {
		case raw == "null" && err == nil && got.UnmarshalJSON([]byte(raw)) == nil, (err != nil) != (want == "") && raw != "null":
			t.Errorf("%s: %v", raw, err)
		case err == nil && want != "":
			if b, err := json.Marshal(got); err != nil || inOrder(t, b) != inOrder(t, []byte(want)) {
				t.Errorf("%s became %s, %v", raw, b, err)
			}
		}
	}
}
