package kinds

import (
	"fmt"
	"strings"

	"github.com/quorate/quorate/apiserver/types/tree"
)

// Objects of all versions of a resource are stored with the fields of one. A version
// leads there by moves, which are data, or by a Conversion, which is code.

// Conversion leads from one version's fields to those of the stored version and
// back, where moves cannot say it. Both directions keep everything that either
// version can say. They work in place on an object of which the first level, the
// metadata and the annotations are the callee's; what is below may be shared and
// is replaced, not changed. They are pure.
type Conversion struct {
	ToStored, FromStored func(obj map[string]any) error
}

// conversions is keyed by Resource.Conversion.
var conversions = map[string]Conversion{
	"autoscaling/v1": {ToStored: autoscalerToV2, FromStored: autoscalerFromV2},
}

// Converts reports whether objects are stored with other fields than r shows.
func (r *Resource) Converts() bool { return len(r.Moves) > 0 || r.Conversion != "" }

// ToStored returns the object of this version with the fields of the stored one.
// obj is not changed, but shares with the result. If r does not convert, it is obj.
func (r *Resource) ToStored(obj map[string]any) (map[string]any, error) {
	if r.Conversion != "" {
		return r.convert(obj, conversions[r.Conversion].ToStored)
	}
	return r.move(obj, func(m Move) (from, to string, fills bool) { return m.From, m.To, m.EmptyIn == EmptyInStored }), nil
}

// FromStored is the other direction of ToStored.
func (r *Resource) FromStored(obj map[string]any) (map[string]any, error) {
	if r.Conversion != "" {
		return r.convert(obj, conversions[r.Conversion].FromStored)
	}
	return r.move(obj, func(m Move) (from, to string, fills bool) { return m.To, m.From, m.EmptyIn == EmptyInThis }), nil
}

// Convert returns an object of one version of a built-in resource in another, with the
// kind and apiVersion of that; obj itself is not changed, but shares what is not moved.
func Convert(obj map[string]any, from, to *Resource) (map[string]any, error) {
	stored, err := from.ToStored(obj)
	if err != nil {
		return nil, err
	}
	out, err := to.FromStored(stored)
	if err != nil {
		return nil, err
	}
	if !from.Converts() && !to.Converts() {
		out = tree.Clone(out)
	}
	out["kind"], out["apiVersion"] = to.Kind, to.GroupVersion().String()
	return out, nil
}

func (r *Resource) convert(obj map[string]any, f func(map[string]any) error) (map[string]any, error) {
	out := tree.Clone(obj)
	if meta, ok := out["metadata"].(map[string]any); ok {
		meta = tree.Clone(meta)
		out["metadata"] = meta
		if notes, ok := meta["annotations"].(map[string]any); ok {
			meta["annotations"] = tree.Clone(notes)
		}
	}
	if err := f(out); err != nil {
		return nil, fmt.Errorf("convert %s %s: %w", r.GroupVersion(), r.Kind, err)
	}
	return out, nil
}

// move makes the moves in one direction; fills says whether a move's empty value is written there, or left out. All
// fields are taken out before any is put back, so that moves may exchange fields. Maps on the paths are copied, the
// rest is shared with obj.
func (r *Resource) move(obj map[string]any, direction func(Move) (from, to string, fills bool)) map[string]any {
	if len(r.Moves) == 0 {
		return obj
	}
	out := tree.Clone(obj)
	taken := make([]any, len(r.Moves))
	found := make([]bool, len(r.Moves))
	for i, m := range r.Moves {
		from, _, _ := direction(m)
		taken[i], found[i] = take(out, strings.Split(from, "."))
	}
	for i, m := range r.Moves {
		_, to, fills := direction(m)
		path := strings.Split(to, ".")
		switch {
		case m.Empty == nil:
		case fills && !found[i]:
			taken[i], found[i] = m.Empty, hasParent(out, path)
		case !fills && taken[i] == m.Empty:
			found[i] = false
		}
		if found[i] {
			put(out, path, taken[i])
		}
	}
	return out
}

// hasParent reports whether there is an object to hold the field at path.
func hasParent(m map[string]any, path []string) bool {
	for ; m != nil && len(path) > 1; path = path[1:] {
		m, _ = m[path[0]].(map[string]any)
	}
	return m != nil
}

// take removes the field at path. m itself may be changed, what is below is
// copied first.
func take(m map[string]any, path []string) (any, bool) {
	v, ok := m[path[0]]
	if !ok {
		return nil, false
	}
	if len(path) == 1 {
		delete(m, path[0])
		return v, true
	}
	child, ok := v.(map[string]any)
	if !ok {
		return nil, false
	}
	child = tree.Clone(child)
	v, ok = take(child, path[1:])
	if ok {
		m[path[0]] = child
	}
	return v, ok
}

func put(m map[string]any, path []string, v any) {
	if len(path) == 1 {
		m[path[0]] = v
		return
	}
	child, _ := m[path[0]].(map[string]any)
	child = tree.Clone(child)
	m[path[0]] = child
	put(child, path[1:], v)
}
