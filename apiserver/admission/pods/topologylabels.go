package pods

import (
	"context"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/types/state"
	"github.com/quorate/quorate/apiserver/types/tree"
	corev1 "k8s.io/api/core/v1"
)

// TopologyLabels copies labels of the Nodes in this node's state.
type TopologyLabels struct{ state *state.State }

// NewTopologyLabels returns the plugin.
func NewTopologyLabels(s *state.State) *TopologyLabels { return &TopologyLabels{s} }

// Handles implements admission.Plugin.
func (*TopologyLabels) Handles(a *admission.Attributes) bool {
	return a.Operation == admission.Create && a.Resource.Resource == "pods" && a.Resource.Group == "" &&
		(a.Subresource == "" || a.Subresource == "binding")
}

// Admit implements admission.Mutator: labels of a Binding become those of the Pod that it binds.
// A node that does not exist has no labels.
func (p *TopologyLabels) Admit(_ context.Context, a *admission.Attributes) error {
	name := nodeOf(a)
	if name == "" {
		return nil
	}
	node := p.state.Version(nodes, "", name)
	if node == nil {
		return nil
	}
	var labels tree.Object
	for _, key := range [...]string{corev1.LabelTopologyZone, corev1.LabelTopologyRegion} {
		value, ok := node.Labels.Get(key)
		if !ok {
			continue
		}
		if labels == nil {
			labels = tree.Clone(a.Meta()["labels"])
		}
		labels[key] = value
	}
	if labels != nil {
		a.Meta()["labels"] = labels
	}
	return nil
}

var nodes = corev1.Resource("nodes")

// nodeOf is the node on which a Pod runs, or is to run; empty if there is none.
func nodeOf(a *admission.Attributes) string {
	if a.Subresource == "" {
		return tree.Text(tree.As(a.Object["spec"]), "nodeName")
	}
	target := tree.As(a.Object["target"])
	if tree.Text(target, "kind") != "Node" {
		return ""
	}
	return tree.Text(target, "name")
}
