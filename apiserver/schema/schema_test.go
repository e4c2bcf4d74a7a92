package schema

import "testing"

func TestEveryModelCompiles(t *testing.T) {
	names := Names()
	if len(names) < 500 {
		t.Fatalf("%d models: the data is not complete", len(names))
	}
	for _, name := range names {
		m, err := Lookup(name)
		if err != nil {
			t.Errorf("Lookup: %v", err)
			continue
		}
		if m.root.shape == shapeAny && m.root.goType == "" {
			t.Errorf("%s: no type", name)
		}
	}
	if _, err := Lookup("io.k8s.api.apps.v1.Nothing"); err == nil {
		t.Error("an unknown model is found")
	}
}
