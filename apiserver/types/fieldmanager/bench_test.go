package fieldmanager

import (
	"encoding/json"
	"maps"
	"testing"

	"github.com/quorate/quorate/apiserver/types/schema"
	"github.com/quorate/quorate/internal/must"
)

func clone(t testing.TB, m map[string]any) map[string]any {
	t.Helper()
	b, err := json.Marshal(m)
	must.OK(t, err)
	return tree(t, string(b))
}

func BenchmarkUpdate(b *testing.B) {
	m := deployments(b)
	live, err := m.Update(m.Nothing(), tree(b, nginx), "kubectl")
	if err != nil {
		b.Fatal(err)
	}
	live["metadata"].(map[string]any)["uid"] = "x"
	live = clone(b, live)
	obj := clone(b, live)
	obj["metadata"].(map[string]any)["labels"] = map[string]any{"app": "other"}
	b.ReportAllocs()
	for b.Loop() {
		o := maps.Clone(obj)
		o["metadata"] = maps.Clone(o["metadata"].(map[string]any))
		if _, err := m.Update(live, o, "kubectl"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCreate(b *testing.B) {
	m := deployments(b)
	obj := tree(b, nginx)
	model, err := schema.Lookup("io.k8s.api.apps.v1.Deployment")
	if err != nil {
		b.Fatal(err)
	}
	model.Default(obj)
	b.ReportAllocs()
	for b.Loop() {
		o := maps.Clone(obj)
		o["metadata"] = maps.Clone(o["metadata"].(map[string]any))
		if _, err := m.Update(m.Nothing(), o, "kubectl"); err != nil {
			b.Fatal(err)
		}
	}
}
