// Package podresize is upstream's plugin PodResizeValidator: a Pod that runs can get no more than
// its node has to give, and only on Linux.
package podresize

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/types/state"
	"github.com/quorate/quorate/apiserver/types/tree"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	upstream "k8s.io/apiserver/pkg/admission"
	"k8s.io/component-helpers/resource"
)

// Plugin holds Pods against the Nodes in this node's state.
type Plugin struct{ state *state.State }

// New returns the plugin.
func New(s *state.State) *Plugin { return &Plugin{s} }

// Handles implements admission.Plugin.
func (*Plugin) Handles(a *admission.Attributes) bool {
	return a.Subresource == "resize" && a.Operation == admission.Update && a.Resource.Resource == "pods" && a.Resource.Group == ""
}

// Validate implements admission.Validator.
func (p *Plugin) Validate(_ context.Context, a *admission.Attributes) error {
	name := tree.Text(tree.As(a.Object["spec"]), "nodeName")
	if name == "" || tree.Equal(tree.Field(a.Old, "metadata", "generation"), tree.Field(a.Object, "metadata", "generation")) {
		return nil // what it asks for has not changed
	}
	node, err := state.Get[corev1.Node](p.state, corev1.Resource("nodes"), "", name)
	switch {
	case err != nil:
		return upstream.NewForbidden(a, fmt.Errorf("failed to get node %q: %w", name, err))
	case node == nil:
		return upstream.NewForbidden(a, fmt.Errorf("node %q not found", name))
	}
	if system, ok := node.Labels[corev1.LabelOSStable]; ok && system != "linux" {
		return refuse(a, fmt.Errorf("pod resize is only supported on linux nodes, node %q is %q", name, system), "UnsupportedPlatform")
	}
	pod := &corev1.Pod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(a.Object, pod); err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("failed to convert pod: %v", err))
	}
	if err := fits(pod, node.Status.Allocatable); err != nil {
		return refuse(a, err, "NodeCapacity")
	}
	return nil
}

// fits reports what a Pod requests that a node does not have, whatever else runs there.
func fits(pod *corev1.Pod, allocatable corev1.ResourceList) error {
	requests := resource.PodRequests(pod, resource.PodResourcesOptions{})
	cpu, memory := requests[corev1.ResourceCPU], requests[corev1.ResourceMemory]
	var lacks []string
	if has := allocatable.Cpu(); cpu.Cmp(*has) > 0 {
		lacks = append(lacks, fmt.Sprintf("cpu, requested: %d, allocatable: %d", cpu.MilliValue(), has.MilliValue()))
	}
	if has := allocatable.Memory(); memory.Cmp(*has) > 0 {
		lacks = append(lacks, fmt.Sprintf("memory, requested: %d, allocatable: %d", memory.Value(), has.Value()))
	}
	if len(lacks) > 0 {
		return fmt.Errorf("node didn't have enough allocatable resources: %s", strings.Join(lacks, "; "))
	}
	return nil
}

func refuse(a *admission.Attributes, why error, cause metav1.CauseType) error {
	err := upstream.NewForbidden(a, why)
	var status *apierrors.StatusError
	if errors.As(err, &status) {
		status.ErrStatus.Details.Causes = append(status.ErrStatus.Details.Causes, metav1.StatusCause{Type: cause})
	}
	return err
}
