package printers

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/internal/must"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func registry(t testing.TB) *kinds.Registry {
	t.Helper()
	r, err := kinds.Builtin()
	must.OK(t, err)
	return r
}

// Every column of every resource compiles and gives a cell of the right type
// for an object that has nothing in it.
func TestColumnsOfEmptyObjects(t *testing.T) {
	for _, r := range registry(t).All() {
		p, err := Of(r)
		if err != nil {
			t.Errorf("%s: %v", r.Plural, err)
			continue
		}
		for _, obj := range []map[string]any{{}, {"metadata": map[string]any{}, "spec": map[string]any{}, "status": map[string]any{}}} {
			row, err := p.Row(obj)
			if err != nil {
				t.Errorf("%s: %v", r.Plural, err)
				continue
			}
			for i, cell := range row {
				switch cell.(type) {
				case string, int64, bool:
				default:
					t.Errorf("%s: column %s of an empty object is %T", r.Plural, p.Columns()[i].Name, cell)
				}
			}
		}
	}
}

func TestPodRow(t *testing.T) {
	p, err := Of(registry(t).Lookup(schema.GroupVersionResource{Version: "v1", Resource: "pods"}))
	must.OK(t, err)
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	pod := map[string]any{
		"metadata": map[string]any{"name": "a", "creationTimestamp": "2026-01-01T11:00:00Z"},
		"spec":     map[string]any{"containers": []any{map[string]any{"name": "x"}, map[string]any{"name": "y"}}, "nodeName": "n1"},
		"status": map[string]any{"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": []any{
			map[string]any{"name": "x", "ready": true, "restartCount": int64(2), "state": map[string]any{"running": map[string]any{}},
				"lastState": map[string]any{"terminated": map[string]any{"finishedAt": "2026-01-01T11:55:00Z"}}},
			map[string]any{"name": "y", "restartCount": int64(0), "state": map[string]any{"waiting": map[string]any{"reason": "CrashLoopBackOff"}}},
		}},
	}
	row, err := p.Row(pod)
	must.OK(t, err)
	for i, cell := range row {
		if a, ok := cell.(Ageing); ok {
			row[i] = a.At(now)
		}
	}
	if d := cmp.Diff([]any{"a", "1/2", "CrashLoopBackOff", "2 (5m ago)", "60m", "10.0.0.1", "n1", "<none>", "<none>"}, row); d != "" {
		t.Error(d)
	}
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
		p, err := newPrinter([]kinds.Column{{Name: "C", Type: columnType, JSONPath: path, Typed: true}})
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
