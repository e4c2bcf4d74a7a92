package typed

import (
	"maps"
	"reflect"

	"github.com/quorate/quorate/apiserver/types/tree"
	"k8s.io/apimachinery/pkg/runtime"
)

// DecodeUnmanaged makes of into, a pointer to a struct, what the converter would make of an object
// without its metadata.managedFields, which are as large as the rest. Errors are the converter's.
// into shares no map and no list with obj, only text. obj is not changed.
func DecodeUnmanaged(obj tree.Object, into any) error {
	return decode(&unmanaged, obj, into, nil, nil)
}

// DecodeUnmanagedLike is DecodeUnmanaged of an object that is nearly another one: made was made of
// the tree like, and is of into's type. What is the same in both, into shares with made, so neither
// may be changed.
func DecodeUnmanagedLike(obj tree.Object, into any, like tree.Object, made any) error {
	return decode(&unmanaged, obj, into, like, made)
}

// likeLevels is how far down the same is looked for: the status of an object, the template in a spec.
const likeLevels = 1

func decode(types *plans, obj tree.Object, into any, like tree.Object, made any) error {
	v := reflect.ValueOf(into)
	if v.Kind() == reflect.Pointer && !v.IsNil() && v.Elem().Kind() == reflect.Struct {
		v = v.Elem()
		v.SetZero()
		if like == nil && types.of(v.Type()).decode(obj, v) || like != nil && types.of(v.Type()).decodeLike(obj, v, like, reflect.ValueOf(made).Elem(), likeLevels) {
			return nil
		}
		v.SetZero()
	}
	if _, has := tree.As(obj["metadata"])["managedFields"]; has && types == &unmanaged {
		obj = withoutManagedFields(obj)
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(obj, into)
}

func withoutManagedFields(obj tree.Object) tree.Object {
	obj = maps.Clone(obj)
	meta := tree.Clone(obj["metadata"])
	delete(meta, "managedFields")
	obj["metadata"] = meta
	return obj
}
