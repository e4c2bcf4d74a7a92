package builtin

import (
	"slices"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/types/tree"
)

// completeResourceSlice says of taints of devices that do not say it that they were added now.
func completeResourceSlice(o *objects.Op, obj, _ tree.Object) error {
	untimed := func(taint any) bool { return tree.As(taint)["timeAdded"] == nil }
	spec := tree.As(obj["spec"])
	if !slices.ContainsFunc(tree.List(spec["devices"]), func(d any) bool { return slices.ContainsFunc(tree.List(tree.As(d)["taints"]), untimed) }) {
		return nil
	}
	spec = tree.Clone(spec)
	changeItems(spec, "devices", func(device tree.Object) {
		changeItems(device, "taints", func(taint tree.Object) {
			if untimed(taint) {
				taint["timeAdded"] = tree.Timestamp(o.Store.Now())
			}
		})
	})
	obj["spec"] = spec
	return nil
}
