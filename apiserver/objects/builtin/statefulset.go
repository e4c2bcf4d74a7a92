package builtin

import (
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/types/tree"
)

var statefulSetStrategy = objects.Strategy{Complete: completeStatefulSet, Prepare: prepareStatefulSet}

// completeStatefulSet says of claim templates, which are whole objects, what they are.
func completeStatefulSet(_ *objects.Op, obj, _ tree.Object) error {
	claims := tree.List(tree.Field(obj, "spec", "volumeClaimTemplates"))
	if len(claims) == 0 {
		return nil
	}
	named := make([]any, len(claims))
	for i, c := range claims {
		c := tree.Clone(c)
		c["apiVersion"], c["kind"] = "v1", "PersistentVolumeClaim"
		named[i] = c
	}
	spec := tree.Clone(obj["spec"])
	spec["volumeClaimTemplates"] = named
	obj["spec"] = spec
	return nil
}
