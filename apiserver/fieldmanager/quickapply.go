package fieldmanager

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	smdschema "sigs.k8s.io/structured-merge-diff/v6/schema"
)

// quickApply merges a configuration that names the fields which its manager has
// applied before, all of them and no others: what controllers send all day. Then
// nothing is to be removed, and the merge gives some fields other values, which must
// be the manager's alone. Not ok: it is for the library, conflicts and everything wrong
// included.
func (m *Manager) quickApply(live, patch map[string]any, manager string) (out map[string]any, ok bool) {
	liveMeta, _ := live["metadata"].(map[string]any)
	meta, _ := patch["metadata"].(map[string]any)
	entries, _ := liveMeta["managedFields"].([]any)
	if uid, _ := liveMeta["uid"].(string); uid == "" || meta == nil || patch["apiVersion"] != m.apiVersion || patch["kind"] != m.of.Kind {
		return nil, false
	}
	if annotations, _ := liveMeta["annotations"].(map[string]any); annotations[corev1.LastAppliedConfigAnnotation] != nil {
		return nil, false // it may have to be kept up to date
	}
	for name, v := range meta {
		if unmanaged[name] && !equal(v, liveMeta[name]) {
			return nil, false
		}
	}
	for name := range m.reset {
		// Nobody owns it, but it is merged.
		if v, sent := patch[name]; sent {
			_, there := live[name].(map[string]any)
			if part, ok := v.(map[string]any); !ok || len(part) > 0 || !there {
				return nil, false
			}
		}
	}
	fields, ok := m.appliedBy(entries, manager)
	if !ok {
		return nil, false
	}
	w := merger{m: m}
	merged, ok := w.value(m.root, live, patch, place{set: fields, there: true})
	if !ok {
		return nil, false
	}
	if len(w.changed) > 0 {
		if entries, ok = m.touch(entries, w.changed, manager, metav1.ManagedFieldsOperationApply); !ok {
			return nil, false
		}
	}
	out = maps.Clone(merged.(map[string]any))
	outMeta := maps.Clone(out["metadata"].(map[string]any))
	outMeta["managedFields"] = entries
	out["metadata"] = outMeta
	return out, true
}

// appliedBy returns the fields that a manager has applied.
func (m *Manager) appliedBy(entries []any, manager string) (map[string]any, bool) {
	for _, e := range entries {
		if entry, _ := e.(map[string]any); m.isEntry(entry, manager, metav1.ManagedFieldsOperationApply) {
			fields, ok := entry["fieldsV1"].(map[string]any)
			return fields, ok && entry["apiVersion"] == m.apiVersion
		}
	}
	return nil, false
}

// merger merges a configuration into a live object, and compares it with the set of
// fields that it had before. Live values are not changed: what is on the way to a
// change is copied.
type merger struct {
	m       *Manager
	at      path
	changed []path
}

// place is where in the objects and in the set the merger is.
type place struct {
	set   any  // what the set has there
	there bool // whether it has anything
	// itself: a value here is in the set also if it has fields of its own there. So
	// are items of lists, and what a map's keys lead to.
	itself bool
	depth  int
	name   string
}

// whole reports whether the set has nothing below a place, but the place.
func (p place) whole() bool {
	below, ok := p.set.(map[string]any)
	return ok && len(below) == 0
}

// has reports whether the set has n fields below a place, no more, and the place if
// it should.
func (p place) has(n int) bool {
	below, ok := p.set.(map[string]any)
	switch {
	case n == 0 && p.itself:
		return p.whole()
	case n == 0:
		return !p.there
	case p.itself:
		return ok && below["."] != nil && len(below) == n+1
	}
	return ok && below["."] == nil && len(below) == n
}

// value merges v into live.
func (w *merger) value(ref smdschema.TypeRef, live, v any, p place) (any, bool) {
	atom, ok := w.m.atomOf(ref, v)
	if !ok {
		return nil, false
	}
	switch {
	case atom.Map != nil:
		x, ok := live.(map[string]any)
		y := v.(map[string]any)
		switch {
		case !ok:
			return nil, false
		case atom.Map.ElementRelationship == smdschema.Atomic:
		case len(y) == 0:
			return live, p.whole()
		default:
			return w.maps(atom.Map, x, y, p)
		}
	case atom.List != nil:
		x, ok := live.([]any)
		y := v.([]any)
		switch {
		case !ok:
			return nil, false
		case atom.List.ElementRelationship == smdschema.Atomic:
		case len(y) == 0:
			return nil, false
		default:
			return w.lists(atom.List, x, y, p)
		}
	default:
		switch live.(type) {
		case map[string]any, []any, nil:
			return nil, false
		}
	}
	if !p.whole() {
		return nil, false
	}
	if equal(live, v) {
		return live, true
	}
	w.changed = append(w.changed, slices.Clone(w.at))
	return runtime.DeepCopyJSONValue(v), true
}

func (w *merger) maps(t *smdschema.Map, live, v map[string]any, p place) (any, bool) {
	set, _ := p.set.(map[string]any)
	out, n := live, 0
	for key, y := range v {
		if w.m.ignored(p.depth, p.name, key) {
			continue
		}
		x, ok := live[key]
		if !ok {
			return nil, false
		}
		_, known := t.FindField(key)
		element := "f:" + key
		below, there := set[element]
		depth := len(w.at)
		w.at = append(w.at, element)
		z, ok := w.value(fieldType(t, key), x, y, place{set: below, there: there, itself: !known, depth: p.depth + 1, name: key})
		w.at = w.at[:depth]
		if !ok {
			return nil, false
		}
		if there {
			n++
		}
		if !same(x, z) {
			if same(out, live) {
				out = maps.Clone(live)
			}
			out[key] = z
		}
	}
	return out, p.has(n)
}

// lists merges lists of the same items in the same order.
func (w *merger) lists(t *smdschema.List, live, v []any, p place) (any, bool) {
	set, _ := p.set.(map[string]any)
	if len(live) != len(v) {
		return nil, false
	}
	out := live
	for i, y := range v {
		x := live[i]
		if !sameItem(t, x, y) {
			return nil, false
		}
		element, ok := elementOf(t, y)
		if !ok {
			return nil, false
		}
		below, there := set[element]
		depth := len(w.at)
		w.at = append(w.at, element)
		z, ok := w.value(t.ElementType, x, y, place{set: below, there: there, itself: true, depth: inItem})
		w.at = w.at[:depth]
		if !ok || !there {
			return nil, false
		}
		if !same(x, z) {
			if same(out, live) {
				out = slices.Clone(live)
			}
			out[i] = z
		}
	}
	return out, p.has(len(v))
}

// sameItem reports whether two items of a set or a map list have the same key.
func sameItem(t *smdschema.List, a, b any) bool {
	if len(t.Keys) == 0 {
		return equal(a, b)
	}
	x, ok := a.(map[string]any)
	y, ok2 := b.(map[string]any)
	if !ok || !ok2 {
		return false
	}
	for _, key := range t.Keys {
		if k, ok := y[key]; !ok || !equal(x[key], k) {
			return false
		}
	}
	return true
}
