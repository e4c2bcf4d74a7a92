package schema

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/quorate/quorate/internal/must"
	"sigs.k8s.io/yaml"
)

// A case file is `model`, then documents: the object as sent, what Fit reports,
// and the object after Fit and Default (left out: as sent).
type fileCase struct {
	Name    string         `json:"name"`
	Model   string         `json:"model"`
	Object  map[string]any `json:"object"`
	Unknown []string       `json:"unknown"`
	Error   string         `json:"error"`
	Want    map[string]any `json:"want"`
	Invalid []string       `json:"invalid"`
}

func TestCases(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, path := range files {
		b, err := os.ReadFile(path)
		must.OK(t, err)
		var cases []fileCase
		if err := yaml.UnmarshalStrict(b, &cases); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		for _, c := range cases {
			t.Run(strings.TrimSuffix(filepath.Base(path), ".yaml")+"/"+c.Name, func(t *testing.T) {
				for range 4 { // the walks go through maps, whose order is another each time
					run(t, c)
				}
			})
		}
	}
}

func run(t *testing.T, c fileCase) {
	m, err := Lookup(c.Model)
	must.OK(t, err)
	obj := whole(clone(c.Object)).(map[string]any)
	unknown, err := m.Fit(obj)
	if c.Error != "" {
		if err == nil || err.Error() != c.Error {
			t.Fatalf("Fit: %v, want %s", err, c.Error)
		}
		return
	}
	if err != nil {
		t.Fatalf("Fit: %v", err)
	}
	if d := cmp.Diff(c.Unknown, unknown); d != "" {
		t.Errorf("unknown fields: %s", d)
	}
	m.Default(obj)
	if c.Want != nil {
		if d := cmp.Diff(whole(c.Want), any(obj)); d != "" {
			got, _ := json.Marshal(obj)
			t.Errorf("after Default: %s\n%s", d, got)
		}
	}
	before := clone(obj)
	m.Default(obj)
	if d := cmp.Diff(before, any(obj)); d != "" {
		t.Errorf("a second Default changes the object: %s", d)
	}
}

// whole turns the floats of a YAML file that are integers into int64.
func whole(v any) any {
	switch x := v.(type) {
	case float64:
		if i := int64(x); float64(i) == x {
			return i
		}
	case map[string]any:
		for k := range x {
			x[k] = whole(x[k])
		}
	case []any:
		for i := range x {
			x[i] = whole(x[i])
		}
	}
	return v
}
