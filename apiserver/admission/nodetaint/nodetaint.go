// Package nodetaint is upstream's plugin TaintNodesByCondition: a new Node has the taint
// node.kubernetes.io/not-ready, so that nothing is scheduled there before it is ready.
package nodetaint

import (
	"context"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/types/tree"
	corev1 "k8s.io/api/core/v1"
)

// Plugin taints new Nodes.
type Plugin struct{}

// Handles implements admission.Plugin.
func (Plugin) Handles(a *admission.Attributes) bool {
	return a.Operation == admission.Create && a.Is("", "nodes")
}

// Admit implements admission.Mutator.
func (Plugin) Admit(_ context.Context, a *admission.Attributes) error {
	taints := tree.List(tree.Field(a.Object, "spec", "taints"))
	for _, v := range taints {
		if t := tree.As(v); tree.Text(t, "key") == corev1.TaintNodeNotReady && tree.Text(t, "effect") == string(corev1.TaintEffectNoSchedule) {
			return nil
		}
	}
	spec := tree.Clone(a.Object["spec"])
	spec["taints"] = append(taints[:len(taints):len(taints)], tree.Object{"key": corev1.TaintNodeNotReady, "effect": string(corev1.TaintEffectNoSchedule)})
	a.Object["spec"] = spec
	return nil
}
