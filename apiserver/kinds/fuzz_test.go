package kinds

import (
	"encoding/json"
	"strings"
	"testing"
)

// FuzzEnablement: whatever --runtime-config says is refused or leaves a registry whose
// kinds can be looked up.
func FuzzEnablement(f *testing.F) {
	for _, s := range []string{"api/all=false,api/v1=true", "apps/v1=0", "api/beta=true", "batch/v1/jobs=false", "=,a==b,/", "api/ga=maybe", "storage.k8s.io/v1beta1/csistoragecapacities"} {
		f.Add(s)
	}
	all, err := Available()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, s string) {
		left, err := ParseEnablement(strings.Split(s, ",")).Apply(all)
		if err != nil {
			return
		}
		for _, r := range left.All() {
			if all.LookupKind(r.GVK()) == nil {
				t.Fatalf("%q makes %s", s, r.GVK())
			}
		}
	})
}

// FuzzColumn: a column of a custom resource is refused or printed, whatever its path
// and the object.
func FuzzColumn(f *testing.F) {
	for _, path := range []string{".spec.a", ".spec['a']", ".spec.list[0].x", ".spec.list[?(@.x==1)].y", ".a\\.b", "..", ".spec.list[*]", "[", ".x[-1:]"} {
		for _, columnType := range []string{"string", "date", "integer", "number", "boolean"} {
			f.Add(path, columnType, []byte(`{"spec":{"a":"2026-01-01T00:00:00Z","list":[{"x":1,"y":1.5}]},"metadata":{"name":"n"}}`))
		}
	}
	f.Fuzz(func(t *testing.T, path, columnType string, raw []byte) {
		var obj map[string]any
		if json.Unmarshal(raw, &obj) != nil || obj == nil || len(path) > 1024 {
			return
		}
		p, err := newPrinter([]Column{{Name: "C", Type: columnType, JSONPath: path, Typed: true}})
		if err != nil {
			return
		}
		row, err := p.Row(obj)
		if err != nil {
			return
		}
		switch row[0].(type) {
		case nil, string, int64, float64, bool, Ageing:
		default:
			t.Fatalf("%s as %s of %s is a %T", path, columnType, raw, row[0])
		}
	})
}
