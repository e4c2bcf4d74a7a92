package pods

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/types/state"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/proto"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	upstream "k8s.io/apiserver/pkg/admission"
)

// Priority sets priorities by the PriorityClasses in this node's state.
type Priority struct {
	classes *state.Objects[schedulingv1.PriorityClass]
}

// NewPriority returns the plugin.
func NewPriority(s *state.State, log *slog.Logger) *Priority {
	return &Priority{state.All[schedulingv1.PriorityClass](s, schedulingv1.Resource("priorityclasses"), log)}
}

// Handles implements admission.Plugin.
func (*Priority) Handles(a *admission.Attributes) bool {
	return (a.Operation == admission.Create || a.Operation == admission.Update) &&
		(a.Is("", "pods") || a.Is(schedulingv1.GroupName, "priorityclasses"))
}

// Admit implements admission.Mutator: it completes Pods.
func (p *Priority) Admit(_ context.Context, a *admission.Attributes) error {
	switch {
	case !a.Is("", "pods"):
		return nil
	case a.Operation == admission.Update:
		keep(a)
		return nil
	}
	return p.resolve(a)
}

// keep makes an update that leaves out what this plugin has set one that does not change it.
func keep(a *admission.Attributes) {
	spec, old := tree.As(a.Object["spec"]), tree.As(a.Old["spec"])
	for _, name := range [...]string{"priority", "preemptionPolicy"} {
		if spec[name] == nil && old[name] != nil {
			spec = tree.Clone(spec)
			spec[name] = old[name]
			a.Object["spec"] = spec
		}
	}
}

// resolve sets the priority of a new Pod.
func (p *Priority) resolve(a *admission.Attributes) error {
	a.Consulted(admission.Rules(proto.RulePriorityClasses))
	spec := tree.Clone(a.Object["spec"])
	name, value, policy := tree.Text(spec, "priorityClassName"), int64(0), string(corev1.PreemptLowerPriority)
	class := p.standard()
	if name != "" {
		if class = p.classes.Get("", name); class == nil {
			return upstream.NewForbidden(a, fmt.Errorf("no PriorityClass with name %v was found", name))
		}
	}
	if class != nil {
		name, value, policy = class.Name, int64(class.Value), ""
		if class.PreemptionPolicy != nil {
			policy = string(*class.PreemptionPolicy)
		}
	}
	if has, ok := tree.Int(spec["priority"]); ok && has != value {
		return upstream.NewForbidden(a, fmt.Errorf("the integer value of priority (%d) must not be provided in pod spec; priority admission controller computed %d from the given PriorityClass name", has, value))
	}
	if has, ok := spec["preemptionPolicy"].(string); ok && policy != "" && has != policy {
		return upstream.NewForbidden(a, fmt.Errorf("the string value of PreemptionPolicy (%s) must not be provided in pod spec; priority admission controller computed %s from the given PriorityClass name", has, policy))
	}
	if spec["priority"] = value; name != "" {
		spec["priorityClassName"] = name
	}
	if policy != "" {
		spec["preemptionPolicy"] = policy
	}
	a.Object["spec"] = spec
	return nil
}

// standard is the class of Pods that name none, nil if there is none. Several of them can only be
// there from before this plugin was: then it is the lowest.
func (p *Priority) standard() *schedulingv1.PriorityClass {
	var lowest *schedulingv1.PriorityClass
	for _, c := range p.classes.List() {
		if c.GlobalDefault && (lowest == nil || lowest.Value > c.Value) {
			lowest = c
		}
	}
	return lowest
}

// Validate implements admission.Validator: it refuses a second default class. No race can make
// two: the write depends on the table.
func (p *Priority) Validate(_ context.Context, a *admission.Attributes) error {
	if marked, _ := a.Object["globalDefault"].(bool); !marked || !a.Is(schedulingv1.GroupName, "priorityclasses") {
		return nil
	}
	a.Consulted(admission.Rules(proto.RulePriorityClasses))
	has := p.standard()
	if has == nil || a.Operation == admission.Update && has.Name == tree.Text(a.Meta(), "name") {
		return nil
	}
	return upstream.NewForbidden(a, fmt.Errorf("PriorityClass %v is already marked as default. Only one default can exist", has.Name))
}
