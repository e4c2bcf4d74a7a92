package schema

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quorate/quorate/internal/must"
)

func BenchmarkFitConfigMap(b *testing.B) {
	m, err := Lookup("io.k8s.api.core.v1.ConfigMap")
	if err != nil {
		b.Fatal(err)
	}
	obj := map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": "a", "namespace": "b", "creationTimestamp": "2026-01-02T03:04:05Z", "labels": map[string]any{"app": "x"}},
		"data":     map[string]any{"a": strings.Repeat("x", 1024)},
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := m.Fit(obj); err != nil {
			b.Fatal(err)
		}
		m.Default(obj)
	}
}

func deployment() map[string]any {
	return map[string]any{
		"metadata": map[string]any{"name": "a", "namespace": "b", "labels": map[string]any{"app": "x"}},
		"spec": map[string]any{
			"replicas": int64(3),
			"selector": map[string]any{"matchLabels": map[string]any{"app": "x"}},
			"template": map[string]any{
				"metadata": map[string]any{"labels": map[string]any{"app": "x"}},
				"spec": map[string]any{"containers": []any{map[string]any{
					"name": "a", "image": "a:1", "ports": []any{map[string]any{"containerPort": int64(80)}},
					"resources": map[string]any{"limits": map[string]any{"cpu": "500m", "memory": "64Mi"}},
					"env":       []any{map[string]any{"name": "A", "value": "1"}},
				}}},
			},
		},
	}
}

func BenchmarkFitDeployment(b *testing.B) {
	m, err := Lookup("io.k8s.api.apps.v1.Deployment")
	if err != nil {
		b.Fatal(err)
	}
	obj := deployment()
	m.Default(obj)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := m.Fit(obj); err != nil {
			b.Fatal(err)
		}
		m.Default(obj)
	}
}

// The good path of Fit allocates nothing.
func TestFitAllocatesNothing(t *testing.T) {
	m, err := Lookup("io.k8s.api.apps.v1.Deployment")
	must.OK(t, err)
	obj := deployment()
	m.Default(obj)
	if n := testing.AllocsPerRun(100, func() { _, _ = m.Fit(obj) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// sourceVersions tells from which versions of the Kubernetes modules the models
// were generated, by module path.
func sourceVersions() map[string]string {
	b, err := modelFiles.ReadFile("data/models/VERSION")
	if err != nil {
		panic(fmt.Sprintf("schema: embedded version: %v", err))
	}
	versions := map[string]string{}
	for _, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		if module, version, ok := strings.Cut(line, " "); ok {
			versions[module] = version
		}
	}
	return versions
}

// The models come from the versions of the Kubernetes modules that the server
// is built with; generate.sh brings them up to date.
func TestModelsAreCurrent(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "..", "..", "go.mod"))
	must.OK(t, err)
	versions := sourceVersions()
	if len(versions) != 2 {
		t.Fatalf("stamps: %v", versions)
	}
	for module, version := range versions {
		if !strings.Contains(string(b), "\t"+module+" "+version+"\n") {
			t.Errorf("the models were made from %s %s, go.mod has another: run apiserver/types/schema/generate.sh", module, version)
		}
	}
}
