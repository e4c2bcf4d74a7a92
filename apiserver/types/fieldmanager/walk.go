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

// place says which fields a walk has to ignore where it is.
type place uint8

const (
	atRoot     place = iota
	inMetadata       // of the object itself
	inside           // anywhere else: nothing is ignored
)

// below is the place of a field's value.
func (p place) below(name string) place {
	if p == atRoot && name == "metadata" {
		return inMetadata
	}
	return inside
}

// ignored reports whether a field cannot be owned, by its place.
func (m *Manager) ignored(at place, name string) bool {
	switch at {
	case atRoot:
		return name == "kind" || name == "apiVersion" || m.reset[name]
	case inMetadata:
		return unmanaged[name] || m.resetMeta[name]
	}
	return false
}

// everything is the set of all fields of a new object, or nil if it has none.
func (m *Manager) everything(obj map[string]any) (fields map[string]any, ok bool) {
	a, ok := m.atomOf(m.root, obj)
	if !ok {
		return nil, false
	}
	return m.addedMap(a.Map, obj, m.zero, atRoot)
}

// unset is what is in a field's place when nothing has been set: a value, perhaps null,
// or no field at all. Where it is anything, the field itself is not part of the set.
type unset struct {
	value  any
	exists bool
}

// added is the set of a value and all below it.
func (m *Manager) added(ref smdschema.TypeRef, v any, before unset, at place) (fields map[string]any, ok bool) {
	if v == nil {
		return before.changedTo(nil, true)
	}
	a, ok := m.atomOf(ref, v)
	switch {
	case !ok:
		return nil, false
	case a.Scalar != nil:
		return before.changedTo(v, true)
	case a.List != nil:
		list := v.([]any)
		atomic := a.List.ElementRelationship == smdschema.Atomic
		if atomic || len(list) == 0 {
			return before.changedTo(v, atomic)
		}
		fields, ok = m.addedList(a.List, list)
	default:
		obj := v.(map[string]any)
		atomic := a.Map.ElementRelationship == smdschema.Atomic
		if atomic || len(obj) == 0 {
			return before.changedTo(v, atomic)
		}
		below, _ := before.value.(map[string]any)
		fields, ok = m.addedMap(a.Map, obj, below, at)
	}
	if ok && !before.exists {
		if fields == nil {
			fields = make(map[string]any, 1)
		}
		fields["."] = leaf
	}
	return fields, ok
}

// changedTo is the set of a value that is set as a whole: a leaf, or nil if it is there
// already. One value may take the place of another, but an empty list or object that
// is merged field by field (not whole) leaves what is there to the library.
func (u unset) changedTo(v any, whole bool) (fields map[string]any, ok bool) {
	switch {
	case !u.exists:
		return leaf, true
	case equal(v, u.value):
		return nil, true
	case whole || u.value == nil:
		return leaf, true
	}
	return nil, false
}

func (m *Manager) addedMap(t *smdschema.Map, obj, zero map[string]any, at place) (fields map[string]any, ok bool) {
	for key, v := range obj {
		if m.ignored(at, key) {
			continue
		}
		z, exists := zero[key]
		below, ok := m.added(fieldType(t, key), v, unset{z, exists}, at.below(key))
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
		below, ok := m.added(t.ElementType, v, unset{}, inside)
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
	ok = d.maps(a.Map, live, obj, atRoot)
	return d.changed, ok
}

// differ compares two objects field by field.
type differ struct {
	m       *Manager
	at      path
	changed []path
}

func (d *differ) note() { d.changed = append(d.changed, append(path(nil), d.at...)) }

func (d *differ) values(ref smdschema.TypeRef, a, b any, at place) bool {
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
		if atom.Map.ElementRelationship != smdschema.Atomic {
			return d.maps(atom.Map, x, y, at)
		}
	case atom.List != nil:
		x, ok := a.([]any)
		y := b.([]any)
		if !ok {
			return false
		}
		if atom.List.ElementRelationship != smdschema.Atomic {
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

func (d *differ) maps(t *smdschema.Map, a, b map[string]any, at place) bool {
	depth := len(d.at)
	for key := range a {
		if _, ok := b[key]; !ok && !d.m.ignored(at, key) {
			return false
		}
	}
	for key, y := range b {
		if d.m.ignored(at, key) {
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
		ok = d.values(fieldType(t, key), x, y, at.below(key))
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
		if equal(a[i], b[i]) {
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
		ok = d.values(t.ElementType, a[i], b[i], inside)
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
