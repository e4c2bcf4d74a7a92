package fieldmanager

import (
	"encoding/json"
	"errors"
	"maps"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/quorate/quorate/apiserver/types/schema"
	"github.com/quorate/quorate/internal/must"
)

// TestConversionsOfOneWrite: With converts the object that a write makes together with the one before.
// Who converts keeps what it has converted, so a call costs only if something in it is new.
func TestConversionsOfOneWrite(t *testing.T) {
	of := func(version string) Version {
		return Version{GVK: apischema.GroupVersionKind{Group: "apps", Version: version, Kind: "Deployment"}, Model: "io.k8s.api.apps.v1.Deployment"}
	}
	m, err := New(Config{
		Versions: []Version{of("v1"), of("v2")},
		Convert: func([]map[string]any, apischema.GroupVersion, apischema.GroupVersion) ([]map[string]any, error) {
			t.Error("the operation's own conversions are not used")
			return nil, errors.New("not to be asked")
		},
	})
	must.OK(t, err)
	calls := 0
	has := map[string]bool{}
	m = m.With(func(objs []map[string]any, from, to apischema.GroupVersion) (out []map[string]any, err error) {
		fresh := 0
		for _, obj := range objs {
			if obj["apiVersion"] != from.String() {
				t.Errorf("an object of %v is to be converted from %v", obj["apiVersion"], from)
			}
			raw, err := json.Marshal(obj)
			if err != nil {
				return nil, err
			}
			if key := to.String() + string(raw); !has[key] {
				has[key] = true
				fresh = 1
			}
			converted := runtime.DeepCopyJSON(obj)
			converted["apiVersion"] = to.String()
			out = append(out, converted)
		}
		calls += fresh
		return out, nil
	})
	// config is a configuration of so many replicas, in a version.
	config := func(version string, replicas int64) map[string]any {
		return map[string]any{"apiVersion": "apps/" + version, "kind": "Deployment", "metadata": map[string]any{"name": "a"}, "spec": map[string]any{"replicas": replicas}}
	}
	// live is an object whose replicas its manager has set in v2.
	live := func(operation string) map[string]any {
		obj := config("v1", 1)
		maps.Copy(obj["metadata"].(map[string]any), map[string]any{"uid": "x", "managedFields": []any{map[string]any{
			"manager": "before", "operation": operation, "apiVersion": "apps/v2", "fieldsType": "FieldsV1",
			"fieldsV1": map[string]any{"f:spec": map[string]any{"f:replicas": map[string]any{}}},
		}}})
		return obj
	}
	one := `[{"apiVersion":"apps/v1","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:replicas":{}}},"manager":"m","operation":`
	for _, c := range []struct {
		name, want string
		write      func() (map[string]any, error)
	}{
		{"update", one + `"Update"}]`, func() (map[string]any, error) {
			obj := live("Update")
			obj["spec"] = map[string]any{"replicas": int64(2)}
			return m.Update(live("Update"), obj, "m")
		}},
		{"forced apply", one + `"Apply"}]`, func() (map[string]any, error) {
			return m.Apply(live("Update"), config("v1", 2), "m", true)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			calls = 0
			clear(has)
			out, err := c.write()
			must.OK(t, err)
			if got := managedOf(t, out); got != c.want {
				t.Errorf("managedFields are\n%s\nwant\n%s", got, c.want)
			}
			if calls != 1 {
				t.Errorf("%d calls convert something new, want 1: the object before and the one after together", calls)
			}
		})
	}
	t.Run("an apply by the manager of an entry of another version", func(t *testing.T) {
		// What is converted from v2 here comes back to v1: the merged object, which is of v1, is none of it.
		if _, err := m.Apply(live("Apply"), config("v1", 2), "before", false); err != nil {
			t.Error(err)
		}
	})
	for name, c := range map[string]struct{ live, config map[string]any }{
		"an object without a type":        {map[string]any{"apiVersion": "apps/v1", "kind": "Other", "metadata": map[string]any{}}, config("v1", 1)},
		"a configuration without a type":  {live("Update"), map[string]any{"apiVersion": "apps/v1", "kind": "Other", "metadata": map[string]any{}}},
		"a configuration of wrong values": {live("Update"), map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{}, "spec": "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			if out, err := m.Apply(c.live, c.config, "m", true); err == nil {
				t.Errorf("it is applied: %v", out)
			}
		})
	}
}

// TestTypeConverter merges objects of a kind of the server's and of one with a schema of its own.
func TestTypeConverter(t *testing.T) {
	s := &spec.Schema{}
	must.OK(t, json.Unmarshal([]byte(`{"type":"object","properties":{"apiVersion":{"type":"string"},"kind":{"type":"string"},
		"metadata":{"$ref":"#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"},
		"spec":{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"}}}}}`), s))
	group := apischema.GroupVersion{Group: "example.com", Version: "v1"}
	own := Version{GVK: group.WithKind("Own"), Model: "com.example.v1.Own", Schema: s}
	builtin := Version{GVK: group.WithKind("Builtin"), Model: "io.k8s.api.core.v1.ConfigMap"}
	for field, v := range map[string]Version{"spec": own, "data": builtin} {
		t.Run(v.GVK.Kind, func(t *testing.T) {
			types, err := TypeConverter(v)
			must.OK(t, err)
			object := func(key string) *unstructured.Unstructured {
				u := &unstructured.Unstructured{Object: map[string]any{field: map[string]any{key: "1"}}}
				u.SetGroupVersionKind(v.GVK)
				return u
			}
			x, err := types.ObjectToTyped(object("a"))
			must.OK(t, err)
			y, err := types.ObjectToTyped(object("b"))
			must.OK(t, err)
			merged, err := x.Merge(y)
			must.OK(t, err)
			out, err := types.TypedToObject(merged)
			must.OK(t, err)
			if got, _, _ := unstructured.NestedStringMap(out.(*unstructured.Unstructured).Object, field); !maps.Equal(got, map[string]string{"a": "1", "b": "1"}) {
				t.Errorf("it is %v", got)
			}
			other := object("a")
			other.SetKind("Other")
			if _, err := types.ObjectToTyped(other); !runtime.IsNotRegisteredError(err) {
				t.Errorf("an object of another kind: %v", err)
			}
		})
	}
	if types, err := TypeConverter(Version{GVK: group.WithKind("None"), Model: "com.example.v1.None"}); !errors.Is(err, schema.ErrUnknownModel) || types != nil {
		t.Errorf("a model that there is not: %v, %v", types, err)
	}
}
