package builtin

import (
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/tree"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Kinds with a pod template. Jobs have more rules, see job.go.
var (
	podTemplateStrategy = objects.Strategy{Validate: validateTemplateAt("template"), Warnings: warningsForTemplateAt("template")}
	workloadStrategy    = objects.Strategy{Validate: validateTemplateAt("spec", "template"), Warnings: withHostname(warningsForTemplate)}
	daemonSetStrategy   = objects.Strategy{Validate: validateTemplateAt("spec", "template"), Warnings: warningsForDaemonSet}
	cronJobStrategy     = objects.Strategy{Validate: validateTemplateAt("spec", "jobTemplate", "spec", "template"), Warnings: warningsForCronJob}
)

// validateTemplateAt checks the pod template at a path of field names as a pod is checked that
// is created. On an update a template that has not changed is let through, so that
// objects which an earlier version took can still be written.
//
// StatefulSets are not among those that it is for: their pods mount volumes of claim
// templates too, and upstream does not check their pod's spec either.
func validateTemplateAt(names ...string) func(obj, old tree.Object) field.ErrorList {
	names = append(names, "spec")
	path := field.NewPath(names[0], names[1:]...)
	return func(obj, old tree.Object) field.ErrorList {
		spec := tree.As(tree.Field(obj, names...))
		if old != nil && semanticEqual(spec, tree.As(tree.Field(old, names...))) {
			return nil
		}
		errs := append(validatePodNames(spec, path), validateVolumeMounts(spec, path)...)
		errs = append(errs, validatePodPaths(spec, path)...)
		errs = append(errs, validatePodResources(spec, nil, path)...)
		if len(tree.List(spec["ephemeralContainers"])) > 0 {
			errs = append(errs, field.Forbidden(path.Child("ephemeralContainers"), "ephemeral containers not allowed in pod template"))
		}
		return errs
	}
}
