package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"sync"
)

// fitter is one walk of Fit. It keeps the path to where it is, and makes text
// of it only when there is something to say.
type fitter struct {
	path    []step
	unknown []string
	keep    bool     // what upstream's types would not write
	emptied *Emptied // nil: nobody asks
}

// step is a field, a map key (owner is nil) or, with an empty name, an index.
type step struct {
	name  string
	owner *node // the struct whose field this is
	index int
	place int32 // among those of something empty, 0: it is not there yet
}

// maxSteps bounds how deep an object may be. Models are not, but for the schema of a definition,
// which may have others in it. What is said of a value names its path, so texts of a deep object grow
// with the square of its depth: 126 KB of a definition became 1.7 GB of them.
const maxSteps = 1000

// ErrTooDeep is returned for an object that is deeper than any that could be meant.
var ErrTooDeep = errors.New("exceeded max depth")

var fitters = sync.Pool{New: func() any { return &fitter{path: make([]step, 0, 32)} }}

func (m *Model) fit(obj map[string]any, keep bool, emptied *Emptied) ([]string, error) {
	w := fitters.Get().(*fitter)
	w.keep, w.emptied = keep, emptied
	err := w.object(m.root, obj)
	unknown := w.unknown
	w.path, w.unknown, w.emptied = w.path[:0], nil, nil
	fitters.Put(w)
	sort.Strings(unknown)
	return unknown, err
}

// object fits the fields of a struct.
func (w *fitter) object(n *node, obj map[string]any) error {
	if n.shape != shapeStruct {
		return nil
	}
	top := len(w.path)
	if top >= maxSteps {
		return ErrTooDeep
	}
	w.path = append(w.path, step{owner: n})
	for key, v := range obj {
		w.path[top].name, w.path[top].place = key, 0
		f := n.fields[key]
		switch {
		case f == nil && top == 0 && (key == "kind" || key == "apiVersion"):
		case f == nil:
			w.unknown = append(w.unknown, w.text(true))
			delete(obj, key)
		case v == nil:
			delete(obj, key)
		default:
			fitted, changed, err := w.value(f.node, v)
			if err != nil {
				return err
			}
			switch {
			case !w.keep && (f.drops(fitted) || f.managers && top > 1 && isZero(fitted)):
				w.noteEmpty(v)
				delete(obj, key)
			case f.emptied && isZero(fitted):
				w.noteEmpty(v)
			case changed:
				obj[key] = fitted
			}
		}
	}
	w.path = w.path[:top]
	return nil
}

// value fits one value. changed says that fitted has to take its place.
func (w *fitter) value(n *node, v any) (fitted any, changed bool, err error) {
	switch n.shape {
	case shapeAny:
		return v, false, nil
	case shapeStruct:
		if obj, ok := v.(map[string]any); ok {
			return v, false, w.object(n, obj)
		}
	case shapeMap:
		if obj, ok := v.(map[string]any); ok {
			return v, false, w.entries(n, obj)
		}
	case shapeList:
		if list, ok := v.([]any); ok {
			return v, false, w.items(n, list)
		}
	case shapeString:
		if _, ok := v.(string); ok {
			return v, false, nil
		}
	case shapeBool:
		if _, ok := v.(bool); ok {
			return v, false, nil
		}
	default:
		fitted, changed, err = fitScalar(n.shape, v)
		if err != errMismatch {
			return fitted, changed, err
		}
	}
	return nil, false, w.mismatch(n, v)
}

func (w *fitter) entries(n *node, obj map[string]any) error {
	if n.elem.shape == shapeAny {
		return nil
	}
	top := len(w.path)
	w.path = append(w.path, step{})
	for key, v := range obj {
		w.path[top].name, w.path[top].place = key, 0
		if v == nil {
			obj[key] = n.elem.zero()
			continue
		}
		fitted, changed, err := w.value(n.elem, v)
		if err != nil {
			return err
		}
		if changed {
			obj[key] = fitted
		}
	}
	w.path = w.path[:top]
	return nil
}

func (w *fitter) items(n *node, list []any) error {
	if n.elem.shape == shapeAny {
		return nil
	}
	top := len(w.path)
	w.path = append(w.path, step{})
	for i, v := range list {
		w.path[top].index, w.path[top].place = i, 0
		if v == nil {
			list[i] = n.elem.zero()
			continue
		}
		fitted, changed, err := w.value(n.elem, v)
		if err != nil {
			return err
		}
		if changed {
			list[i] = fitted
		}
	}
	w.path = w.path[:top]
	return nil
}

// zero is what a null becomes where a value has to stay: in lists and maps, as
// it does in Go.
func (n *node) zero() any {
	switch n.shape {
	case shapeStruct, shapeMap:
		return map[string]any{}
	case shapeList:
		return []any{}
	case shapeString, shapeBytes:
		return ""
	case shapeBool:
		return false
	case shapeInt32, shapeInt64, shapeIntOrString:
		return int64(0)
	case shapeFloat:
		return float64(0)
	case shapeQuantity:
		return "0"
	}
	return nil
}

// mismatch is the error of Go's JSON decoder for a value of another type. It
// names the innermost struct and the path of field names from the top.
func (w *fitter) mismatch(n *node, v any) error {
	got := describe(v, n.shape)
	owner := ""
	for i := len(w.path) - 1; i >= 0; i-- {
		if w.path[i].owner != nil {
			owner = w.path[i].owner.structName()
			break
		}
	}
	return &MismatchError{
		said: fmt.Sprintf("json: cannot unmarshal %s into Go struct field %s.%s of type %s", got, owner, w.text(false), n.goType),
		want: n, value: v,
	}
}

// MismatchError says that a value is not of its field's type, in the words of Go's JSON decoder.
type MismatchError struct {
	said  string
	want  *node
	value any
}

func (e *MismatchError) Error() string { return e.said }

// Unstructured says it in the words of apimachinery's converter of unstructured objects, which
// upstream decodes with what a strategic merge patch has made. It names no field.
func (e *MismatchError) Unstructured() string {
	got := reflect.TypeOf(e.value).Kind()
	if _, ok := e.value.(json.Number); ok {
		got = reflect.Float64
	}
	switch e.want.shape {
	case shapeStruct:
		return fmt.Sprintf("cannot restore struct from: %s", got)
	case shapeMap:
		return fmt.Sprintf("cannot restore map from %s", got)
	case shapeList, shapeBytes:
		return fmt.Sprintf("cannot restore slice from %s", got)
	case shapeString:
		if got == reflect.Int64 { // which Go would convert to a character
			return "cannot convert int64 to " + e.want.goType
		}
		return "unrecognized type: string"
	case shapeBool:
		return "unrecognized type: bool"
	case shapeInt32, shapeInt64, shapeFloat:
		if got == reflect.Float64 {
			return "cannot convert float64 to " + e.want.goType
		}
		return "unrecognized type: " + e.want.goType
	case shapeIntOrString: // which reads JSON by itself, without knowing the field
		return fmt.Sprintf("json: cannot unmarshal %s into Go value of type %s", describe(e.value, e.want.shape), e.want.goType)
	}
	return e.said // a type that reads JSON by itself, there too
}

// describe names a JSON value as Go's decoder does: numbers with their digits
// when a number was expected.
func describe(v any, want shape) string {
	number := want == shapeInt32 || want == shapeInt64 || want == shapeIntOrString
	switch x := v.(type) {
	case string:
		return "string"
	case bool:
		return "bool"
	case map[string]any:
		return "object"
	case []any:
		return "array"
	case int64:
		if number {
			return "number " + strconv.FormatInt(x, 10)
		}
	case float64:
		if number {
			return "number " + strconv.FormatFloat(x, 'g', -1, 64)
		}
	case json.Number:
		if number || want == shapeFloat {
			return "number " + x.String()
		}
	}
	return "number"
}

// text joins the path; indexes are left out where Go's decoder leaves them out.
func (w *fitter) text(indexes bool) string {
	var b strings.Builder
	for _, s := range w.path {
		if s.name == "" && s.owner == nil {
			if indexes {
				b.WriteByte('[')
				b.WriteString(strconv.Itoa(s.index))
				b.WriteByte(']')
			}
			continue
		}
		if s.owner == nil && !indexes {
			continue // Go's decoder does not name map keys either
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(s.name)
	}
	return b.String()
}
