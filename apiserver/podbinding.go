package apiserver

import (
	"fmt"
	"maps"

	"github.com/quorate/quorate/apiserver/kinds"
	"github.com/quorate/quorate/apiserver/revise"
	"github.com/quorate/quorate/apiserver/status"
	"github.com/quorate/quorate/apiserver/tree"
	"github.com/quorate/quorate/raftstore/mvcc"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var (
	podsResource    = apischema.GroupVersionResource{Version: "v1", Resource: "pods"}
	bindingResource = &kinds.Resource{
		Version: "v1", Kind: "Binding", Plural: "bindings", Singular: "binding", Namespaced: true, Model: "io.k8s.api.core.v1.Binding",
	}
)

// bindPod serves POST pods/NAME/binding and the older POST bindings: it says on which
// node a pod runs, once.
func (c *call) bindPod() error {
	var b corev1.Binding
	if _, err := c.readPosted(bindingResource, &b); err != nil {
		return err
	}
	if b.Namespace != "" && b.Namespace != c.info.ObjectNamespace {
		return status.NamespaceMismatch()
	}
	if c.info.Subresource == "" {
		c.info.Name = b.Name
	}
	if b.Name != c.info.Name {
		return status.BadRequest("name in URL does not match name in Binding object")
	}
	var errs field.ErrorList
	if b.Target.Kind != "" && b.Target.Kind != "Node" {
		errs = append(errs, field.NotSupported(field.NewPath("target", "kind"), b.Target.Kind, []string{"Node", "<empty>"}))
	}
	if b.Target.Name == "" {
		errs = append(errs, field.Required(field.NewPath("target", "name"), ""))
	}
	if err := c.invalidBinding(errs); err != nil {
		return err
	}
	pods, err := c.derived(podsResource, b.Name, "update")
	if err != nil {
		return err
	}
	w, err := pods.mutate(pods.key(), func(cur *mvcc.Version) (change, error) { return pods.decideBinding(&b, cur) })
	if err != nil {
		return err
	}
	if w.version != nil {
		c.read(w.version.Revision)
	}
	return c.answerDone()
}

func (c *call) invalidBinding(errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return status.Invalid(bindingResource.GVK().GroupKind(), c.info.Name, errs)
}

func (o *op) decideBinding(b *corev1.Binding, cur *mvcc.Version) (change, error) {
	if cur == nil {
		return change{}, o.notFound()
	}
	if err := o.checkIdentity(tree.Object{"uid": string(b.UID), "resourceVersion": b.ResourceVersion}, cur); err != nil {
		return change{}, err
	}
	old, obj, meta, err := o.editable(cur)
	if err != nil {
		return change{}, err
	}
	spec := tree.Clone(obj["spec"])
	gates, _ := spec["schedulingGates"].([]any)
	switch node := tree.Text(spec, "nodeName"); {
	case tree.Text(meta, "deletionTimestamp") != "":
		return change{}, bindingConflict(b.Name, "pod %s is being deleted, cannot be assigned to a host", b.Name)
	case node != "":
		// A pod is bound once: no newer version can take that back.
		return change{}, revise.Settled{Err: bindingConflict(b.Name, "pod %v is already assigned to node %q", b.Name, node)}
	case len(gates) > 0:
		return change{}, bindingConflict(b.Name, "pod %v has non-empty .spec.schedulingGates", b.Name)
	}
	spec["nodeName"] = b.Target.Name
	obj["spec"] = spec
	mergeInto(meta, "annotations", b.Annotations)
	mergeInto(meta, "labels", b.Labels)
	state := tree.Clone(obj["status"])
	delete(state, "nominatedNodeName")
	o.setPodCondition(state, tree.Object{"type": "PodScheduled", "status": "True"})
	obj["status"] = state
	// Where a pod runs is no change that its generation counts.
	base := maps.Clone(old)
	base["spec"] = spec
	return o.replace(cur, obj, base)
}

func bindingConflict(name, format string, args ...any) error {
	return apierrors.NewConflict(apischema.GroupResource{Resource: "pods/binding"}, name, fmt.Errorf(format, args...))
}

// mergeInto adds labels or annotations to metadata.
func mergeInto(meta tree.Object, name string, more map[string]string) {
	if len(more) == 0 {
		return
	}
	m := tree.Clone(meta[name])
	for k, v := range more {
		m[k] = v
	}
	meta[name] = m
}

// setPodCondition sets a condition of a pod's status.
func (o *op) setPodCondition(state, set tree.Object) {
	set["lastProbeTime"] = nil
	state["conditions"] = tree.SetCondition(state["conditions"], set, o.s.cfg.Now())
}
