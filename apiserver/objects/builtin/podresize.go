package builtin

import (
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/types/tree"
)

// takeResources is the part of pods/resize: what containers, and the pod as a whole, may
// consume. Containers that are others than those that are there are taken as they were
// sent, for validation to refuse.
func takeResources(_ *objects.Op, obj, sent, old tree.Object) error {
	sentSpec, spec := tree.As(sent["spec"]), tree.Clone(old["spec"])
	tree.CopyField(spec, sentSpec, "resources")
	for _, list := range [...]string{"containers", "initContainers"} {
		now, was := tree.List(sentSpec[list]), tree.List(spec[list])
		if len(now) != len(was) {
			obj["spec"] = sentSpec
			return nil
		}
		if len(was) > 0 {
			spec[list] = mergeResources(now, was)
		}
	}
	obj["spec"] = spec
	objects.ResetMeta(obj, old)
	return nil
}

func mergeResources(now, was []any) []any {
	out := make([]any, len(was))
	for i := range was {
		x := tree.Clone(was[i])
		if tree.Text(tree.As(now[i]), "name") != tree.Text(x, "name") {
			return now
		}
		tree.CopyField(x, tree.As(now[i]), "resources")
		tree.CopyField(x, tree.As(now[i]), "resizePolicy")
		out[i] = x
	}
	return out
}
