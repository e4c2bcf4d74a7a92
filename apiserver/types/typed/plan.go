package typed

import (
	"encoding/base64"
	"maps"
	"math"
	"reflect"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/quorate/quorate/apiserver/types/tree"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// A decoder makes v, which is zero and can be set, of a value of a tree. False: it is for the
// converter, and v may be half done.
type decoder func(x any, v reflect.Value) bool

// plans are how structs are decoded, each made when it is first asked for: as many as the program
// has types to decode.
type plans struct {
	made sync.Map // of *structure by reflect.Type
	// leftOut is a name below metadata that objects are decoded without.
	leftOut string
}

var (
	whole     plans
	unmanaged = plans{leftOut: "managedFields"}

	structuresMu sync.Mutex
	structures   = builder{} // guarded by structuresMu
)

// of is how a struct is decoded.
func (p *plans) of(t reflect.Type) *structure {
	if s, ok := p.made.Load(t); ok {
		return s.(*structure)
	}
	structuresMu.Lock()
	defer structuresMu.Unlock()
	s := structures.structure(t)
	if p.leftOut != "" {
		s = structures.without(s, p.leftOut)
	}
	p.made.Store(t, s)
	return s
}

// builder makes the decoders of types, and has those of structs, which may contain themselves.
// One is not changed any more when a decoder that leads to it is given away.
type builder map[reflect.Type]*structure

// a structure is how a struct is decoded.
type structure struct {
	fields map[string]*fieldOf
	// strange: two fields have one name, or a field cannot be set.
	strange bool
}

type fieldOf struct {
	index  int
	within []int // further indexes, of a field of an inlined struct
	decode decoder
	inner  *structure // of a field that is a struct and decoded by decode
}

// of is the field of v, which has the structure's type.
func (f *fieldOf) of(v reflect.Value) reflect.Value {
	v = v.Field(f.index)
	for _, i := range f.within {
		v = v.Field(i)
	}
	return v
}

func never(any, reflect.Value) bool { return false }

func (b builder) decoder(t reflect.Type) decoder {
	if d := scalar(t.Kind()); d != nil {
		return d
	}
	if d := special[t]; d != nil {
		return d
	}
	if value.TypeReflectEntryOf(t).CanConvertFromUnstructured() {
		return asJSON
	}
	switch t.Kind() {
	case reflect.Pointer:
		return b.pointer(t.Elem())
	case reflect.Slice:
		return b.slice(t)
	case reflect.Map:
		return b.mapping(t)
	case reflect.Struct:
		return b.structure(t).decode
	}
	return never
}

// scalar is the decoder of what has one value, nil if the kind has more.
func scalar(k reflect.Kind) decoder {
	switch k {
	case reflect.String:
		return decodeString
	case reflect.Bool:
		return decodeBool
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return decodeInt
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Float32, reflect.Float64:
		return never
	}
	return nil
}

func decodeString(x any, v reflect.Value) bool {
	s, ok := x.(string)
	v.SetString(s)
	return ok || x == nil
}

func decodeBool(x any, v reflect.Value) bool {
	is, ok := x.(bool)
	v.SetBool(is)
	return ok || x == nil
}

func decodeInt(x any, v reflect.Value) bool {
	n, ok := x.(int64)
	v.SetInt(n) // what is too large is cut, as by the converter
	return ok || x == nil
}

// asJSON is the converter's way for types that read JSON themselves.
func asJSON(x any, v reflect.Value) bool {
	return x == nil || value.TypeReflectEntryOf(v.Type()).FromUnstructured(reflect.ValueOf(x), v) == nil
}

func (b builder) pointer(to reflect.Type) decoder {
	decode := b.decoder(to)
	return func(x any, v reflect.Value) bool {
		if x == nil {
			return true
		}
		made := reflect.New(to)
		v.Set(made)
		return decode(x, made.Elem())
	}
}

func (b builder) slice(t reflect.Type) decoder {
	if t.Elem().Kind() == reflect.Uint8 {
		return decodeBytes
	}
	decode := b.decoder(t.Elem())
	return func(x any, v reflect.Value) bool {
		list, ok := x.([]any)
		if !ok || list == nil {
			return x == nil
		}
		if len(list) == 0 {
			v.Set(reflect.MakeSlice(t, 0, 0))
			return true
		}
		v.Grow(len(list))
		v.SetLen(len(list))
		for i, x := range list {
			if !decode(x, v.Index(i)) {
				return false
			}
		}
		return true
	}
}

func decodeBytes(x any, v reflect.Value) bool {
	s, ok := x.(string)
	if !ok {
		return x == nil
	}
	raw, err := base64.StdEncoding.DecodeString(s)
	v.SetBytes(raw)
	return err == nil
}

func (b builder) mapping(t reflect.Type) decoder {
	if t.Key().Kind() != reflect.String {
		return never
	}
	decode := b.decoder(t.Elem())
	return func(x any, v reflect.Value) bool {
		from, ok := x.(tree.Object)
		if !ok || from == nil {
			return x == nil
		}
		v.Set(reflect.MakeMapWithSize(t, len(from)))
		key, elem := reflect.New(t.Key()).Elem(), reflect.New(t.Elem()).Elem()
		for name, x := range from {
			elem.SetZero()
			if !decode(x, elem) {
				return false
			}
			key.SetString(name)
			v.SetMapIndex(key, elem)
		}
		return true
	}
}

func (b builder) structure(t reflect.Type) *structure {
	if s := b[t]; s != nil {
		return s
	}
	s := &structure{fields: make(map[string]*fieldOf, t.NumField())}
	b[t] = s
	b.fields(s, t, nil)
	return s
}

// fields adds the fields of t, which is inlined at a place in the structure's own type.
func (b builder) fields(s *structure, t reflect.Type, at []int) {
	for i := range t.NumField() {
		f := t.Field(i)
		here := append(at[:len(at):len(at)], i)
		name := nameOf(f)
		switch _, twice := s.fields[name]; {
		case !f.IsExported(), twice:
			s.strange = true
		case name != "":
			decode := b.decoder(f.Type)
			s.fields[name] = &fieldOf{index: here[0], within: here[1:], decode: decode, inner: b[f.Type]}
		case f.Type.Kind() == reflect.Struct && special[f.Type] == nil && !value.TypeReflectEntryOf(f.Type).CanConvertFromUnstructured():
			b.fields(s, f.Type, here)
		default:
			s.strange = true
		}
	}
}

// nameOf is what a field is called in JSON, "" if it is inlined; as the converter sees it.
func nameOf(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if name == "" && !f.Anonymous {
		return f.Name
	}
	return name
}

func (s *structure) decode(x any, v reflect.Value) bool {
	from, ok := x.(tree.Object)
	if !ok || s.strange {
		return x == nil && !s.strange
	}
	for name, x := range from {
		f, ok := s.fields[name]
		if !ok {
			continue
		}
		if !f.decode(x, f.of(v)) {
			return false
		}
	}
	return true
}

// decodeLike is decode, but for what is the same in the tree like, of which made was made: v
// shares that. It looks depth levels down.
func (s *structure) decodeLike(x any, v reflect.Value, like any, made reflect.Value, depth int) bool {
	from, ok := x.(tree.Object)
	other, okOther := like.(tree.Object)
	if !ok || !okOther || s.strange {
		return s.decode(x, v)
	}
	for name, x := range from {
		f, ok := s.fields[name]
		if !ok {
			continue
		}
		done := false
		switch y, has := other[name]; {
		case !has, !several(x):
			done = f.decode(x, f.of(v))
		case same(x, y):
			f.of(v).Set(f.of(made))
			done = true
		case f.inner != nil && depth > 0:
			done = f.inner.decodeLike(x, f.of(v), y, f.of(made), depth-1)
		default:
			done = f.decode(x, f.of(v))
		}
		if !done {
			return false
		}
	}
	return true
}

// several reports whether x has parts.
func several(x any) bool {
	switch x.(type) {
	case tree.Object, []any:
		return true
	}
	return false
}

// same is tree.Equal, with a look whether they are one: a patch shares what it does not change.
func same(x, y any) bool {
	if a, ok := x.(tree.Object); ok {
		if b, ok := y.(tree.Object); ok && reflect.ValueOf(a).UnsafePointer() == reflect.ValueOf(b).UnsafePointer() {
			return true
		}
	}
	return tree.Equal(x, y)
}

// without is a structure but for one field of its metadata.
func (b builder) without(of *structure, name string) *structure {
	inner := b[reflect.TypeFor[metav1.ObjectMeta]()]
	if f := of.fields["metadata"]; inner == nil || f == nil || f.inner != inner || of.strange {
		return of
	}
	less, meta := *of, *inner
	less.fields, meta.fields = maps.Clone(of.fields), maps.Clone(inner.fields)
	delete(meta.fields, name)
	f := *less.fields["metadata"]
	f.decode, f.inner = meta.decode, &meta
	less.fields["metadata"] = &f
	return &less
}

// special are types that are more often than others what the converter reads as JSON, and maps
// that nearly every object has. What they do not take is read as JSON.
var special = map[reflect.Type]decoder{
	reflect.TypeFor[metav1.Time](): func(x any, v reflect.Value) bool {
		if t, ok := timeOf(x, time.RFC3339); ok {
			v.Addr().Interface().(*metav1.Time).Time = t
			return true
		}
		return asJSON(x, v)
	},
	reflect.TypeFor[metav1.MicroTime](): func(x any, v reflect.Value) bool {
		if t, ok := timeOf(x, metav1.RFC3339Micro); ok {
			v.Addr().Interface().(*metav1.MicroTime).Time = t
			return true
		}
		return asJSON(x, v)
	},
	reflect.TypeFor[resource.Quantity](): func(x any, v reflect.Value) bool {
		return decodeQuantity(x, v.Addr().Interface().(*resource.Quantity)) || asJSON(x, v)
	},
	reflect.TypeFor[intstr.IntOrString](): func(x any, v reflect.Value) bool {
		to := v.Addr().Interface().(*intstr.IntOrString)
		switch x := x.(type) {
		case string:
			if utf8.ValidString(x) {
				*to = intstr.FromString(x)
				return true
			}
		case int64:
			if x >= math.MinInt32 && x <= math.MaxInt32 {
				*to = intstr.FromInt32(int32(x))
				return true
			}
		}
		return asJSON(x, v)
	},
	reflect.TypeFor[map[string]string](): func(x any, v reflect.Value) bool {
		from, ok := x.(tree.Object)
		if !ok || from == nil {
			return x == nil
		}
		to := make(map[string]string, len(from))
		for name, x := range from {
			s, ok := x.(string)
			if !ok && x != nil {
				return false
			}
			to[name] = s
		}
		*v.Addr().Interface().(*map[string]string) = to
		return true
	},
	reflect.TypeFor[corev1.ResourceList](): func(x any, v reflect.Value) bool {
		from, ok := x.(tree.Object)
		if !ok || from == nil {
			return x == nil
		}
		to := make(corev1.ResourceList, len(from))
		for name, x := range from {
			var q resource.Quantity
			if !decodeQuantity(x, &q) {
				return false
			}
			to[corev1.ResourceName(name)] = q
		}
		*v.Addr().Interface().(*corev1.ResourceList) = to
		return true
	},
}

func timeOf(x any, layout string) (time.Time, bool) {
	s, ok := x.(string)
	if !ok {
		return time.Time{}, false
	}
	t, err := time.Parse(layout, s)
	return t.Local(), err == nil
}

func decodeQuantity(x any, to *resource.Quantity) bool {
	s, ok := x.(string)
	if !ok {
		return x == nil
	}
	q, err := resource.ParseQuantity(s)
	*to = q
	return err == nil
}
