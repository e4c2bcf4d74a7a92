package kinds

import (
	"testing"

	"github.com/quorate/quorate/apiserver/schema"
)

func registry(t testing.TB) *Registry {
	t.Helper()
	r, err := Builtin()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestModelsExist(t *testing.T) {
	for _, r := range registry(t).All() {
		models := []string{r.Model}
		for _, s := range r.Subresources {
			if s.Model != "" {
				models = append(models, s.Model)
			}
		}
		for _, m := range models {
			if _, err := schema.Lookup(m); err != nil {
				t.Errorf("%s: %v", r.Plural, err)
			}
		}
	}
}

// Every column of every resource compiles and gives a cell of the right type
// for an object that has nothing in it.
func TestColumnsOfEmptyObjects(t *testing.T) {
	for _, r := range registry(t).All() {
		p, err := CompileColumns(r)
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
