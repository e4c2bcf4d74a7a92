package fieldmanager

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/schema"
	"github.com/quorate/quorate/internal/must"
)

// sample is an object that somebody uses, with the manager of its kind.
type sample struct {
	m     *Manager
	model *schema.Model
	obj   map[string]any
}

// samples are the objects of the manifests that other projects publish.
func samples(t testing.TB) (out []sample) {
	t.Helper()
	registry, err := kinds.Builtin()
	must.OK(t, err)
	managers := map[apischema.GroupVersionKind]*Manager{}
	files, err := filepath.Glob("../../../test/system/kubectl/testdata/manifests/*/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range append(files, "testdata/corners.yaml") {
		raw, err := os.ReadFile(file)
		must.OK(t, err)
		for _, doc := range bytes.Split(raw, []byte("\n---")) {
			var obj map[string]any
			if err := yaml.Unmarshal(doc, &obj); err != nil {
				t.Fatal(file, err)
			}
			u := unstructured.Unstructured{Object: obj}
			res := registry.LookupKind(u.GroupVersionKind())
			if res == nil {
				continue
			}
			model, err := schema.Lookup(res.Model)
			must.OK(t, err)
			if _, err := model.Fit(obj); err != nil {
				t.Fatal(file, err)
			}
			model.Default(obj)
			m := managers[res.GVK()]
			if m == nil {
				if m, err = New(Config{Versions: []Version{{GVK: res.GVK(), Model: res.Model}}, Reset: []string{"status"}, Zero: model.Zero, Default: model.Default}); err != nil {
					t.Fatal(err)
				}
				managers[res.GVK()] = m
			}
			out = append(out, sample{m, model, obj})
		}
	}
	return out
}

// TestQuickOfNothing: every part that is there when nothing is set, made empty in both
// ways.
func TestQuickOfNothing(t *testing.T) {
	registry, err := kinds.Builtin()
	must.OK(t, err)
	for _, res := range registry.All() {
		if res.Virtual {
			continue
		}
		model, err := schema.Lookup(res.Model)
		must.OK(t, err)
		m, err := New(Config{Versions: []Version{{GVK: res.GVK(), Model: res.Model}}, Reset: []string{"status"}, Zero: model.Zero, Default: model.Default})
		must.OK(t, err)
		for _, path := range partsOf(m.Nothing(), nil) {
			for _, v := range []any{[]any{}, map[string]any{}} {
				obj := map[string]any{"apiVersion": res.GroupVersion().String(), "kind": res.Kind, "metadata": map[string]any{"name": "a"}}
				if err := unstructured.SetNestedField(obj, v, path...); err != nil {
					continue // below something of another kind
				}
				if _, err := model.Fit(obj); err != nil {
					continue // not a value of its type
				}
				both(t, m, m.Nothing(), obj, "m")
			}
		}
	}
}

// partsOf are the paths of the lists, maps and nulls in an object.
func partsOf(m map[string]any, at []string) (paths [][]string) {
	for _, key := range sortedKeys(m) {
		path := append(slices.Clip(at), key)
		switch v := m[key].(type) {
		case nil, []any:
			paths = append(paths, path)
		case map[string]any:
			paths = append(append(paths, path), partsOf(v, path)...)
		}
	}
	return paths
}

// copied is an object through JSON, as it is after it was stored, with whole
// numbers.
func copied(t testing.TB, obj map[string]any) map[string]any {
	t.Helper()
	return (&unstructured.Unstructured{Object: obj}).DeepCopy().Object
}

// managedOf is what matters of managedFields: all but the times.
func managedOf(t testing.TB, obj map[string]any) string {
	t.Helper()
	meta, _ := obj["metadata"].(map[string]any)
	entries, _ := meta["managedFields"].([]any)
	var out []map[string]any
	for _, e := range entries {
		entry := map[string]any{}
		for k, v := range e.(map[string]any) {
			if k != "time" {
				entry[k] = v
			}
		}
		out = append(out, entry)
	}
	// Their order goes by time, in whole seconds, and the two ways look at the clock
	// one after the other.
	slices.SortFunc(out, func(a, b map[string]any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	b, err := json.Marshal(out)
	must.OK(t, err)
	return string(b)
}

// both tracks a write in both ways and compares them; it returns the object as the
// library has it, and whether the quick way was taken.
func both(t testing.TB, m *Manager, live, obj map[string]any, manager string) (map[string]any, bool) {
	t.Helper()
	one, two := copied(t, obj), copied(t, obj)
	before := managedOf(t, live)
	quick := !m.slow && m.quick(live, one, manager)
	out, err := m.fields.Update(&unstructured.Unstructured{Object: copied(t, live)}, &unstructured.Unstructured{Object: two}, manager)
	must.OK(t, err)
	slow := out.(*unstructured.Unstructured).Object
	if quick {
		if a, b := managedOf(t, one), managedOf(t, slow); a != b {
			t.Fatalf("quick\n%s\nlibrary\n%s", a, b)
		}
	}
	if after := managedOf(t, live); after != before {
		t.Fatalf("the live object has changed from\n%s\nto\n%s", before, after)
	}
	return slow, quick
}

// TestQuickIsTheSame: where the quick way is taken it says what the library says, for
// objects that people use and for random changes to them by several managers.
func TestQuickIsTheSame(t *testing.T) {
	creates, updates, quickCreates, quickUpdates := 0, 0, 0, 0
	for i, s := range samples(t) {
		rng := rand.New(rand.NewPCG(1, uint64(i)))
		live, quick := both(t, s.m, s.m.Nothing(), s.obj, "creator")
		creates++
		if quick {
			quickCreates++
		}
		live["metadata"].(map[string]any)["uid"] = "x"
		for step := range 40 {
			manager := []string{"creator", "creator", "second", ""}[rng.IntN(4)]
			obj := copied(t, live)
			for range 1 + rng.IntN(2) {
				mutate(rng, obj, fmt.Sprint("v", step))
			}
			if rng.IntN(2) == 0 { // not everybody sends them
				delete(obj["metadata"].(map[string]any), "managedFields")
			}
			if _, err := s.model.Fit(obj); err != nil {
				continue // not a value of its type
			}
			changed, ok := s.m.changes(live, obj)
			live, quick = both(t, s.m, live, obj, manager)
			if ok && len(changed) == 0 {
				continue // nothing to track
			}
			updates++
			if quick {
				quickUpdates++
			}
		}
	}
	t.Logf("quick: %d of %d creates, %d of %d updates", quickCreates, creates, quickUpdates, updates)
	if quickCreates < creates*9/10 || quickUpdates < updates/4 {
		t.Errorf("the quick way is hardly ever taken")
	}
}

// mutate changes something somewhere: a value, an addition, a removal, or nothing.
func mutate(rng *rand.Rand, v any, text string) {
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 0 {
			return
		}
		keys := sortedKeys(v)
		key := keys[rng.IntN(len(keys))]
		switch key {
		case "apiVersion", "kind", "managedFields", "uid", "name", "key", "containerPort", "port", "protocol", "mountPath", "type", "ip", "topologyKey":
			return
		}
		switch x := v[key].(type) {
		case string:
			v[key] = text
		case int64:
			v[key] = x + 1
		case bool:
			v[key] = !x
		default:
			if dice := rng.IntN(12); dice == 0 && key != "metadata" {
				delete(v, key)
			} else if labels, ok := x.(map[string]any); ok && dice == 1 && (key == "labels" || key == "annotations" || key == "data") {
				labels["added-"+text] = text
			} else {
				mutate(rng, x, text)
			}
		}
	case []any:
		if len(v) > 0 {
			mutate(rng, v[rng.IntN(len(v))], text)
		}
	}
}

func sortedKeys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }
