package noderestriction

import (
	"errors"
	"fmt"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/types/tree"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1conversion "k8s.io/kubernetes/pkg/apis/core/v1"
)

func nodeNameOf(pod tree.Object) string { return tree.Text(tree.As(pod["spec"]), "nodeName") }

func (p *Plugin) pod(node string, a *admission.Attributes) error {
	switch a.Operation {
	case admission.Create:
		return p.mirrorPod(node, a)
	case admission.Delete:
		if a.Name == "" { // of a collection
			return notFound("pod", "")
		}
		if nodeNameOf(a.Old) != node {
			return a.Forbidden(fmt.Errorf("node %q can only delete pods with spec.nodeName set to itself", node))
		}
		return nil
	}
	return a.Forbidden(fmt.Errorf("unexpected operation %q, node %q can only create and delete mirror pods", a.Operation, node))
}

// mirrorPod lets a kubelet show the static Pods that it runs. They belong to its Node and name nothing
// that it would be allowed to read by that.
func (p *Plugin) mirrorPod(node string, a *admission.Attributes) error {
	if _, mirror := tree.As(a.Meta()["annotations"])[corev1.MirrorPodAnnotationKey]; !mirror {
		return a.Forbidden(fmt.Errorf("pod does not have %q annotation, node %q can only create mirror pods", corev1.MirrorPodAnnotationKey, node))
	}
	if nodeNameOf(a.Object) != node {
		return a.Forbidden(fmt.Errorf("node %q can only create pods with spec.nodeName set to itself", node))
	}
	if err := p.owner(node, a); err != nil {
		return err
	}
	var pod corev1.Pod
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(a.Object, &pod); err != nil {
		return a.Forbidden(err)
	}
	var internal core.Pod
	if err := corev1conversion.Convert_v1_Pod_To_core_Pod(&pod, &internal, nil); err != nil {
		return a.Forbidden(err)
	}
	references, what, err := podutil.HasAPIObjectReference(&internal)
	if err != nil {
		return a.Forbidden(fmt.Errorf("error checking mirror pod for API references: %w", err))
	}
	if references {
		return a.Forbidden(fmt.Errorf("node %q can not create pods that reference %s", node, what))
	}
	return nil
}

// owner checks that a Pod is owned by the Node alone.
func (p *Plugin) owner(node string, a *admission.Attributes) error {
	owners := tree.List(a.Meta()["ownerReferences"])
	if len(owners) > 1 {
		return a.Forbidden(fmt.Errorf("node %q can only create pods with a single owner reference set to itself", node))
	}
	if len(owners) == 0 {
		return a.Forbidden(fmt.Errorf("node %q can only create pods with an owner reference set to itself", node))
	}
	owner := tree.As(owners[0])
	switch {
	case tree.Text(owner, "apiVersion") != "v1", tree.Text(owner, "kind") != "Node", tree.Text(owner, "name") != node:
		return a.Forbidden(fmt.Errorf("node %q can only create pods with an owner reference set to itself", node))
	case owner["controller"] != true:
		return a.Forbidden(fmt.Errorf("node %q can only create pods with a controller owner reference set to itself", node))
	case owner["blockOwnerDeletion"] == true:
		return a.Forbidden(fmt.Errorf("node %q must not set blockOwnerDeletion on an owner reference", node))
	}
	v := p.state.Version(nodesResource, "", node)
	looked(a, nodesResource, "", node, v, v != nil && v.UID == tree.Text(owner, "uid"))
	if v == nil {
		return notFound("node", node)
	}
	if uid := tree.Text(owner, "uid"); uid != v.UID {
		return a.Forbidden(fmt.Errorf("node %s UID mismatch: expected %s got %s", node, uid, v.UID))
	}
	return nil
}

func (p *Plugin) podStatus(node string, a *admission.Attributes) error {
	if a.Operation != admission.Update {
		return a.Forbidden(fmt.Errorf("unexpected operation %q", a.Operation))
	}
	if nodeNameOf(a.Old) != node {
		return a.Forbidden(fmt.Errorf("node %q can only update pod status for pods with spec.nodeName set to itself", node))
	}
	if !sameText(tree.As(tree.As(a.Old["metadata"])["labels"]), tree.As(a.Meta()["labels"])) {
		return a.Forbidden(fmt.Errorf("node %q cannot update labels through pod status", node))
	}
	was, is := tree.As(a.Old["status"]), tree.As(a.Object["status"])
	if !sameItems(was["resourceClaimStatuses"], is["resourceClaimStatuses"], "name", "resourceClaimName") {
		return a.Forbidden(fmt.Errorf("node %q cannot update resource claim statues", node))
	}
	if !sameExtended(tree.As(was["extendedResourceClaimStatus"]), tree.As(is["extendedResourceClaimStatus"])) {
		return a.Forbidden(fmt.Errorf("node %q cannot update extended resource claim status", node))
	}
	return nil
}

func sameExtended(was, is tree.Object) bool {
	if was == nil || is == nil {
		return was == nil && is == nil
	}
	return tree.Text(was, "resourceClaimName") == tree.Text(is, "resourceClaimName") &&
		sameItems(was["requestMappings"], is["requestMappings"], "containerName", "resourceName", "requestName")
}

// sameItems compares fields of the items of two lists; a field may be missing.
func sameItems(a, b any, names ...string) bool {
	x, y := tree.List(a), tree.List(b)
	if len(x) != len(y) {
		return false
	}
	for i := range x {
		for _, name := range names {
			if tree.As(x[i])[name] != tree.As(y[i])[name] {
				return false
			}
		}
	}
	return true
}

func sameText(a, b tree.Object) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if w, ok := b[k]; !ok || w != v {
			return false
		}
	}
	return true
}

func (p *Plugin) eviction(node string, a *admission.Attributes) error {
	if a.Operation != admission.Create {
		return a.Forbidden(fmt.Errorf("unexpected operation %s", a.Operation))
	}
	name := a.Name
	if name == "" {
		if name = tree.Text(a.Meta(), "name"); name == "" {
			return a.Forbidden(errors.New("could not determine pod from request data"))
		}
	}
	v := p.state.Version(podsResource, a.Namespace, name)
	if v == nil {
		looked(a, podsResource, a.Namespace, name, nil, false)
		return notFound("pod", name)
	}
	on, _ := v.Fields.Get("spec.nodeName")
	looked(a, podsResource, a.Namespace, name, v, on == node)
	if on != node {
		return a.Forbidden(fmt.Errorf("node %s can only evict pods with spec.nodeName set to itself", node))
	}
	return nil
}
