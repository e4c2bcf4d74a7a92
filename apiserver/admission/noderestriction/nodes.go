package noderestriction

import (
	"fmt"
	"slices"
	"strings"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/types/tree"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/diff"
	kubeletapis "k8s.io/kubelet/pkg/apis"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1conversion "k8s.io/kubernetes/pkg/apis/core/v1"
)

func (p *Plugin) node(node string, a *admission.Attributes) error {
	if name := nameOf(a); name != node {
		return a.Forbidden(fmt.Errorf("node %q is not allowed to modify node %q", node, name))
	}
	switch a.Operation {
	case admission.Create:
		if tree.As(a.Object["spec"])["configSource"] != nil {
			return a.Forbidden(fmt.Errorf("node %q is not allowed to create pods with a non-nil configSource", node))
		}
		if labels := forbiddenLabels(a.Meta(), nil); len(labels) > 0 {
			return a.Forbidden(fmt.Errorf("node %q is not allowed to set the following labels: %s", node, strings.Join(labels, ", ")))
		}
	case admission.Update:
		return nodeUpdate(node, a)
	}
	return nil
}

// nodeUpdate: what steers Pods to a Node is not the kubelet's to change.
func nodeUpdate(node string, a *admission.Attributes) error {
	//lint:ignore SA1019 the field is served, and upstream guards it
	if source := tree.As(a.Object["spec"])["configSource"]; source != nil && changed(a, func(n *corev1.Node) any { return n.Spec.ConfigSource }, "spec", "configSource") {
		return a.Forbidden(fmt.Errorf("node %q is not allowed to update configSource to a new non-nil configSource", node))
	}
	if changed(a, func(n *corev1.Node) any { return n.Spec.Taints }, "spec", "taints") {
		return a.Forbidden(fmt.Errorf("node %q is not allowed to modify taints", node))
	}
	if changed(a, func(n *corev1.Node) any { return n.OwnerReferences }, "metadata", "ownerReferences") {
		return a.Forbidden(fmt.Errorf("node %q is not allowed to modify ownerReferences", node))
	}
	if labels := forbiddenLabels(a.Meta(), tree.As(a.Old["metadata"])); len(labels) > 0 {
		return a.Forbidden(fmt.Errorf("is not allowed to modify labels: %s", strings.Join(labels, ", ")))
	}
	return nil
}

// changed reports whether a field of a Node has another meaning. Trees that are equal are not decoded,
// and kubelets hardly ever send others.
func changed(a *admission.Attributes, field func(*corev1.Node) any, path ...string) bool {
	is, was := tree.Field(a.Object, path...), tree.Field(a.Old, path...)
	if is == nil && was == nil || tree.Equal(is, was) {
		return false
	}
	var now, old corev1.Node
	if runtime.DefaultUnstructuredConverter.FromUnstructured(a.Object, &now) != nil || runtime.DefaultUnstructuredConverter.FromUnstructured(a.Old, &old) != nil {
		return true
	}
	return !equality.Semantic.DeepEqual(field(&now), field(&old))
}

// forbiddenLabels are those that differ and that a kubelet must not set, in their order.
func forbiddenLabels(meta, oldMeta tree.Object) (out []string) {
	now, old := tree.As(meta["labels"]), tree.As(oldMeta["labels"])
	for k, v := range now {
		if was, ok := old[k]; (!ok || was != v) && forbiddenLabel(k) {
			out = append(out, k)
		}
	}
	for k := range old {
		if _, ok := now[k]; !ok && forbiddenLabel(k) {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return out
}

func forbiddenLabel(label string) bool {
	namespace, _, ok := strings.Cut(label, "/")
	if !ok {
		return false
	}
	if within(namespace, corev1.LabelNamespaceNodeRestriction) {
		return true
	}
	return (within(namespace, "kubernetes.io") || within(namespace, "k8s.io")) && !kubeletapis.IsKubeletLabel(label)
}

// within reports whether a domain is another one or below it.
func within(domain, other string) bool {
	return domain == other || strings.HasSuffix(domain, "."+other)
}

// claimStatus lets a kubelet say how large a volume is, and how far it is with making it larger.
func (p *Plugin) claimStatus(node string, a *admission.Attributes) error {
	if a.Operation != admission.Update {
		return a.Forbidden(fmt.Errorf("unexpected operation %q", a.Operation))
	}
	now, err := claimWithoutSize(a.Object)
	if err != nil {
		return a.Forbidden(err)
	}
	old, err := claimWithoutSize(a.Old)
	if err != nil {
		return a.Forbidden(err)
	}
	if !equality.Semantic.DeepEqual(old, now) {
		return a.Forbidden(fmt.Errorf("node %q is not allowed to update fields other than status.quantity and status.conditions: %v", node, diff.Diff(old, now)))
	}
	return nil
}

// claimWithoutSize is a claim without what a kubelet may change of it, in the type in which upstream
// shows differences.
func claimWithoutSize(obj tree.Object) (*core.PersistentVolumeClaim, error) {
	var claim corev1.PersistentVolumeClaim
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj, &claim); err != nil {
		return nil, err
	}
	claim.ResourceVersion, claim.ManagedFields = "", nil
	claim.Status.Capacity, claim.Status.Conditions = nil, nil
	claim.Status.AllocatedResourceStatuses, claim.Status.AllocatedResources = nil, nil
	internal := &core.PersistentVolumeClaim{}
	return internal, corev1conversion.Convert_v1_PersistentVolumeClaim_To_core_PersistentVolumeClaim(&claim, internal, nil)
}
