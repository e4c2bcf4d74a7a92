package builtin

import (
	"fmt"
	"maps"
	"slices"

	"github.com/quorate/quorate/apiserver/tree"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	helpers "k8s.io/component-helpers/resource"
)

// validatePodResources checks what the containers of a Pod ask for, the Pod as a whole, and its
// overhead. On an update, what has not changed is let through, so that Pods which an earlier
// version took can still be written.
//
// Where upstream's order of errors is random, ours is that of the resources' names.
func validatePodResources(spec, old tree.Object, at *field.Path) (errs field.ErrorList) {
	if old != nil && sameResources(spec, old) {
		return nil
	}
	for _, kind := range [...]string{"containers", "initContainers"} {
		for i, c := range tree.List(spec[kind]) {
			errs = append(errs, validateRequirements(tree.As(tree.As(c)["resources"]), validateContainerResourceName, at.Child(kind).Index(i).Child("resources"))...)
		}
	}
	errs = append(errs, validateOwnResources(spec, at.Child("resources"))...)
	if overhead := tree.As(spec["overhead"]); overhead != nil {
		errs = append(errs, validateRequirements(tree.Object{"limits": overhead}, validateContainerResourceName, at.Child("overhead"))...)
	}
	return errs
}

// validateOwnResources checks what a Pod as a whole asks for, if it does.
func validateOwnResources(spec tree.Object, at *field.Path) (errs field.ErrorList) {
	own := tree.As(spec["resources"])
	switch {
	case own == nil:
		return nil
	case tree.Field(spec, "os", "name") == string(corev1.Windows):
		return field.ErrorList{field.Forbidden(at, "may not be set for a windows pod")}
	case own["claims"] != nil:
		errs = append(errs, field.Forbidden(at.Child("claims"), "claims may not be set for Resources at pod-level"))
	}
	errs = append(errs, validateRequirements(own, validatePodResourceName, at)...)
	return append(errs, validateWithinPod(spec, at)...)
}

// sameResources compares what of two Pods validatePodResources checks.
func sameResources(spec, old tree.Object) bool {
	if !semanticEqual(spec["resources"], old["resources"]) || !semanticEqual(spec["overhead"], old["overhead"]) {
		return false
	}
	same := func(a, b any) bool { return semanticEqual(tree.As(a)["resources"], tree.As(b)["resources"]) }
	for _, kind := range [...]string{"containers", "initContainers"} {
		if !slices.EqualFunc(tree.List(spec[kind]), tree.List(old[kind]), same) {
			return false
		}
	}
	return true
}

// validateRequirements checks requests against limits, and the names and amounts of both.
func validateRequirements(requirements tree.Object, name func(string, *field.Path) field.ErrorList, at *field.Path) (errs field.ErrorList) {
	if len(requirements) == 0 {
		return nil
	}
	requests, limits := quantitiesOf(requirements["requests"]), quantitiesOf(requirements["limits"])
	pages, compute := false, false
	for _, resource := range slices.Sorted(maps.Keys(limits)) {
		here := at.Child("limits").Key(resource)
		errs = append(errs, name(resource, here)...)
		errs = append(errs, validateAmount(resource, limits[resource], here)...)
		errs = append(errs, validatePages(resource, limits[resource], here)...)
		pages, compute = pages || isHugePages(resource), compute || resource == "cpu" || resource == "memory"
	}
	for _, resource := range slices.Sorted(maps.Keys(requests)) {
		here, request := at.Child("requests").Key(resource), requests[resource]
		errs = append(errs, name(resource, here)...)
		errs = append(errs, validateAmount(resource, request, here)...)
		limit, limited := limits[resource]
		switch {
		case !limited && !mayOvercommit(resource):
			errs = append(errs, field.Required(at.Child("limits"), "Limit must be set for non overcommitable resources"))
		case !limited:
		case request.Cmp(limit) != 0 && !mayOvercommit(resource):
			errs = append(errs, field.Invalid(at.Child("requests"), request.String(), fmt.Sprintf("must be equal to %s limit of %s", resource, limit.String())))
		case request.Cmp(limit) > 0:
			errs = append(errs, field.Invalid(at.Child("requests"), request.String(), fmt.Sprintf("must be less than or equal to %s limit of %s", resource, limit.String())))
		}
		errs = append(errs, validatePages(resource, request, here)...)
		pages, compute = pages || isHugePages(resource), compute || resource == "cpu" || resource == "memory"
	}
	if pages && !compute {
		errs = append(errs, field.Forbidden(at, "HugePages require cpu or memory"))
	}
	return errs
}

// validateWithinPod checks that what the containers ask for together is within what their Pod
// asks for, and the limit of each within the Pod's.
func validateWithinPod(spec tree.Object, at *field.Path) (errs field.ErrorList) {
	var pod corev1.Pod
	part := tree.Object{"resources": spec["resources"], "containers": spec["containers"]}
	copyFields(part, spec, "initContainers")
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(part, &pod.Spec); err != nil {
		return field.ErrorList{field.InternalError(at, err)}
	}
	within := pod.Spec.Resources
	requests := helpers.AggregateContainerRequests(&pod, helpers.PodResourcesOptions{})
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		sum := requests[name]
		if most, ok := within.Requests[name]; ok && sum.Cmp(most) > 0 {
			errs = append(errs, field.Invalid(at.Child("requests").Key(string(name)), most.String(), fmt.Sprintf("must be greater than or equal to aggregate container requests of %s", sum.String())))
		}
	}
	limits := helpers.AggregateContainerLimits(&pod, helpers.PodResourcesOptions{})
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		sum := limits[name]
		if most, ok := within.Limits[name]; ok && isHugePages(string(name)) && sum.Cmp(most) > 0 {
			errs = append(errs, field.Invalid(at.Child("limits").Key(string(name)), most.String(), fmt.Sprintf("must be greater than or equal to aggregate container limits of %s", sum.String())))
		}
	}
	for i, c := range pod.Spec.Containers {
		for _, name := range slices.Sorted(maps.Keys(c.Resources.Limits)) {
			limit := c.Resources.Limits[name]
			if most, ok := within.Limits[name]; ok && limit.Cmp(most) > 0 {
				// This is where upstream says that the limit is.
				here := at.Child("containers").Index(i).Key(string(name)).Child("limits")
				errs = append(errs, field.Invalid(here, limit.String(), fmt.Sprintf("must be less than or equal to pod limits of %s", most.String())))
			}
		}
	}
	return errs
}
