package builtin

import (
	"github.com/google/uuid"
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/types/tree"
)

// nameLimitRange gives a new LimitRange a name if it has none, as upstream does for no other kind.
func nameLimitRange(o *objects.Op, obj, old tree.Object) error {
	if meta := tree.As(obj["metadata"]); old == nil && tree.Text(meta, "name") == "" {
		meta["name"] = uuid.NewString()
		o.Info.Name = tree.Text(meta, "name")
	}
	return nil
}
