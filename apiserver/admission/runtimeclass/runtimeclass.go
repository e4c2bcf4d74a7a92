// Package runtimeclass is upstream's plugin RuntimeClass: new Pods get the overhead, the node
// selector and the tolerations of the RuntimeClass that they name.
package runtimeclass

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/tolerations"
	"github.com/quorate/quorate/apiserver/types/state"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/proto"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	upstream "k8s.io/apiserver/pkg/admission"
)

// Plugin completes Pods by the RuntimeClasses in this node's state.
type Plugin struct {
	classes *state.Objects[nodev1.RuntimeClass]
}

// New returns the plugin.
func New(s *state.State, log *slog.Logger) *Plugin {
	return &Plugin{state.All[nodev1.RuntimeClass](s, nodev1.Resource("runtimeclasses"), log)}
}

// Handles implements admission.Plugin.
func (*Plugin) Handles(a *admission.Attributes) bool {
	return a.Operation == admission.Create && a.Is("", "pods")
}

// Admit implements admission.Mutator.
func (p *Plugin) Admit(_ context.Context, a *admission.Attributes) error {
	class, err := p.classOf(a)
	if class == nil {
		return err
	}
	spec := tree.Clone(a.Object["spec"])
	if class.Overhead != nil {
		if has := tree.As(spec["overhead"]); len(has) > 0 && !same(has, class.Overhead.PodFixed) {
			return upstream.NewForbidden(a, errOverhead)
		}
		setOverhead(spec, class.Overhead.PodFixed)
	}
	if class.Scheduling != nil {
		if err := selectNodes(spec, class.Scheduling.NodeSelector); err != nil {
			return upstream.NewForbidden(a, err)
		}
		tolerations.Set(spec, tolerations.Merge(tolerations.Of(tree.List(spec["tolerations"])), class.Scheduling.Tolerations))
	}
	a.Object["spec"] = spec
	return nil
}

// Validate implements admission.Validator: the overhead is what the class says, and without
// a class there is none.
func (p *Plugin) Validate(_ context.Context, a *admission.Attributes) error {
	class, err := p.classOf(a)
	if err != nil {
		return err
	}
	overhead := tree.Field(a.Object, "spec", "overhead")
	switch {
	case class != nil && class.Overhead != nil:
		if !same(tree.As(overhead), class.Overhead.PodFixed) {
			return upstream.NewForbidden(a, errOverhead)
		}
	case overhead != nil:
		return upstream.NewForbidden(a, errors.New("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"))
	}
	return nil
}

var errOverhead = errors.New("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")

// classOf is the class that a Pod names, nil if it names none. Errors: there is no such class.
func (p *Plugin) classOf(a *admission.Attributes) (*nodev1.RuntimeClass, error) {
	name, named := tree.Field(a.Object, "spec", "runtimeClassName").(string)
	if !named {
		return nil, nil
	}
	a.Consulted(admission.Rules(proto.RuleRuntimeClasses))
	class := p.classes.Get("", name)
	if class == nil {
		return nil, upstream.NewForbidden(a, fmt.Errorf("pod rejected: RuntimeClass %q not found", name))
	}
	return class, nil
}

func setOverhead(spec tree.Object, fixed corev1.ResourceList) {
	delete(spec, "overhead")
	if len(fixed) == 0 {
		return
	}
	out := tree.Object{}
	for name, q := range fixed {
		out[string(name)] = q.String()
	}
	spec["overhead"] = out
}

// same reports whether the overhead of a Pod is that of a class.
func same(overhead tree.Object, fixed corev1.ResourceList) bool {
	if len(overhead) != len(fixed) {
		return false
	}
	for name, v := range overhead {
		q, err := tree.ParseQuantity(tree.Scalar(v))
		want, ok := fixed[corev1.ResourceName(name)]
		if err != nil || !ok || !equality.Semantic.DeepEqual(q, want) {
			return false
		}
	}
	return true
}

// selectNodes adds a class's node selector to that of a Pod. Errors: they contradict each other.
func selectNodes(spec tree.Object, selector map[string]string) error {
	if len(selector) == 0 {
		return nil
	}
	merged := tree.Clone(spec["nodeSelector"])
	for key, value := range selector {
		if has, ok := merged[key].(string); ok && has != value {
			return fmt.Errorf("conflict: runtimeClass.scheduling.nodeSelector[%s] = %s; pod.spec.nodeSelector[%s] = %s", key, value, key, has)
		}
		merged[key] = value
	}
	spec["nodeSelector"] = merged
	return nil
}
