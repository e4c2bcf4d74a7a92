package schema

import (
	"testing"

	"github.com/quorate/quorate/internal/must"
	"k8s.io/apimachinery/pkg/util/json"
)

// Whatever JSON is sent, the walks end, and what Fit made fits.
func FuzzFit(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"spec":null}`, `{"spec":{"replicas":1.0}}`, `{"spec":{"template":{"spec":{"containers":[null,{"resources":{"limits":{"cpu":"1e3"}}}]}}}}`,
		`{"metadata":{"creationTimestamp":"2026-01-01T00:00:00+01:00","managedFields":[{"fieldsV1":{"f:a":{}}}]}}`, `{"spec":{"selector":{"matchLabels":{"a":null}}}}`,
	} {
		f.Add([]byte(s))
	}
	m, err := Lookup("io.k8s.api.apps.v1.Deployment")
	must.OK(f, err)
	f.Fuzz(func(t *testing.T, b []byte) {
		var obj map[string]any
		if json.Unmarshal(b, &obj) != nil || obj == nil {
			return
		}
		if _, err := m.Fit(obj); err != nil {
			return
		}
		m.Default(obj)
		if unknown, err := m.Fit(obj); err != nil || len(unknown) > 0 {
			t.Fatalf("fitted twice: %v %v", unknown, err)
		}
	})
}
