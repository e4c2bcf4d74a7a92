package fieldmanager

import (
	"reflect"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	smdschema "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// path is where a field is, its elements as managedFields write them: f:spec,
// k:{"name":"x"}, v:"x".
type path []string

// leaf is a field without fields of its own in a set. It is shared and never
// changed.
var leaf = map[string]any{}

// atomOf is the type of a value. ok is false where the value says nothing of it.
func (m *Manager) atomOf(ref smdschema.TypeRef, v any) (atom smdschema.Atom, ok bool) {
	a, ok := m.schema.Resolve(ref)
	if !ok {
		return a, false
	}
	switch v.(type) {
	case map[string]any:
		return smdschema.Atom{Map: a.Map}, a.Map != nil
	case []any:
		return smdschema.Atom{List: a.List}, a.List != nil
	case nil:
		return a, false
	}
	return smdschema.Atom{Scalar: a.Scalar}, a.Scalar != nil
}

func fieldType(t *smdschema.Map, name string) smdschema.TypeRef {
	if f, ok := t.FindField(name); ok {
		return f.Type
	}
	return t.ElementType
}

// ignored reports whether a field cannot be owned, by its place.
func (m *Manager) ignored(depth int, parent, name string) bool {
	switch depth {
	case 0:
		return name == "kind" || name == "apiVersion" || m.reset[name]
	case 1:
		return parent == "metadata" && unmanaged[name]
	}
	return false
}

// everything is the set of all fields of a new object, or nil if it has none.
func (m *Manager) everything(obj map[string]any) (fields map[string]any, ok bool) {
	a, ok := m.atomOf(m.root, obj)
	if !ok {
		return nil, false
	}
	return m.addedMap(a.Map, obj, m.zero, 0, "")
}

// added is the set of a value and all below it. zero is what is there when nothing
// has been set; where it is anything, the value itself is not part of the set.
func (m *Manager) added(ref smdschema.TypeRef, v, zero any, exists bool, depth int, name string) (fields map[string]any, ok bool) {
	if v == nil {
		if exists && zero == nil {
			return nil, true
		}
		return leaf, true
	}
	a, ok := m.atomOf(ref, v)
	if !ok {
		return nil, false
	}
	atomic := false
	switch {
	case a.Scalar != nil:
		if exists && equal(v, zero) {
			return nil, true
		}
		return leaf, true
	case a.List != nil:
		list := v.([]any)
		if atomic = a.List.ElementRelationship == smdschema.Atomic; atomic || len(list) == 0 {
			break
		}
		fields, ok = m.addedList(a.List, list)
		if fields != nil && !exists {
			fields["."] = leaf
		}
		return fields, ok
	case a.Map != nil:
		obj := v.(map[string]any)
		if atomic = a.Map.ElementRelationship == smdschema.Atomic; atomic || len(obj) == 0 {
			break
		}
		below, _ := zero.(map[string]any)
		fields, ok = m.addedMap(a.Map, obj, below, depth, name)
		if ok && !exists {
			if fields == nil {
				fields = map[string]any{}
			}
			fields["."] = leaf
		}
		return fields, ok
	}
	switch {
	case !exists:
		return leaf, true
	case equal(v, zero):
		return nil, true
	case atomic || zero == nil:
		return leaf, true // one value for another
	}
	return nil, false
}

// inItem is a depth at which no field is ignored.
const inItem = 1 << 10

func (m *Manager) addedMap(t *smdschema.Map, obj, zero map[string]any, depth int, name string) (fields map[string]any, ok bool) {
	for key, v := range obj {
		if m.ignored(depth, name, key) {
			continue
		}
		z, exists := zero[key]
		below, ok := m.added(fieldType(t, key), v, z, exists, depth+1, key)
		if !ok {
			return nil, false
		}
		if below == nil {
			continue
		}
		if fields == nil {
			fields = make(map[string]any, len(obj)+1)
		}
		fields["f:"+key] = below
	}
	return fields, true
}

func (m *Manager) addedList(t *smdschema.List, list []any) (fields map[string]any, ok bool) {
	fields = make(map[string]any, len(list)+1)
	for _, v := range list {
		key, ok := elementOf(t, v)
		if !ok || fields[key] != nil {
			return nil, false
		}
		below, ok := m.added(t.ElementType, v, nil, false, inItem, "")
		if !ok {
			return nil, false
		}
		fields[key] = below
	}
	return fields, true
}

// elementOf names an item of a list that is a set or a map.
func elementOf(t *smdschema.List, v any) (string, bool) {
	var pe fieldpath.PathElement
	if len(t.Keys) == 0 {
		switch v.(type) {
		case map[string]any, []any, nil:
			return "", false
		}
		x := value.NewValueInterface(v)
		pe.Value = &x
	} else {
		item, ok := v.(map[string]any)
		if !ok {
			return "", false
		}
		keys := make(value.FieldList, 0, len(t.Keys))
		for _, name := range t.Keys {
			k, ok := item[name]
			if !ok {
				return "", false // it may have a default
			}
			keys = append(keys, value.Field{Name: name, Value: value.NewValueInterface(k)})
		}
		keys.Sort()
		pe.Key = &keys
	}
	s, err := fieldpath.SerializePathElement(pe)
	return s, err == nil
}

// changes returns the fields that have another value in obj than in live. ok is false
// if fields were added or removed, or if it cannot tell.
func (m *Manager) changes(live, obj map[string]any) (changed []path, ok bool) {
	a, ok := m.atomOf(m.root, obj)
	if !ok {
		return nil, false
	}
	d := differ{m: m}
	ok = d.maps(a.Map, live, obj, "")
	return d.changed, ok
}

// differ compares two objects field by field.
type differ struct {
	m       *Manager
	at      path
	changed []path
}

func (d *differ) note() { d.changed = append(d.changed, append(path(nil), d.at...)) }

func (d *differ) values(ref smdschema.TypeRef, a, b any, name string) bool {
	if same(a, b) {
		return true
	}
	atom, ok := d.m.atomOf(ref, b)
	if !ok {
		return false
	}
	switch {
	case atom.Map != nil:
		x, ok := a.(map[string]any)
		y := b.(map[string]any)
		if !ok {
			return false
		}
		if atom.Map.ElementRelationship != smdschema.Atomic && (len(x) > 0 || len(y) > 0) {
			return d.maps(atom.Map, x, y, name)
		}
	case atom.List != nil:
		x, ok := a.([]any)
		y := b.([]any)
		if !ok {
			return false
		}
		if atom.List.ElementRelationship != smdschema.Atomic && (len(x) > 0 || len(y) > 0) {
			return d.lists(atom.List, x, y)
		}
	default:
		switch a.(type) {
		case map[string]any, []any, nil:
			return false
		}
	}
	if !equal(a, b) {
		d.note()
	}
	return true
}

func (d *differ) maps(t *smdschema.Map, a, b map[string]any, parent string) bool {
	depth := len(d.at)
	for key := range a {
		if _, ok := b[key]; !ok && !d.m.ignored(depth, parent, key) {
			return false
		}
	}
	for key, y := range b {
		if d.m.ignored(depth, parent, key) {
			continue
		}
		x, ok := a[key]
		if !ok {
			return false
		}
		if same(x, y) {
			continue
		}
		d.at = append(d.at, "f:"+key)
		ok = d.values(fieldType(t, key), x, y, key)
		d.at = d.at[:depth]
		if !ok {
			return false
		}
	}
	return true
}

// lists compares lists whose items are the same, in the same order.
func (d *differ) lists(t *smdschema.List, a, b []any) bool {
	if len(a) != len(b) {
		return false
	}
	depth := len(d.at)
	for i := range b {
		if same(a[i], b[i]) || equal(a[i], b[i]) {
			continue
		}
		before, ok := elementOf(t, a[i])
		if !ok {
			return false
		}
		if after, ok := elementOf(t, b[i]); !ok || after != before {
			return false
		}
		d.at = append(d.at, before)
		ok = d.values(t.ElementType, a[i], b[i], "")
		d.at = d.at[:depth]
		if !ok {
			return false
		}
	}
	return true
}

// same reports whether two values are the same memory, as they mostly are after a
// patch, or equal scalars.
func same(a, b any) bool {
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		return ok && len(x) == len(y) && reflect.ValueOf(x).Pointer() == reflect.ValueOf(y).Pointer()
	case []any:
		y, ok := b.([]any)
		return ok && len(x) == len(y) && (len(x) == 0 || &x[0] == &y[0])
	}
	switch b.(type) {
	case map[string]any, []any:
		return false
	}
	return a == b
}

// equal compares decoded JSON.
func equal(a, b any) bool {
	if same(a, b) {
		return true
	}
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for k, v := range x {
			if w, ok := y[k]; !ok || !equal(v, w) {
				return false
			}
		}
		return true
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for i := range x {
			if !equal(x[i], y[i]) {
				return false
			}
		}
		return true
	}
	return false
}
