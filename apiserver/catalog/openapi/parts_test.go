package openapi

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/internal/must"
	"google.golang.org/protobuf/proto"
	openapispec "k8s.io/kube-openapi/pkg/validation/spec"
)

// thing is a definition of a custom resource that counts how often it is asked.
type thing struct {
	model, print string
	asked        *atomic.Int64
}

func (d *thing) Schema(bool) (*openapispec.Schema, error) {
	d.asked.Add(1)
	return new(openapispec.Schema).Typed("object", "").SetProperty("metadata", *openapispec.RefSchema(refV3 + "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")), nil
}

func (d *thing) ListSchema() (*openapispec.Schema, error) {
	return new(openapispec.Schema).Typed("object", "").SetProperty("items", *openapispec.ArrayProperty(openapispec.RefSchema(refV3 + d.model))), nil
}

func (d *thing) SelectableFields() []map[string]string { return nil }
func (d *thing) Fingerprint() string                   { return d.print }

// things is the built-in resources and n custom ones, all newly made.
func things(t testing.TB, n int, print string, asked *atomic.Int64) *kinds.Registry {
	all := append([]*kinds.Resource(nil), builtin(t).All()...)
	for i := range n {
		model := fmt.Sprintf("com.example.g%d.v1.Thing", i)
		all = append(all, &kinds.Resource{
			Group: fmt.Sprintf("g%d.example.com", i), Version: "v1", Kind: "Thing", Plural: "things", Singular: "thing", Custom: true, Model: model,
			Verbs: []string{"get", "list", "create", "update", "patch", "delete", "deletecollection", "watch"}, Origin: &thing{model, fmt.Sprint(print, i), asked},
		})
	}
	return kinds.NewRegistry(all)
}

// TestParts: the index of 50 custom resources builds none of their documents; a registry
// that is newly made, as with every change of a status, takes over all of them, and one
// that has one more builds one more; and version 2 in protobuf is what it is in JSON.
func TestParts(t *testing.T) {
	var asked atomic.Int64
	var current atomic.Pointer[kinds.Registry]
	current.Store(things(t, 50, "a", &asked))
	h := New(current.Load, "v1.36.3")
	root := func() map[string]any {
		t.Helper()
		data, err := h.documents().root.json.plain()
		must.OK(t, err)
		var out struct{ Paths map[string]any }
		must.OK(t, json.Unmarshal(data, &out))
		return out.Paths
	}
	before := root()
	if asked.Load() != 0 {
		t.Errorf("the index took %d schemas", asked.Load())
	}
	check := func(want int64) {
		t.Helper()
		asked.Store(0)
		v2 := h.documents().v2
		text, err := v2.json.plain()
		must.OK(t, err)
		got, err := v2.protobuf.plain()
		must.OK(t, err)
		wanted, err := openapi_v2.ParseDocument(text)
		must.OK(t, err)
		var doc openapi_v2.Document
		if err := proto.Unmarshal(got, &doc); err != nil || !proto.Equal(&doc, wanted) {
			t.Errorf("protobuf (%v) and JSON differ", err)
		}
		if asked.Load() != want {
			t.Errorf("version 2 took %d schemas, want %d", asked.Load(), want)
		}
	}
	check(50)
	current.Store(things(t, 51, "a", &asked))
	after := root()
	for name, url := range before {
		if fmt.Sprint(after[name]) != fmt.Sprint(url) {
			t.Errorf("%s is another document because of a new one", name)
		}
	}
	check(1)
	current.Store(things(t, 51, "b", &asked))
	for name, url := range root() {
		custom := after[name] != nil && strings.HasPrefix(name, "apis/g")
		if same := fmt.Sprint(after[name]) == fmt.Sprint(url); same == custom {
			t.Errorf("%s: the same document: %v", name, same)
		}
	}
}
