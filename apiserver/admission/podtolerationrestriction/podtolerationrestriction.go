// Package podtolerationrestriction is upstream's plugin PodTolerationRestriction: a namespace says, by
// annotations, which tolerations its Pods get and which they may have.
package podtolerationrestriction

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/tolerations"
	"github.com/quorate/quorate/apiserver/types/state"
	"github.com/quorate/quorate/apiserver/types/tree"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	defaultsAnnotation = "scheduler.alpha.kubernetes.io/defaultTolerations"
	allowedAnnotation  = "scheduler.alpha.kubernetes.io/tolerationsWhitelist"
)

// Plugin merges tolerations, and holds them against lists.
type Plugin struct {
	state *state.State
	of    configuration // for namespaces that say nothing
}

// Handles implements admission.Plugin.
func (*Plugin) Handles(a *admission.Attributes) bool {
	return (a.Operation == admission.Create || a.Operation == admission.Update) && a.Is("", "pods")
}

// Admit implements admission.Mutator.
func (p *Plugin) Admit(ctx context.Context, a *admission.Attributes) error {
	var extra []corev1.Toleration
	if a.Operation == admission.Create {
		list, said, err := p.said(a.Namespace, defaultsAnnotation)
		if err != nil {
			return err
		}
		if extra = list; !said {
			extra = p.of.Default
		}
	}
	spec := tree.As(a.Object["spec"])
	if !bestEffort(spec) {
		extra = append(extra[:len(extra):len(extra)], corev1.Toleration{
			Key: corev1.TaintNodeMemoryPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule,
		})
	}
	if len(extra) > 0 {
		spec = tree.Clone(spec)
		tolerations.Set(spec, tolerations.Merge(tolerations.Of(tree.List(spec["tolerations"])), extra))
		a.Object["spec"] = spec
	}
	return p.Validate(ctx, a)
}

// Validate implements admission.Validator.
func (p *Plugin) Validate(_ context.Context, a *admission.Attributes) error {
	list := tolerations.Of(tree.List(tree.Field(a.Object, "spec", "tolerations")))
	if len(list) == 0 {
		return nil
	}
	allowed, said, err := p.said(a.Namespace, allowedAnnotation)
	if err != nil {
		return err
	}
	scope := "namespace"
	if !said {
		allowed, scope = p.of.Whitelist, "cluster"
	}
	if !tolerations.Allowed(list, allowed) {
		return admission.Unexplained(fmt.Errorf("pod tolerations (possibly merged with namespace default tolerations) conflict with its %s whitelist", scope))
	}
	return nil
}

// said are the tolerations in an annotation of a namespace; said is false if it does not have it.
func (p *Plugin) said(namespace, annotation string) (list []corev1.Toleration, said bool, err error) {
	gr := corev1.Resource("namespaces")
	ns, err := state.Get[corev1.Namespace](p.state, gr, "", namespace)
	switch {
	case err != nil:
		return nil, false, apierrors.NewInternalError(err)
	case ns == nil:
		return nil, false, apierrors.NewNotFound(gr, namespace)
	}
	text, said := ns.Annotations[annotation]
	if text == "" {
		return nil, said, nil
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, true, admission.Unexplained(err)
	}
	return list, true, nil
}

// bestEffort reports whether a Pod asks for no CPU and no memory at all.
func bestEffort(spec tree.Object) bool {
	if whole := tree.As(spec["resources"]); whole != nil {
		return !asks(whole)
	}
	for _, list := range [...]string{"containers", "initContainers"} {
		for _, c := range tree.List(spec[list]) {
			if asks(tree.As(tree.As(c)["resources"])) {
				return false
			}
		}
	}
	return true
}

func asks(resources tree.Object) bool {
	for _, list := range [...]string{"requests", "limits"} {
		for _, name := range [...]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			q, err := tree.ParseQuantity(tree.Scalar(tree.Field(resources, list, string(name))))
			if err == nil && q.Sign() > 0 {
				return true
			}
		}
	}
	return false
}
