package rules

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// templateAt checks the pod template at a path of field names as a pod is checked that
// is created. On an update a template that has not changed is let through, so that
// objects which an earlier version took can still be written.
//
// StatefulSets are not among those that it is for: their pods mount volumes of claim
// templates too, and upstream does not check their pod's spec either.
func templateAt(names ...string) func(obj, old tree) field.ErrorList {
	names = append(names, "spec")
	path := field.NewPath(names[0], names[1:]...)
	return func(obj, old tree) field.ErrorList {
		spec := asTree(at(obj, names...))
		if old != nil && Equal(spec, asTree(at(old, names...))) {
			return nil
		}
		errs := append(uniqueNames(spec, path), volumeMounts(spec, path)...)
		errs = append(errs, podPaths(spec, path)...)
		if len(list(spec["ephemeralContainers"])) > 0 {
			errs = append(errs, field.Forbidden(path.Child("ephemeralContainers"), "ephemeral containers not allowed in pod template"))
		}
		return errs
	}
}
