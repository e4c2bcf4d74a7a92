package resourcequota_test

import (
	"testing"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/objects/objectstest"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestSameRule: of the versions of a quota those say that they change no rule which leave its spec as it was.
func TestSameRule(t *testing.T) {
	s := objectstest.NewStore(t, options(t, empty))
	op := func(plural, namespace, name, verb string) *objects.Op {
		return s.System(t.Context(), s.Kinds().Lookup(schema.GroupVersionResource{Version: "v1", Resource: plural}), namespace, name, verb)
	}
	create := func(o *objects.Op, body string) *mvcc.Version {
		t.Helper()
		w, err := o.CreateSent("application/json", []byte(body))
		must.OK(t, err)
		return w.Version
	}
	create(op("namespaces", "", "", "create"), `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"n"}}`)
	first := create(op("resourcequotas", "n", "", "create"), `{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"q","finalizers":["a.b/c"]},"spec":{"hard":{"pods":"2"}}}`)
	if first.Flags != 0 {
		t.Errorf("a new quota has the flags %b", first.Flags)
	}
	for _, row := range []struct {
		name, subresource string
		change            func(obj tree.Object)
		want              uint32
	}{
		{"the status", "status", func(obj tree.Object) {
			obj["status"] = tree.Object{"hard": tree.Object{"pods": "2"}, "used": tree.Object{"pods": "1"}}
		}, proto.FlagSameRule},
		{"a label", "", func(obj tree.Object) { tree.As(obj["metadata"])["labels"] = tree.Object{"a": "b"} }, proto.FlagSameRule},
		{"the spec", "", func(obj tree.Object) {
			obj["spec"] = tree.Object{"hard": tree.Object{"pods": "2", "limits.memory": "1Gi"}}
		}, 0},
		{"the status again", "status", func(obj tree.Object) {
			obj["status"] = tree.Object{"hard": tree.Object{"pods": "2"}, "used": tree.Object{"pods": "2"}}
		}, proto.FlagSameRule},
		{"a label and the spec", "", func(obj tree.Object) {
			tree.As(obj["metadata"])["labels"], obj["spec"] = tree.Object{}, tree.Object{"hard": tree.Object{"pods": "3"}}
		}, 0},
	} {
		o := op("resourcequotas", "n", "q", "update")
		if row.subresource != "" {
			o.Subresource, o.Info.Subresource = o.Resource.Subresource(row.subresource), row.subresource
		}
		w, err := o.GuaranteedUpdate(o.Key(), func(cur *mvcc.Version) (objects.Change, error) {
			old, obj, _, err := o.Editable(cur)
			if err != nil {
				return objects.Change{}, err
			}
			row.change(obj)
			return o.Replace(cur, obj, old)
		})
		if err != nil {
			t.Fatalf("%s: %v", row.name, err)
		}
		if w.Version.Flags != row.want {
			t.Errorf("%s: the version has the flags %b, want %b", row.name, w.Version.Flags, row.want)
		}
	}
}
