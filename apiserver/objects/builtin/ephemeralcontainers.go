package builtin

import (
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/types/tree"
)

// takeEphemeralContainers is the part of pods/ephemeralcontainers: containers may be
// added to a pod that runs, and those that are there stay as they are.
func takeEphemeralContainers(_ *objects.Op, obj, sent, old tree.Object) error {
	spec := tree.Clone(old["spec"])
	tree.CopyField(spec, tree.As(sent["spec"]), "ephemeralContainers")
	obj["spec"] = spec
	objects.ResetMeta(obj, old)
	return nil
}
