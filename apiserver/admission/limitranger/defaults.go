package limitranger

import (
	"slices"
	"strings"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/types/tree"
	corev1 "k8s.io/api/core/v1"
)

// annotation says on a Pod what it was given.
const annotation = "kubernetes.io/limit-ranger"

// setDefaults gives the containers of a Pod what they leave out, and says what that was.
func setDefaults(a *admission.Attributes, r *corev1.LimitRange) string {
	requests, limits := defaultsOf(r)
	if len(requests) == 0 && len(limits) == 0 {
		return ""
	}
	var set []string
	spec := tree.Clone(a.Object["spec"])
	for _, kind := range [...]struct{ field, what string }{{"containers", "container"}, {"initContainers", "init container"}} {
		has := tree.List(spec[kind.field])
		if len(has) == 0 {
			continue
		}
		made := slices.Clone(has)
		for i, c := range made {
			if tree.As(c) == nil {
				continue
			}
			c, name := tree.Clone(c), tree.Text(tree.As(c), "name")
			resources := tree.Clone(c["resources"])
			if names := setMissing(resources, "requests", requests); len(names) > 0 {
				set = append(set, strings.Join(names, ", ")+" request for "+kind.what+" "+name)
			}
			if names := setMissing(resources, "limits", limits); len(names) > 0 {
				set = append(set, strings.Join(names, ", ")+" limit for "+kind.what+" "+name)
			}
			c["resources"], made[i] = resources, c
		}
		spec[kind.field] = made
	}
	if len(set) > 0 {
		a.Object["spec"] = spec
	}
	return strings.Join(set, "; ")
}

// defaultsOf is what containers get that say nothing themselves. A later item wins.
func defaultsOf(r *corev1.LimitRange) (requests, limits corev1.ResourceList) {
	requests, limits = corev1.ResourceList{}, corev1.ResourceList{}
	for _, item := range r.Spec.Limits {
		if item.Type != corev1.LimitTypeContainer {
			continue
		}
		for k, v := range item.DefaultRequest {
			requests[k] = v
		}
		for k, v := range item.Default {
			limits[k] = v
		}
	}
	return requests, limits
}

// setMissing adds what a list of resources does not have, and returns the names of that.
func setMissing(resources tree.Object, field string, defaults corev1.ResourceList) []string {
	var set []string
	has := tree.As(resources[field])
	for name := range defaults {
		if _, ok := has[string(name)]; !ok {
			set = append(set, string(name))
		}
	}
	if len(set) == 0 {
		return nil
	}
	slices.Sort(set)
	list := tree.Clone(has)
	for _, name := range set {
		quantity := defaults[corev1.ResourceName(name)]
		list[name] = quantity.String()
	}
	resources[field] = list
	return set
}
