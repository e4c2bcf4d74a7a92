package schema

import (
	"errors"
	"runtime"
	"testing"

	"github.com/quorate/quorate/internal/must"
)

// TestFitOfDeepObjects: what is said of a value names its path, which must not become a text of
// 100 KB for each of thousands of values.
func TestFitOfDeepObjects(t *testing.T) {
	m, err := Lookup("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition")
	must.OK(t, err)
	deep := func(levels int) map[string]any {
		inner := map[string]any{"type": "string"}
		for range levels {
			inner = map[string]any{"unknown": true, "not": inner}
		}
		return map[string]any{"spec": map[string]any{"versions": []any{map[string]any{"name": "v1", "schema": map[string]any{"openAPIV3Schema": inner}}}}}
	}
	if unknown, err := m.Fit(deep(300)); err != nil || len(unknown) != 300 {
		t.Errorf("300 levels: %d unknown fields, %v", len(unknown), err)
	}
	// Four objects and the list are around the schema.
	const around = 5
	if _, err := m.Fit(deep(maxSteps - around - 1)); err != nil {
		t.Errorf("as deep as may be: %v", err)
	}
	if _, err := m.Fit(deep(maxSteps - around)); !errors.Is(err, ErrTooDeep) {
		t.Errorf("one level deeper: %v", err)
	}
	obj := deep(9000)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = m.Fit(obj)
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; !errors.Is(err, ErrTooDeep) || took > 32<<20 {
		t.Errorf("9000 levels: %v, with %d bytes of memory", err, took)
	}
}
