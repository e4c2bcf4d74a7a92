package rules

import (
	"github.com/quorate/quorate/apiserver/tree"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// templateAt checks the pod template at a path of field names as a pod is checked that
// is created. On an update a template that has not changed is let through, so that
// objects which an earlier version took can still be written.
//
// StatefulSets are not among those that it is for: their pods mount volumes of claim
// templates too, and upstream does not check their pod's spec either.
func templateAt(names ...string) func(obj, old tree.Object) field.ErrorList {
	names = append(names, "spec")
	path := field.NewPath(names[0], names[1:]...)
	return func(obj, old tree.Object) field.ErrorList {
		spec := tree.As(tree.Field(obj, names...))
		if old != nil && Equal(spec, tree.As(tree.Field(old, names...))) {
			return nil
		}
		errs := append(uniqueNames(spec, path), volumeMounts(spec, path)...)
		errs = append(errs, podPaths(spec, path)...)
		if len(tree.List(spec["ephemeralContainers"])) > 0 {
			errs = append(errs, field.Forbidden(path.Child("ephemeralContainers"), "ephemeral containers not allowed in pod template"))
		}
		return errs
	}
}
