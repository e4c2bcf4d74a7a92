package kinds

import (
	"testing"

	"github.com/quorate/quorate/apiserver/types/schema"
	"github.com/quorate/quorate/internal/must"
)

func registry(t testing.TB) *Registry {
	t.Helper()
	r, err := Builtin()
	must.OK(t, err)
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
