package pods

import (
	"context"
	"fmt"
	"strings"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/types/state"
	"github.com/quorate/quorate/apiserver/types/tree"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/version"
	upstream "k8s.io/apiserver/pkg/admission"
	ndf "k8s.io/component-helpers/nodedeclaredfeatures"
	"k8s.io/component-helpers/nodedeclaredfeatures/types"
)

// DeclaredFeatures holds updates against the Nodes in this node's state.
type DeclaredFeatures struct {
	state   *state.State
	version *version.Version
}

// NewDeclaredFeatures returns the plugin. Features that every node of a version has, such as 1.36, are not asked for.
func NewDeclaredFeatures(s *state.State, minor string) (*DeclaredFeatures, error) {
	v, err := version.Parse(minor)
	if err != nil {
		return nil, fmt.Errorf("the version of Kubernetes: %w", err)
	}
	return &DeclaredFeatures{s, v}, nil
}

// Handles implements admission.Plugin.
func (*DeclaredFeatures) Handles(a *admission.Attributes) bool {
	return a.Operation == admission.Update && a.Resource.Resource == "pods" && a.Resource.Group == "" &&
		(a.Subresource == "" || a.Subresource == "resize")
}

// Validate implements admission.Validator.
func (p *DeclaredFeatures) Validate(_ context.Context, a *admission.Attributes) error {
	name := tree.Text(tree.As(a.Object["spec"]), "nodeName")
	if name == "" || tree.Equal(tree.Field(a.Old, "metadata", "generation"), tree.Field(a.Object, "metadata", "generation")) {
		return nil // its spec has not changed
	}
	now, old := &corev1.Pod{}, &corev1.Pod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(a.Object, now); err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("failed to convert pod: %v", err))
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(a.Old, old); err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("failed to convert oldPod: %v", err))
	}
	needs, err := ndf.DefaultFramework.InferForPodUpdate(&types.PodInfo{Spec: &old.Spec, Status: &old.Status}, &types.PodInfo{Spec: &now.Spec, Status: &now.Status}, p.version)
	if err != nil {
		return upstream.NewForbidden(a, fmt.Errorf("failed to infer pod capability requirements: %w", err))
	}
	if needs.IsEmpty() {
		return nil
	}
	node, err := state.Get[corev1.Node](p.state, corev1.Resource("nodes"), "", name)
	switch {
	case err != nil:
		return upstream.NewForbidden(a, fmt.Errorf("failed to get node %q: %w", name, err))
	case node == nil:
		return upstream.NewForbidden(a, fmt.Errorf("node %q not found", name))
	}
	result, err := ndf.DefaultFramework.MatchNode(needs, node)
	switch {
	case err != nil:
		return upstream.NewForbidden(a, fmt.Errorf("failed to match pod requirements against node %q: %w", name, err))
	case !result.IsMatch:
		return upstream.NewForbidden(a, fmt.Errorf("pod update requires features %s which are not available on node %q", strings.Join(result.UnsatisfiedRequirements, ", "), name))
	}
	return nil
}
