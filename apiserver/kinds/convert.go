package kinds

import (
	"fmt"

	"github.com/quorate/quorate/apiserver/tree"
)

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
// obj is not changed, but shares with the result. Without a Conversion it is obj.
func (r *Resource) ToStored(obj map[string]any) (map[string]any, error) {
	return r.convert(obj, conversions[r.Conversion].ToStored)
}

// FromStored is the other direction of ToStored.
func (r *Resource) FromStored(obj map[string]any) (map[string]any, error) {
	return r.convert(obj, conversions[r.Conversion].FromStored)
}

func (r *Resource) convert(obj map[string]any, f func(map[string]any) error) (map[string]any, error) {
	if f == nil {
		return obj, nil
	}
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
