// Package extendedresourcetoleration is upstream's plugin ExtendedResourceToleration: a Pod that
// requests a device may run on nodes that are kept for those who do.
package extendedresourcetoleration

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/tolerations"
	"github.com/quorate/quorate/apiserver/types/tree"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Plugin gives Pods a toleration for each extended resource that they request.
type Plugin struct{}

// Handles implements admission.Plugin.
func (Plugin) Handles(a *admission.Attributes) bool {
	return (a.Operation == admission.Create || a.Operation == admission.Update) && a.Is("", "pods")
}

// Admit implements admission.Mutator.
func (Plugin) Admit(_ context.Context, a *admission.Attributes) error {
	requested := map[string]bool{}
	for _, list := range [...]string{"containers", "initContainers"} {
		for _, c := range tree.List(tree.Field(a.Object, "spec", list)) {
			for name := range tree.As(tree.Field(c, "resources", "requests")) {
				if isExtended(name) {
					requested[name] = true
				}
			}
		}
	}
	if len(requested) == 0 {
		return nil
	}
	spec := tree.Clone(a.Object["spec"])
	list := tolerations.Of(tree.List(spec["tolerations"]))
	for _, name := range slices.Sorted(maps.Keys(requested)) {
		list = with(list, corev1.Toleration{Key: name, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule})
	}
	tolerations.Set(spec, list)
	a.Object["spec"] = spec
	return nil
}

// with adds a toleration, or replaces those that differ from it in how long they last.
func with(list []corev1.Toleration, t corev1.Toleration) []corev1.Toleration {
	found := false
	for i := range list {
		if !list[i].MatchToleration(&t) {
			continue
		}
		if equality.Semantic.DeepEqual(list[i], t) {
			return list
		}
		list[i], found = t, true
	}
	if !found {
		list = append(list, t)
	}
	return list
}

// isExtended reports whether a resource is one that nodes offer besides those of Kubernetes.
func isExtended(name string) bool {
	if !strings.Contains(name, "/") || strings.Contains(name, corev1.ResourceDefaultNamespacePrefix) ||
		strings.HasPrefix(name, corev1.DefaultResourceRequestsPrefix) {
		return false
	}
	return len(validation.IsQualifiedName(corev1.DefaultResourceRequestsPrefix+name)) == 0
}
