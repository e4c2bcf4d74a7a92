package upstream

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/schema"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/judges/random"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	kjson "sigs.k8s.io/json"
)

// versions are the built-in resources of one table, for those that several versions serve.
func versions(t *testing.T) map[string][]*kinds.Resource {
	registry, err := kinds.Builtin()
	must.OK(t, err)
	tables := map[string][]*kinds.Resource{}
	for _, res := range registry.All() {
		if legacyscheme.Scheme.Recognizes(res.GVK()) {
			tables[res.Table()] = append(tables[res.Table()], res)
		}
	}
	maps.DeleteFunc(tables, func(_ string, of []*kinds.Resource) bool { return len(of) < 2 })
	return tables
}

// shownAs is what upstream shows in one version of a body that was written in another and is stored in a third.
func shownAs(t *testing.T, body tree.Object, from, storage, to apischema.GroupVersionKind) (tree.Object, error) {
	internal, err := random.Read(t, body, from)
	if err != nil {
		return nil, err
	}
	kept, err := random.Keep(internal, storage)
	if err != nil {
		return nil, err
	}
	legacyscheme.Scheme.Default(kept)
	if internal, err = legacyscheme.Scheme.ConvertToVersion(kept, random.Internal(storage)); err != nil {
		return nil, err
	}
	shown, err := legacyscheme.Scheme.ConvertToVersion(internal, to.GroupVersion())
	if err != nil {
		return nil, err
	}
	shown.GetObjectKind().SetGroupVersionKind(to)
	return random.Tree(t, shown), nil
}

// TestConversions: what was written in one version is shown in another as upstream shows it, and in its own.
func TestConversions(t *testing.T) {
	if testing.Short() {
		*objects = min(*objects, 60)
	}
	tried := 0
	for _, of := range versions(t) {
		for _, from := range of {
			for _, to := range of {
				tried += judgeConversion(t, from, storageOf(of), to)
			}
		}
	}
	t.Logf("%d objects", tried)
}

// storageOf is the version whose fields the others lead to.
func storageOf(of []*kinds.Resource) *kinds.Resource {
	return of[slices.IndexFunc(of, func(r *kinds.Resource) bool { return r.StorageVersion == "" || r.StorageVersion == r.Version })]
}

func judgeConversion(t *testing.T, from, storage, to *kinds.Resource) int {
	model, err := schema.Lookup(from.Model)
	must.OK(t, err)
	found, n := random.Differences{}, 0
	for ; n < *objects; n++ {
		obj, err := legacyscheme.Scheme.New(from.GVK())
		must.OK(t, err)
		random.Filler{}.Fill(*first+int64(n), obj)
		obj.GetObjectKind().SetGroupVersionKind(from.GVK())
		ours := random.Tree(t, obj)
		theirs, err := shownAs(t, ours, from.GVK(), storage.GVK(), to.GVK())
		if err != nil {
			continue // of an object that upstream refuses
		}
		if _, err := model.Fit(ours); err != nil {
			found.Add("", "taken", err.Error())
			continue
		}
		fillIn(t, from, model, ours)
		shown, err := kinds.Convert(ours, from, to)
		if err != nil {
			found.Add("", "converted", err.Error())
			continue
		}
		found.Compare("", theirs, asSent(t, shown))
	}
	for _, path := range slices.Sorted(maps.Keys(found)) {
		t.Errorf("%s stored as %s and shown as %s: %d of %d: %s: %s", from.GVK(), storage.GVK(), to.GVK(), found[path].Count, n, path, found[path].Example)
	}
	return n
}

// asSent is a tree as its text is read: conversions make values of types that a text has not.
func asSent(t *testing.T, obj tree.Object) tree.Object {
	b, err := json.Marshal(obj)
	must.OK(t, err)
	var out tree.Object
	must.OK(t, kjson.UnmarshalCaseSensitivePreserveInts(b, &out))
	return out
}
