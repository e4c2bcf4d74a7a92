package fieldmanager

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/quorate/quorate/internal/must"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// things is the manager of a kind that has a field of each sort. Nobody owns its status by it, and
// nothing of reset.
func things(t *testing.T, subresource string, reset ...string) *Manager {
	t.Helper()
	s := &spec.Schema{}
	must.OK(t, json.Unmarshal([]byte(`{"type":"object","properties":{"apiVersion":{"type":"string"},"kind":{"type":"string"},
		"metadata":{"$ref":"#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"},
		"status":{"type":"object","properties":{"s":{"type":"string"}}},
		"spec":{"type":"object","properties":{
			"s":{"type":"string"},"n":{"type":"integer"},"b":{"type":"boolean"},
			"o":{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"}}},
			"granular":{"type":"object","additionalProperties":{"type":"string"}},
			"nested":{"type":"object","additionalProperties":{"type":"object","properties":{"a":{"type":"string"}}}},
			"atomic":{"type":"object","x-kubernetes-map-type":"atomic","additionalProperties":{"type":"string"}},
			"list":{"type":"array","x-kubernetes-list-type":"atomic","items":{"type":"string"}},
			"set":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}},
			"items":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["name"],
				"items":{"type":"object","required":["name"],"properties":{"name":{"type":"string"},"v":{"type":"string"}}}}
		}}}}`), s))
	m, err := New(Config{
		Versions:    []Version{{GVK: apischema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"}, Model: "com.example.v1.Thing", Schema: s}},
		Subresource: subresource, Reset: append(reset, "status"),
	})
	must.OK(t, err)
	return m
}

// TestDecisions reads testdata/decisions.txt: which writes are decided without the
// library. What comes of each is compared with it all the same.
func TestDecisions(t *testing.T) {
	raw, err := os.ReadFile("testdata/decisions.txt")
	must.OK(t, err)
	of := map[string]*Manager{
		"": things(t, ""), "sub": things(t, "sub"),
		"metadata": things(t, "metadata", "metadata"), "labels": things(t, "labels", "metadata.labels"),
		"label": things(t, "label", "metadata.labels.a"), "part": things(t, "part", "spec.o"),
	}
	for _, block := range strings.Split(strings.TrimSpace(string(raw)), "\n\n") {
		lines := strings.Split(block, "\n")
		t.Run(strings.TrimPrefix(lines[0], "# "), func(t *testing.T) {
			live := of[""].Nothing()
			for _, line := range lines[1:] {
				if strings.HasPrefix(line, "#") {
					continue
				}
				words := strings.SplitN(line, " ", 4)
				want, op, sent := words[0], words[1], map[string]any{}
				manager, sub, _ := strings.Cut(words[2], "/")
				if manager == "-" {
					manager = ""
				}
				if err := json.Unmarshal([]byte(words[3]), &sent); err != nil {
					t.Fatalf("%s: %v", line, err)
				}
				after, quick := step(t, of[sub], live, sent, op, manager)
				if got := map[bool]string{true: "quick", false: "library"}[quick]; got != want {
					t.Errorf("%s: it is %s", line, got)
				}
				live = copied(t, after)
				if meta := live["metadata"].(map[string]any); len(meta) > 0 {
					meta["uid"] = "x"
				}
			}
		})
	}
}

// step makes one write in both ways.
func step(t *testing.T, m *Manager, live, sent map[string]any, op, manager string) (after map[string]any, quick bool) {
	t.Helper()
	obj := map[string]any{"apiVersion": "example.com/v1", "kind": "Thing"}
	meta := map[string]any{"name": "n"}
	if op == "update" {
		before, _ := live["metadata"].(map[string]any) // an object that is not there has none
		maps.Copy(meta, before)
	}
	sentMeta, _ := sent["metadata"].(map[string]any)
	maps.Copy(meta, sentMeta)
	maps.Copy(obj, sent)
	obj["metadata"] = meta
	for name, v := range meta {
		if v == "absent" {
			delete(meta, name)
		}
	}
	if sent["metadata"] == "absent" {
		delete(obj, "metadata")
	}
	normal := copied(t, normalized(t, obj))
	if op == "update" {
		return both(t, m, live, normal, manager)
	}
	return bothApply(t, sample{m: m}, live, normal, manager, op == "force")
}

// normalized has whole numbers where JSON has them.
func normalized(t *testing.T, obj map[string]any) map[string]any {
	t.Helper()
	var walk func(v any) any
	walk = func(v any) any {
		switch v := v.(type) {
		case map[string]any:
			for k := range v {
				v[k] = walk(v[k])
			}
		case []any:
			for i := range v {
				v[i] = walk(v[i])
			}
		case float64:
			if v == float64(int64(v)) {
				return int64(v)
			}
		}
		return v
	}
	return walk(obj).(map[string]any)
}

// TestOrderOfEntries: entries are in the library's order.
func TestOrderOfEntries(t *testing.T) {
	var want []any
	for _, line := range []string{
		`{"operation":"Apply","time":"2026-01-02T00:00:00Z","manager":"b"}`,
		`{"operation":"Update","manager":"z"}`,
		`{"operation":"Update","time":"2026-01-01T00:00:00Z","manager":"c"}`,
		`{"operation":"Update","time":"2026-01-02T00:00:00Z","manager":"a","apiVersion":"v1","subresource":"status"}`,
		`{"operation":"Update","time":"2026-01-02T00:00:00Z","manager":"a","apiVersion":"v2"}`,
		`{"operation":"Update","time":"2026-01-02T00:00:00Z","manager":"a","apiVersion":"v2","subresource":"scale"}`,
		`{"operation":"Update","time":"2026-01-02T00:00:00Z","manager":"b","apiVersion":"v1"}`,
	} {
		var entry map[string]any
		must.OK(t, json.Unmarshal([]byte(line), &entry))
		want = append(want, entry)
	}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, byTime)
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// TestApplyOfWhatIsThere: an apply that changes nothing leaves the time of its entry.
func TestApplyOfWhatIsThere(t *testing.T) {
	m := things(t, "")
	config := map[string]any{
		"apiVersion": "example.com/v1", "kind": "Thing", "metadata": map[string]any{"name": "n"}, "spec": map[string]any{"s": "a"},
	}
	live, err := m.Apply(m.Nothing(), config, "m", false)
	must.OK(t, err)
	meta := live["metadata"].(map[string]any)
	meta["uid"] = "x"
	entry := meta["managedFields"].([]any)[0].(map[string]any)
	entry["time"] = "2026-01-01T00:00:00Z"
	after, quick := m.quickApply(live, config, "m", false)
	if !quick {
		t.Fatal("it is for the library")
	}
	if d := cmp.Diff(live, after); d != "" {
		t.Error(d)
	}
}
