package fieldmanager

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/quorate/quorate/internal/must"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// bothApply applies a configuration in both ways and compares what comes of it. It
// returns the object as the library has it, and whether the quick way was taken.
func bothApply(t testing.TB, s sample, live, config map[string]any, manager string, force bool) (map[string]any, bool) {
	t.Helper()
	before, sent := copied(t, live), copied(t, config)
	var fast map[string]any
	var quick bool
	if !s.m.slow {
		fast, quick = s.m.quickApply(live, config, manager, force)
	}
	if d := cmp.Diff(before, live); d != "" {
		t.Fatalf("the live object has changed: %s", d)
	}
	if d := cmp.Diff(sent, config); d != "" {
		t.Fatalf("the configuration has changed: %s", d)
	}
	out, err := s.m.fields.Apply(&unstructured.Unstructured{Object: copied(t, live)}, &unstructured.Unstructured{Object: copied(t, config)}, manager, force)
	if err != nil {
		if quick {
			t.Fatalf("the library refuses what went quickly: %v", err)
		}
		return live, false
	}
	slow := out.(*unstructured.Unstructured).Object
	if !quick {
		return slow, false
	}
	if a, b := managedOf(t, fast), managedOf(t, slow); a != b {
		t.Fatalf("quick\n%s\nlibrary\n%s", a, b)
	}
	a, b := copied(t, fast), copied(t, slow)
	for _, obj := range []map[string]any{a, b} {
		delete(obj["metadata"].(map[string]any), "managedFields")
		if s.model == nil {
			continue // there are no defaults
		}
		if _, err := s.model.Fit(obj); err != nil {
			t.Fatal(err)
		}
		s.model.Default(obj)
	}
	if d := cmp.Diff(b, a); d != "" {
		t.Fatalf("library -, quick +: %s", d)
	}
	return slow, true
}

// TestQuickApplyIsTheSame: where the quick way is taken the object and its managers
// are those of the library, for objects that people use, parts of which several
// managers apply and others update.
func TestQuickApplyIsTheSame(t *testing.T) {
	applies, quicks, changes := 0, 0, 0
	for i, s := range samples(t) {
		for round := range 2 {
			rng := rand.New(rand.NewPCG(uint64(round), uint64(i)))
			live := s.m.Nothing()
			configs := map[string]map[string]any{}
			for step := range 30 {
				manager := []string{"a", "a", "a", "b"}[rng.IntN(4)]
				config := configs[manager]
				if config == nil || rng.IntN(8) == 0 {
					config = partOf(rng, copied(t, s.obj), 0).(map[string]any)
					if meta, _ := s.obj["metadata"].(map[string]any); config["metadata"] == nil {
						config["metadata"] = map[string]any{"name": meta["name"]}
					}
				} else if rng.IntN(3) > 0 {
					config = copied(t, config)
					mutate(rng, config, fmt.Sprint("v", step))
				}
				if _, err := s.model.Fit(config); err != nil {
					continue // not a value of its type
				}
				if rng.IntN(6) == 0 && live["metadata"].(map[string]any)["uid"] != nil {
					obj := copied(t, live)
					mutate(rng, obj, fmt.Sprint("u", step))
					if _, err := s.model.Fit(obj); err == nil {
						if live, err = s.m.Update(live, obj, "updater"); err != nil {
							t.Fatal(err)
						}
					}
					continue
				}
				after, quick := bothApply(t, s, live, config, manager, rng.IntN(3) == 0)
				applies++
				if quick {
					quicks++
					if !equal(after, live) {
						changes++
					}
				}
				configs[manager] = config
				if live = copied(t, after); len(live["metadata"].(map[string]any)) > 0 {
					live["metadata"].(map[string]any)["uid"] = "x"
				}
			}
		}
	}
	t.Logf("quick: %d of %d, %d of them changed something", quicks, applies, changes)
	if quicks < applies/4 || changes < applies/50 {
		t.Errorf("the quick way is hardly ever taken")
	}
}

// partOf leaves out parts of a configuration, but for what it cannot be without.
func partOf(rng *rand.Rand, v any, depth int) any {
	switch v := v.(type) {
	case map[string]any:
		for _, key := range sortedKeys(v) {
			switch key {
			case "apiVersion", "kind", "name", "key", "containerPort", "port", "protocol", "mountPath", "type", "ip", "topologyKey":
				continue
			}
			if rng.IntN(6) == 0 {
				delete(v, key)
				continue
			}
			v[key] = partOf(rng, v[key], depth+1)
		}
	case []any:
		for i := range v {
			v[i] = partOf(rng, v[i], depth+1)
		}
	}
	return v
}

// TestSchemaChange: fields that were owned one by one, in what is one value now, are
// still their owner's. The library is asked, also where it is the other way round.
func TestSchemaChange(t *testing.T) {
	gvk := apischema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "E"}
	manager := func(mapType string) *Manager {
		s := &spec.Schema{}
		raw := `{"type":"object","properties":{"apiVersion":{"type":"string"},"kind":{"type":"string"},
			"metadata":{"$ref":"#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"},
			"spec":{"type":"object","properties":{"m":{"type":"object","x-kubernetes-map-type":"` + mapType + `","additionalProperties":{"type":"string"}}}}}}`
		must.OK(t, json.Unmarshal([]byte(raw), s))
		m, err := New(Config{Versions: []Version{{GVK: gvk, Model: "com.example.v1.E", Schema: s}}})
		must.OK(t, err)
		return m
	}
	configuration := func(value string) map[string]any {
		return map[string]any{"apiVersion": "example.com/v1", "kind": "E", "metadata": map[string]any{"name": "e"}, "spec": map[string]any{"m": map[string]any{"a": value}}}
	}
	granular, atomic := manager("granular"), manager("atomic")
	applied := func(before, now *Manager) map[string]any {
		live, err := before.Apply(before.Nothing(), configuration("1"), "b", false)
		must.OK(t, err)
		live["metadata"].(map[string]any)["uid"] = "x"
		if _, quick := now.quickApply(live, configuration("2"), "a", true); quick {
			t.Error("decided without the library, which alone knows what another schema meant")
		}
		return live
	}
	applied(atomic, granular)
	live, now := applied(granular, atomic), atomic
	if _, err := now.Apply(copied(t, live), configuration("2"), "a", false); !apierrors.IsConflict(err) {
		t.Errorf("what b has applied is a's to change: %v", err)
	}
	obj := copied(t, live)
	obj["spec"] = configuration("2")["spec"]
	out, err := now.Update(live, obj, "c")
	must.OK(t, err)
	if managed := managedOf(t, out); strings.Count(managed, `"f:m"`) != 1 || !strings.Contains(managed, `"manager":"c"`) {
		t.Errorf("after an update by c: %s", managed)
	}
	// Who created the object owns the map itself beside its fields.
	if live, err = granular.Update(granular.Nothing(), configuration("1"), "b"); err != nil {
		t.Fatal(err)
	}
	live["metadata"].(map[string]any)["uid"] = "x"
	obj = copied(t, live)
	obj["spec"] = configuration("2")["spec"]
	if _, quick := both(t, now, live, obj, "b"); quick {
		t.Error("an update is decided without the library, which alone knows what another schema meant")
	}
}
