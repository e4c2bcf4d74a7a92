// Package tree knows decoded objects: how to read and change them without a type of
// their own, the rules of their metadata, and how a condition is set.
//
// The types to know:
//
//   - Object is a decoded object. It is an alias: every package may write out the map,
//     and nothing is converted on the way from the decoder to the encoder.
//
// Trees share their parts: a patch copies only the maps on its way, and an object that
// was defaulted shares what was there before. So code that changes a value below the first
// level copies the maps down to it (Clone, WithOwnMeta, Set) and replaces them.
//
// The functions are pure. Those that read take what is not there for empty; they allocate
// nothing, but for the text of a number. It imports nothing of ours: what a kind's data say is given as an argument.
package tree

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Object is a decoded object: map[string]any, []any, string, bool, int64, float64, nil.
type Object = map[string]any

// As returns v as an object, nil if it is none.
func As(v any) Object {
	m, _ := v.(Object)
	return m
}

// List returns v as a list, nil if it is none.
func List(v any) []any {
	l, _ := v.([]any)
	return l
}

// Text returns the string in a field, "" if there is none.
func Text(m Object, name string) string {
	s, _ := m[name].(string)
	return s
}

// Scalar returns a string, boolean or number as field selectors and table cells spell
// it, "" for anything else.
func Scalar(v any) string {
	switch x := v.(type) {
	case string:
		return x
	case bool:
		return strconv.FormatBool(x)
	case int64:
		return strconv.FormatInt(x, 10)
	case float64:
		return strconv.FormatFloat(x, 'f', -1, 64)
	}
	return ""
}

// Int returns v as a whole number.
func Int(v any) (int64, bool) {
	switch n := v.(type) {
	case int64:
		return n, true
	case float64:
		return int64(n), n == float64(int64(n))
	}
	return 0, false
}

// Strings returns a list of strings; ok is false if v is none.
func Strings(v any) (out []string, ok bool) {
	list, ok := v.([]any)
	if !ok {
		return nil, false
	}
	out = make([]string, len(list))
	for i := range list {
		if out[i], ok = list[i].(string); !ok {
			return nil, false
		}
	}
	return out, true
}

// FromStrings is the opposite of Strings.
func FromStrings[T ~string](list []T) []any {
	out := make([]any, len(list))
	for i, s := range list {
		out[i] = string(s)
	}
	return out
}

// Field follows field names; nil if it ends early.
func Field(v any, path ...string) any {
	for _, name := range path {
		m, ok := v.(Object)
		if !ok {
			return nil
		}
		v = m[name]
	}
	return v
}

// Lookup is Field with a dotted path, which may begin with a dot.
func Lookup(obj Object, path string) any {
	var at any = obj
	for part := range strings.SplitSeq(strings.TrimPrefix(path, "."), ".") {
		m, ok := at.(Object)
		if !ok {
			return nil
		}
		at = m[part]
	}
	return at
}

// Set sets the value at a dotted path; the maps on the way are copied. The error says
// which of them is no object; obj is as it was then.
func Set(obj Object, path string, value any) error {
	parts := strings.Split(strings.TrimPrefix(path, "."), ".")
	for _, part := range parts[:len(parts)-1] {
		if _, ok := obj[part].(Object); !ok && obj[part] != nil {
			return fmt.Errorf("%s is not an object", part)
		}
		inner := Clone(obj[part])
		obj[part] = inner
		obj = inner
	}
	obj[parts[len(parts)-1]] = value
	return nil
}

// Clone returns a copy of an object whose values are shared; an empty one if v is none.
func Clone(v any) Object {
	if m := maps.Clone(As(v)); m != nil {
		return m
	}
	return Object{}
}

// CopyField makes a field of obj what it is in from, or takes it out.
func CopyField(obj, from Object, name string) {
	if v, ok := from[name]; ok {
		obj[name] = v
	} else {
		delete(obj, name)
	}
}

// SetList sets a list; an empty one is left out.
func SetList(m Object, name string, list []any) {
	if len(list) == 0 {
		delete(m, name)
		return
	}
	m[name] = list
}

// Meta returns an object's metadata, made if absent. Package schema has
// checked the types of what is in it, for models that describe it; custom
// resources and hand-made trees get the same refusal here.
func Meta(obj Object) (Object, error) {
	switch m := obj["metadata"].(type) {
	case nil:
		meta := Object{}
		obj["metadata"] = meta
		return meta, nil
	case Object:
		return m, nil
	}
	return nil, apierrors.NewBadRequest("metadata must be an object")
}

// WithOwnMeta returns a copy of an object with metadata of its own, so that one
// attempt of a write leaves nothing behind for the next. Errors: Meta's.
func WithOwnMeta(obj Object) (work, meta Object, err error) {
	has, err := Meta(obj)
	if err != nil {
		return nil, nil, err
	}
	work, meta = maps.Clone(obj), maps.Clone(has)
	work["metadata"] = meta
	return work, meta, nil
}

// Equal compares decoded JSON. An absent field and an empty list or object
// differ: what is stored differs too. Numbers are compared by their values.
func Equal(a, b any) bool {
	switch a := a.(type) {
	case Object:
		b, ok := b.(Object)
		if !ok || len(a) != len(b) {
			return false
		}
		for k, v := range a {
			w, ok := b[k]
			if !ok || !Equal(v, w) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, Equal)
	case int64:
		switch b := b.(type) {
		case int64:
			return a == b
		case float64:
			return float64(a) == b
		}
		return false
	case float64:
		if b, ok := b.(int64); ok {
			return a == float64(b)
		}
	case json.RawMessage:
		b, ok := b.(json.RawMessage)
		return ok && bytes.Equal(a, b)
	}
	return a == b
}
