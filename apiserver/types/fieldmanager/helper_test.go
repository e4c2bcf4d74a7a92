package fieldmanager

import (
	"encoding/json"
	"testing"

	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/quorate/quorate/apiserver/types/schema"
	"github.com/quorate/quorate/internal/must"
)

func deployments(t testing.TB) *Manager {
	t.Helper()
	model := "io.k8s.api.apps.v1.Deployment"
	of, err := schema.Lookup(model)
	must.OK(t, err)
	m, err := New(Config{
		Versions: []Version{{GVK: apischema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, Model: model}},
		Reset:    []string{"status"}, Zero: of.Zero, Default: of.Default,
	})
	must.OK(t, err)
	return m
}

func tree(t testing.TB, s string) (m map[string]any) {
	t.Helper()
	b, err := yaml.YAMLToJSON([]byte(s))
	must.OK(t, err)
	model, err := schema.Lookup("io.k8s.api.apps.v1.Deployment")
	must.OK(t, err)
	must.OK(t, json.Unmarshal(b, &m))
	if _, err := model.Fit(m); err != nil {
		t.Fatal(err)
	}
	return m
}

const nginx = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: nginx, labels: {app: nginx}}
spec:
  replicas: 3
  selector: {matchLabels: {app: nginx}}
  template:
    metadata: {labels: {app: nginx}}
    spec:
      containers:
      - {name: nginx, image: "nginx:1.14.2", ports: [{containerPort: 80}]}
`
