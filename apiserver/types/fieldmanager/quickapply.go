package fieldmanager

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	smdschema "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// quickApply merges a configuration that drops nothing of what its manager has applied
// before, and whose fields are all there: what controllers send all day. Then nothing
// is added or removed, and the merge only gives some fields other values. If they are
// somebody else's too, force takes them away there. Not ok: it is for the library,
// conflicts and everything wrong included.
func (m *Manager) quickApply(live, patch map[string]any, manager string, force bool) (out map[string]any, ok bool) {
	liveMeta, _ := live["metadata"].(map[string]any)
	entries, _ := liveMeta["managedFields"].([]any)
	if !m.mergeable(live, liveMeta, patch) || len(entries) == 0 {
		return nil, false
	}
	fields, ok := m.configured(m.root, patch, false, atRoot)
	if !ok || fields == nil {
		return nil, false
	}
	w := merger{m: m}
	merged, ok := w.value(m.root, live, patch, atRoot)
	if !ok {
		return nil, false
	}
	if entries, ok = m.take(entries, application{manager: manager, force: force, fields: fields, changed: w.changed}); !ok {
		return nil, false
	}
	out = maps.Clone(merged.(map[string]any))
	outMeta := maps.Clone(out["metadata"].(map[string]any))
	outMeta["managedFields"] = entries
	out["metadata"] = outMeta
	return out, true
}

// mergeable reports whether a configuration is of this kind and version, and has nothing that is
// merged but not owned, or kept up to date on the way.
func (m *Manager) mergeable(live, liveMeta, patch map[string]any) bool {
	meta, _ := patch["metadata"].(map[string]any)
	if patch["apiVersion"] != m.apiVersion || patch["kind"] != m.of.Kind {
		return false
	}
	if annotations, _ := liveMeta["annotations"].(map[string]any); annotations[corev1.LastAppliedConfigAnnotation] != nil {
		return false
	}
	if _, sent := meta["managedFields"]; sent {
		return false
	}
	for name, v := range meta {
		if unmanaged[name] && !equal(v, liveMeta[name]) || m.resetMeta[name] {
			return false
		}
	}
	for name := range m.reset {
		if v, sent := patch[name]; sent {
			_, there := live[name].(map[string]any)
			if part, ok := v.(map[string]any); !ok || len(part) > 0 || !there {
				return false
			}
		}
	}
	return true
}

// configured is the set of what a configuration names; nil if that is nothing. itself:
// a value here is in the set also if it has fields of its own there. So are items of
// lists, and what a map's keys lead to.
func (m *Manager) configured(ref smdschema.TypeRef, v any, itself bool, at place) (fields map[string]any, ok bool) {
	atom, ok := m.atomOf(ref, v)
	switch {
	case !ok:
		return nil, false
	case atom.Scalar != nil:
		return leaf, isScalar(*atom.Scalar, v)
	case atom.List != nil:
		if atom.List.ElementRelationship == smdschema.Atomic {
			for _, item := range v.([]any) { // the list is one field, but what is in it must fit
				if _, ok := m.configured(atom.List.ElementType, item, false, inside); !ok {
					return nil, false
				}
			}
			return leaf, true
		}
		fields, ok = m.configuredList(atom.List, v.([]any))
	default:
		obj := v.(map[string]any)
		if atom.Map.ElementRelationship == smdschema.Atomic || len(obj) == 0 {
			_, ok := m.configuredMap(atom.Map, obj, at)
			return leaf, ok
		}
		fields, ok = m.configuredMap(atom.Map, obj, at)
	}
	if ok && itself {
		if fields == nil {
			return leaf, true // all that it names is ignored
		}
		fields["."] = leaf
	}
	return fields, ok
}

// configuredMap is the set of what a map's fields name, nil if that is nothing.
func (m *Manager) configuredMap(t *smdschema.Map, obj map[string]any, at place) (fields map[string]any, ok bool) {
	for key, v := range obj {
		if m.ignored(at, key) {
			continue
		}
		_, known := t.FindField(key)
		in := at.below(key)
		below, ok := m.configured(fieldType(t, key), v, !known, in)
		if !ok {
			return nil, false
		}
		if len(below) == 0 && in == inMetadata {
			continue // nobody owns the metadata as a whole
		}
		if fields == nil {
			fields = make(map[string]any, len(obj)+1)
		}
		fields["f:"+key] = below
	}
	return fields, true
}

// configuredList is the set of a list's items. Not ok: it has none, or one of them twice.
func (m *Manager) configuredList(t *smdschema.List, list []any) (fields map[string]any, ok bool) {
	if len(list) == 0 {
		return nil, false
	}
	fields = make(map[string]any, len(list)+1)
	for _, v := range list {
		element, ok := elementOf(t, v)
		if !ok || fields[element] != nil {
			return nil, false
		}
		if fields[element], ok = m.configured(t.ElementType, v, true, inside); !ok {
			return nil, false
		}
	}
	return fields, true
}

// isScalar reports whether a value is of a scalar type.
func isScalar(t smdschema.Scalar, v any) (ok bool) {
	switch t {
	case smdschema.String:
		_, ok = v.(string)
	case smdschema.Boolean:
		_, ok = v.(bool)
	case smdschema.Numeric:
		switch v.(type) {
		case int64, float64:
			ok = true
		}
	default:
		ok = true
	}
	return ok
}

// application is what an apply does to managedFields.
type application struct {
	manager string
	force   bool           // takes what others own
	fields  map[string]any // the set of the configuration
	changed []path         // what it gave other values
}

// take gives the fields of a configuration to its manager, and takes those that have
// changed away from others. ok is false where that is more than this, or a conflict.
func (m *Manager) take(entries []any, a application) (out []any, ok bool) {
	var mine map[string]any // the manager's entry as it was
	out = make([]any, 0, len(entries)+1)
	for _, e := range entries {
		entry, _ := e.(map[string]any)
		theirs, _ := entry["fieldsV1"].(map[string]any)
		switch {
		case theirs == nil || entry["apiVersion"] != m.apiVersion:
			return nil, false
		case m.isEntry(entry, a.manager, metav1.ManagedFieldsOperationApply):
			if mine != nil || !subset(theirs, a.fields) {
				return nil, false
			}
			mine = entry
			continue
		}
		left, ok := a.leaves(theirs)
		switch {
		case !ok:
			return nil, false
		case left == nil:
			continue
		case !same(left, theirs):
			entry = maps.Clone(entry)
			entry["fieldsV1"] = left
		}
		out = append(out, entry)
	}
	if mine != nil && len(a.changed) == 0 && equal(mine["fieldsV1"], a.fields) {
		return entries, true
	}
	entry := m.entry(a.manager, a.fields)
	entry["operation"] = string(metav1.ManagedFieldsOperationApply)
	out = append(out, entry)
	slices.SortFunc(out, byTime)
	return out, true
}

// leaves is what of another manager's fields is still that one's, nil if nothing is. Not
// ok: it is a conflict, or only the library can tell.
func (a application) leaves(theirs map[string]any) (left map[string]any, ok bool) {
	left, there := theirs, true
	for _, p := range a.changed {
		// What is left says less of it: a field may look as if it had none of its own now.
		switch owned, clear := owns(theirs, p); {
		case !clear || owned && !a.force:
			return nil, false
		case owned:
			if left, there = without(left, p); !there {
				return nil, true
			}
		}
	}
	return left, true
}

// subset reports whether all of a set, as stored, is in another.
func subset(a, b map[string]any) bool {
	if len(a) == 0 {
		// A field without fields of its own is in the other if that has the field itself.
		return len(b) == 0 || b["."] != nil
	}
	for element, x := range a {
		below, ok := x.(map[string]any)
		other, ok2 := b[element].(map[string]any)
		if !ok || !ok2 || element != "." && !subset(below, other) {
			return false
		}
	}
	return true
}

// without returns a set that lacks a field, and what led to this field alone. Not
// there: nothing is left. The set itself is not changed.
func without(fields map[string]any, p path) (out map[string]any, there bool) {
	if len(p) == 0 {
		out = maps.Clone(fields)
		delete(out, ".")
		return out, len(out) > 0
	}
	below, _ := fields[p[0]].(map[string]any)
	left, there := without(below, p[1:])
	out = maps.Clone(fields)
	if there {
		out[p[0]] = left
		return out, true
	}
	delete(out, p[0])
	if len(out) == 1 && out["."] != nil {
		return leaf, true // a field without fields of its own
	}
	return out, len(out) > 0
}

// merger merges a configuration into a live object. Live values are not changed: what
// is on the way to a change is copied.
type merger struct {
	m       *Manager
	at      path
	changed []path
}

// value merges v into live.
func (w *merger) value(ref smdschema.TypeRef, live, v any, at place) (any, bool) {
	atom, ok := w.m.atomOf(ref, v)
	if !ok {
		return nil, false
	}
	switch {
	case atom.Map != nil:
		x, ok := live.(map[string]any)
		if !ok {
			return nil, false
		}
		if atom.Map.ElementRelationship != smdschema.Atomic {
			return w.maps(atom.Map, x, v.(map[string]any), at)
		}
	case atom.List != nil:
		x, ok := live.([]any)
		if !ok {
			return nil, false
		}
		if atom.List.ElementRelationship != smdschema.Atomic {
			return w.lists(atom.List, x, v.([]any))
		}
	default:
		switch live.(type) {
		case map[string]any, []any, nil:
			return nil, false
		}
	}
	if value.Equals(value.NewValueInterface(live), value.NewValueInterface(v)) {
		return live, true // 1 is 1.0
	}
	w.changed = append(w.changed, slices.Clone(w.at))
	return runtime.DeepCopyJSONValue(v), true
}

func (w *merger) maps(t *smdschema.Map, live, v map[string]any, at place) (any, bool) {
	out := live
	for key, y := range v {
		if w.m.ignored(at, key) {
			continue
		}
		x, ok := live[key]
		if !ok {
			return nil, false
		}
		w.at = append(w.at, "f:"+key)
		z, ok := w.value(fieldType(t, key), x, y, at.below(key))
		w.at = w.at[:len(w.at)-1]
		if !ok {
			return nil, false
		}
		if !same(x, z) {
			if same(out, live) {
				out = maps.Clone(live)
			}
			out[key] = z
		}
	}
	return out, true
}

// lists merges lists of the same items in the same order.
func (w *merger) lists(t *smdschema.List, live, v []any) (any, bool) {
	if len(live) != len(v) {
		return nil, false
	}
	out := live
	for i, y := range v {
		x := live[i]
		element, ok := elementOf(t, y)
		if !ok || !sameItem(t, x, y) {
			return nil, false
		}
		w.at = append(w.at, element)
		z, ok := w.value(t.ElementType, x, y, inside)
		w.at = w.at[:len(w.at)-1]
		if !ok {
			return nil, false
		}
		if !same(x, z) {
			if same(out, live) {
				out = slices.Clone(live)
			}
			out[i] = z
		}
	}
	return out, true
}

// sameItem reports whether two items of a set or a map list have the same key. b is an item that
// configured has named, so it has a value of each key.
func sameItem(t *smdschema.List, a, b any) bool {
	if len(t.Keys) == 0 {
		return equal(a, b)
	}
	x, _ := a.(map[string]any)
	y, _ := b.(map[string]any)
	for _, key := range t.Keys {
		if !equal(x[key], y[key]) {
			return false
		}
	}
	return true
}
