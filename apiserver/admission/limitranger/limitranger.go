// Package limitranger is the admission plugin LimitRanger: the LimitRanges of a namespace give
// containers requests and limits, and bound those of containers, Pods and claims.
package limitranger

import (
	"context"
	"log/slog"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/types/state"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/proto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	upstream "k8s.io/apiserver/pkg/admission"
)

// Plugin is the plugin. Safe for concurrent use.
type Plugin struct {
	ranges *state.Objects[corev1.LimitRange]
}

// New returns the plugin.
func New(s *state.State, log *slog.Logger) *Plugin {
	return &Plugin{state.All[corev1.LimitRange](s, schema.GroupResource{Resource: "limitranges"}, log)}
}

// Handles implements admission.Plugin: Pods that are created or get other resources, and claims.
func (*Plugin) Handles(a *admission.Attributes) bool {
	if a.Resource.Group != "" {
		return false
	}
	switch a.Resource.Resource {
	case "pods":
		// What a Pod asks for does not change but by resize.
		return a.Operation == admission.Create && a.Subresource == "" || a.Operation == admission.Update && a.Subresource == "resize"
	case "persistentvolumeclaims":
		return a.Subresource == "" && (a.Operation == admission.Create || a.Operation == admission.Update)
	}
	return false
}

// Admit implements admission.Mutator.
func (p *Plugin) Admit(_ context.Context, a *admission.Attributes) error {
	if a.Resource.Resource != "pods" {
		return nil
	}
	for _, r := range p.of(a) {
		set := setDefaults(a, r)
		if set != "" && a.Operation == admission.Create { // a resize changes resources alone
			annotations := tree.Clone(a.Meta()["annotations"])
			annotations[annotation] = "LimitRanger plugin set: " + set
			a.Meta()["annotations"] = annotations
		}
	}
	return nil
}

// Validate implements admission.Validator.
func (p *Plugin) Validate(_ context.Context, a *admission.Attributes) error {
	ranges := p.of(a)
	if len(ranges) == 0 {
		return nil // nothing is decoded
	}
	var check func(*corev1.LimitRange) []error
	if a.Resource.Resource == "pods" {
		pod := podOf(tree.As(a.Object["spec"]))
		check = func(r *corev1.LimitRange) []error { return checkPod(r, pod) }
	} else {
		requests := listOf(tree.Field(a.Object, "spec", "resources", "requests"))
		check = func(r *corev1.LimitRange) []error { return checkClaim(r, requests) }
	}
	for _, r := range ranges {
		if err := utilerrors.NewAggregate(check(r)); err != nil {
			return upstream.NewForbidden(a, err)
		}
	}
	return nil
}

// of are the ranges that hold for a write. What is being deleted is not held to any.
func (p *Plugin) of(a *admission.Attributes) []*corev1.LimitRange {
	if tree.Field(a.Old, "metadata", "deletionTimestamp") != nil {
		return nil
	}
	a.Consulted(admission.Rules(proto.RuleLimitRanges))
	return p.ranges.In(a.Namespace)
}
