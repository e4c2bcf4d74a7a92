// Package antiaffinity is upstream's plugin LimitPodHardAntiAffinityTopology: a Pod may keep
// others off its own host, and off nothing larger.
package antiaffinity

import (
	"context"
	"fmt"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/types/tree"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Plugin refuses Pods that keep others off a zone, for example.
type Plugin struct{}

// Handles implements admission.Plugin.
func (Plugin) Handles(a *admission.Attributes) bool {
	return (a.Operation == admission.Create || a.Operation == admission.Update) && a.Is("", "pods")
}

// Validate implements admission.Validator.
func (Plugin) Validate(_ context.Context, a *admission.Attributes) error {
	terms := tree.Field(a.Object, "spec", "affinity", "podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
	for _, term := range tree.List(terms) {
		if key := tree.Text(tree.As(term), "topologyKey"); key != corev1.LabelHostname {
			return apierrors.NewForbidden(a.Resource.GroupResource(), tree.Text(a.Meta(), "name"), fmt.Errorf("affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey %v but only key %v is allowed", key, corev1.LabelHostname))
		}
	}
	return nil
}
