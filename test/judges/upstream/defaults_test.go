package upstream

import (
	"flag"
	"maps"
	"slices"
	"testing"
	"time"

	apiobjects "github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/objects/builtin"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/schema"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/judges/random"
	"k8s.io/apimachinery/pkg/runtime"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
)

var (
	objects = flag.Int("objects", 400, "objects of each kind")
	first   = flag.Int64("first", 1, "the first seed")
)

// completed is what upstream makes of a body: defaults, and what is left of it by its internal type and its stored form.
func completed(t *testing.T, body tree.Object, gvk apischema.GroupVersionKind) (runtime.Object, error) {
	internal, err := random.Read(t, body, gvk)
	if err != nil {
		return nil, err
	}
	return random.Keep(internal, gvk)
}

var (
	strategies = builtin.Strategies(builtin.Config{})
	// The time is another one than upstream's, always: testdata/defaults.txt has what depends on it.
	here = new(apiobjects.NewOp(apiobjects.Request{Store: &apiobjects.Store{Config: apiobjects.Config{Strategies: strategies, Now: func() time.Time { return time.Unix(1, 0) }}}}))
)

// fillIn adds to an object what its kind's model and strategy do.
func fillIn(t *testing.T, res *kinds.Resource, model *schema.Model, obj tree.Object) {
	t.Helper()
	must.OK(t, model.Default(obj))
	if s := strategies[res.CodeName()]; s != nil && s.Complete != nil {
		must.OK(t, s.Complete(here, obj, nil))
	}
	model.Fill(obj)
}

// TestDefaults: what is filled in of a body, and what is left of it, is what upstream's types make of it.
func TestDefaults(t *testing.T) {
	registry, err := kinds.Builtin()
	must.OK(t, err)
	if testing.Short() {
		*objects = min(*objects, 60)
	}
	accepted := random.Known(t, "testdata/defaults.txt")
	tried := 0
	for _, res := range registry.All() {
		gvk := res.GVK()
		if !legacyscheme.Scheme.Recognizes(gvk) {
			continue
		}
		model, err := schema.Lookup(res.Model)
		if err != nil {
			t.Errorf("%s: %v", gvk, err)
			continue
		}
		found, n := random.Differences{}, 0
		for ; n < *objects; n++ {
			obj, err := legacyscheme.Scheme.New(gvk)
			must.OK(t, err)
			random.Filler{}.Fill(*first+int64(n), obj)
			obj.GetObjectKind().SetGroupVersionKind(gvk)
			ours := random.Tree(t, obj)
			made, err := completed(t, ours, gvk)
			if err != nil {
				continue // of an object that upstream refuses
			}
			made.GetObjectKind().SetGroupVersionKind(gvk)
			if _, err := model.Fit(ours); err != nil {
				found.Add("", "taken", err.Error())
				continue
			}
			fillIn(t, res, model, ours)
			found.Compare("", random.Tree(t, made), ours)
		}
		tried += n
		for _, path := range slices.Sorted(maps.Keys(found)) {
			line := gvk.Kind + " " + path
			if _, ok := accepted[line]; ok {
				accepted[line] = true
				continue
			}
			t.Errorf("%s: %d of %d: %s: %s", gvk, found[path].Count, n, path, found[path].Example)
		}
	}
	for line, seen := range accepted {
		if !seen && !testing.Short() { // which has too few objects for that
			t.Errorf("testdata/defaults.txt: %q is no difference any more", line)
		}
	}
	t.Logf("%d objects", tried)
}
