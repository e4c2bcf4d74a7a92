package builtin

import (
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/types/tree"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxPodResources is how many different resources a Pod may name. All that are counted by quotas
// are amounts of its version, of which the state machine takes 1,024, and adding them up takes
// time by the square of their number. The other kinds that quotas count have few by themselves:
// a ResourceClaim, which has most, at most 256 device classes.
const maxPodResources = 1000

// boundedPod refuses a Pod of too many resources before anything adds them up. One that is stored
// already may stay so.
type boundedPod struct{ objects.Validation }

func (v boundedPod) Create(obj tree.Object, namespaced bool, warnings *[]string) field.ErrorList {
	if errs := podResourceBounds(obj, nil); len(errs) > 0 {
		return errs
	}
	return v.Validation.Create(obj, namespaced, warnings)
}

func (v boundedPod) Update(subresource string, obj, old tree.Object, namespaced bool, warnings *[]string) field.ErrorList {
	if errs := podResourceBounds(obj, old); len(errs) > 0 {
		return errs
	}
	return v.Validation.Update(subresource, obj, old, namespaced, warnings)
}

func podResourceBounds(obj, old tree.Object) field.ErrorList {
	named := 0
	eachPodResources(obj, func(list tree.Object) { named += len(list) })
	if named <= maxPodResources { // nearly always, and nothing is allocated
		return nil
	}
	n := differentPodResources(obj)
	if n <= maxPodResources || n <= differentPodResources(old) {
		return nil
	}
	return field.ErrorList{field.TooMany(field.NewPath("spec").Child("containers[*]", "resources"), n, maxPodResources)}
}

func differentPodResources(obj tree.Object) int {
	names := map[string]struct{}{}
	eachPodResources(obj, func(list tree.Object) {
		for name := range list {
			names[name] = struct{}{}
		}
	})
	return len(names)
}

// eachPodResources calls do with every list of resources by name that a Pod uses anything by, in
// its spec and in its status.
func eachPodResources(obj tree.Object, do func(tree.Object)) {
	both := func(x tree.Object) {
		of := tree.As(x["resources"])
		do(tree.As(of["requests"]))
		do(tree.As(of["limits"]))
	}
	spec, status := tree.As(obj["spec"]), tree.As(obj["status"])
	both(spec)
	do(tree.As(spec["overhead"]))
	for _, list := range [...]string{"containers", "initContainers"} {
		for _, c := range tree.List(spec[list]) {
			both(tree.As(c))
		}
	}
	for _, list := range [...]string{"containerStatuses", "initContainerStatuses"} {
		for _, c := range tree.List(status[list]) {
			s := tree.As(c)
			both(s)
			do(tree.As(s["allocatedResources"]))
		}
	}
}
