package kinds

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestAutoscalerVersions reads testdata/autoscaler.txt.
func TestAutoscalerVersions(t *testing.T) {
	all, err := Available()
	if err != nil {
		t.Fatal(err)
	}
	res := all.Lookup(schema.GroupVersionResource{Group: "autoscaling", Version: "v1", Resource: "horizontalpodautoscalers"})
	if res == nil {
		t.Fatal("autoscaling/v1 is not there")
	}
	raw, err := os.ReadFile("testdata/autoscaler.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range strings.Split(string(raw), "\n\n")[1:] {
		lines := strings.Split(strings.TrimSpace(block), "\n")
		how, title, _ := strings.Cut(lines[0], " ")
		objects := map[string]map[string]any{}
		for _, line := range lines[1:] {
			version, text, _ := strings.Cut(line, " ")
			objects[version] = decode(t, text)
		}
		t.Run(title, func(t *testing.T) {
			check := func(what string, convert func(map[string]any) (map[string]any, error), in, want map[string]any) {
				t.Helper()
				before := decode(t, encode(t, in))
				got, err := convert(in)
				if err != nil {
					t.Fatal(err)
				}
				if d := cmp.Diff(want, decode(t, encode(t, got))); d != "" {
					t.Errorf("%s: -want +got\n%s", what, d)
				}
				if d := cmp.Diff(before, in); d != "" {
					t.Errorf("%s changed what it was given:\n%s", what, d)
				}
			}
			if strings.HasPrefix(how, "<-") {
				check("to v2", res.ToStored, objects["v1"], objects["v2"])
			}
			if strings.HasSuffix(how, "->") {
				check("to v1", res.FromStored, objects["v2"], objects["v1"])
			}
		})
	}
}

func decode(t *testing.T, text string) map[string]any {
	t.Helper()
	var out map[string]any
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return out
}

func encode(t *testing.T, obj map[string]any) string {
	t.Helper()
	raw, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
