package builtin

import (
	"fmt"
	"slices"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/quota"
	"github.com/quorate/quorate/apiserver/tree"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var podStrategy = objects.Strategy{
	Complete: completePod,
	Prepare:  preparePod,
	Validate: validatePod,
	Warnings: warningsForNewPod,
	Usage:    usageOf(quota.Pods),
	Parts:    map[string]objects.Part{"ephemeralcontainers": takeEphemeralContainers, "resize": takeResources},
	Posts: map[string]*objects.Creater{
		"binding":  createBinding,
		"eviction": objects.CreaterOf(evictionKind, evictPod, "policy/v1beta1"),
	},
}

// completePod makes a second of a negative grace period: so have all versions read it.
func completePod(_ *objects.Op, obj, _ tree.Object) error {
	if n, _ := tree.Int(tree.Field(obj, "spec", "terminationGracePeriodSeconds")); n < 0 {
		spec := tree.Clone(obj["spec"])
		spec["terminationGracePeriodSeconds"] = int64(1)
		obj["spec"] = spec
	}
	return nil
}

const mutablePodFields = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"

// validatePod checks names within a pod, and what of a pod may change.
func validatePod(obj, old tree.Object) field.ErrorList {
	path := field.NewPath("spec")
	spec := tree.As(obj["spec"])
	errs := validatePodNames(spec, path)
	errs = append(errs, validateVolumeMounts(spec, path)...)
	errs = append(errs, validatePodResources(spec, tree.As(old["spec"]), path)...)
	if old == nil {
		errs = append(errs, validatePodPaths(spec, path)...) // none of it can change
		if len(tree.List(spec["ephemeralContainers"])) > 0 {
			errs = append(errs, field.Forbidden(path.Child("ephemeralContainers"), "cannot be set on create"))
		}
	} else {
		errs = append(errs, validatePodUpdate(spec, tree.As(old["spec"]), path)...)
	}
	return errs
}

// validatePodNames checks that no two containers and no two volumes have the same name.
func validatePodNames(spec tree.Object, path *field.Path) (errs field.ErrorList) {
	seen := map[string]bool{}
	for _, kind := range [...]string{"containers", "initContainers", "ephemeralContainers"} {
		for i, c := range tree.List(spec[kind]) {
			name := tree.Text(tree.As(c), "name")
			if seen[name] && name != "" {
				errs = append(errs, field.Duplicate(path.Child(kind).Index(i).Child("name"), name))
			}
			seen[name] = true
		}
	}
	volumes := map[string]bool{}
	for i, v := range tree.List(spec["volumes"]) {
		name := tree.Text(tree.As(v), "name")
		if volumes[name] && name != "" {
			errs = append(errs, field.Duplicate(path.Child("volumes").Index(i).Child("name"), name))
		}
		volumes[name] = true
	}
	return errs
}

// validateVolumeMounts checks that what containers mount is there, once per place.
func validateVolumeMounts(spec tree.Object, path *field.Path) (errs field.ErrorList) {
	volumes := map[string]bool{}
	for _, v := range tree.List(spec["volumes"]) {
		volumes[tree.Text(tree.As(v), "name")] = true
	}
	for _, kind := range [...]string{"initContainers", "containers"} {
		for i, c := range tree.List(spec[kind]) {
			places := map[string]bool{}
			for j, m := range tree.List(tree.As(c)["volumeMounts"]) {
				at := path.Child(kind).Index(i).Child("volumeMounts").Index(j)
				name, place := tree.Text(tree.As(m), "name"), tree.Text(tree.As(m), "mountPath")
				if name != "" && !volumes[name] {
					errs = append(errs, field.NotFound(at.Child("name"), name))
				}
				if place != "" && places[place] {
					errs = append(errs, field.Invalid(at.Child("mountPath"), place, "must be unique"))
				}
				places[place] = true
			}
		}
	}
	return errs
}

func validatePodUpdate(spec, old tree.Object, path *field.Path) (errs field.ErrorList) {
	before := tree.Clone(old)
	for _, kind := range [...]string{"containers", "initContainers"} {
		now, was := tree.List(spec[kind]), tree.List(old[kind])
		if len(now) != len(was) {
			return append(errs, field.Forbidden(path.Child(kind), "pod updates may not add or remove containers"))
		}
		if len(was) > 0 {
			before[kind] = withImages(was, now)
		}
	}
	errs = append(errs, validateDeadlineUpdate(spec, old, path)...)
	errs = append(errs, validateTolerationsUpdate(tree.List(spec["tolerations"]), tree.List(old["tolerations"]), path.Child("tolerations"))...)
	gates := map[string]bool{} // a gate is its name
	for _, gate := range tree.List(old["schedulingGates"]) {
		gates[tree.Text(tree.As(gate), "name")] = true
	}
	for i, gate := range tree.List(spec["schedulingGates"]) {
		if !gates[tree.Text(tree.As(gate), "name")] {
			errs = append(errs, field.Forbidden(path.Child("schedulingGates").Index(i), "only deletion is allowed, but found new scheduling gate '"+tree.Text(tree.As(gate), "name")+"'"))
		}
	}
	copyFields(before, spec, "activeDeadlineSeconds", "tolerations", "schedulingGates")
	if n, _ := tree.Int(old["terminationGracePeriodSeconds"]); n < 0 && spec["terminationGracePeriodSeconds"] == int64(1) {
		copyFields(before, spec, "terminationGracePeriodSeconds")
	}
	if len(tree.List(old["schedulingGates"])) > 0 {
		// Where a pod that waits may run can be narrowed down.
		copyFields(before, spec, "nodeSelector", "affinity")
	}
	if !semanticEqual(spec, before) {
		errs = append(errs, field.Forbidden(path, fmt.Sprintf("pod updates may not change fields other than %s\n%s", mutablePodFields, differingFields(spec, before))))
	}
	return errs
}

// withImages are containers with the images of others.
func withImages(containers, from []any) []any {
	out := make([]any, len(containers))
	for i, c := range containers {
		changed := tree.Clone(c)
		copyFields(changed, tree.As(from[i]), "image")
		out[i] = changed
	}
	return out
}

func validateDeadlineUpdate(spec, old tree.Object, path *field.Path) field.ErrorList {
	path = path.Child("activeDeadlineSeconds")
	now, set := tree.Int(spec["activeDeadlineSeconds"])
	was, had := tree.Int(old["activeDeadlineSeconds"])
	switch {
	case set && had && was < now:
		return field.ErrorList{field.Invalid(path, now, "must be less than or equal to previous value")}
	case !set && had:
		return field.ErrorList{field.Invalid(path, nil, "must not update from a positive integer to nil value")}
	}
	return nil
}

// validateTolerationsUpdate checks that all old tolerations are still there; tolerationSeconds of
// one that is there may change.
func validateTolerationsUpdate(now, old []any, path *field.Path) field.ErrorList {
	there := make(map[toleration]bool, len(now))
	for _, v := range now {
		there[tolerationOf(v)] = true
	}
	for _, v := range old {
		if !there[tolerationOf(v)] {
			return field.ErrorList{field.Forbidden(path, "existing toleration can not be modified except its tolerationSeconds")}
		}
	}
	return nil
}

// toleration is one without its tolerationSeconds.
type toleration struct{ key, operator, value, effect string }

func tolerationOf(v any) toleration {
	t := tree.As(v)
	return toleration{tree.Text(t, "key"), tree.Text(t, "operator"), tree.Text(t, "value"), tree.Text(t, "effect")}
}

// differingFields names the fields of two objects that are not the same.
func differingFields(a, b tree.Object) string {
	var names []string
	for name := range a {
		if !semanticEqual(a[name], b[name]) {
			names = append(names, name)
		}
	}
	for name := range b {
		if _, ok := a[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return fmt.Sprintf("changed: %q", names)
}
