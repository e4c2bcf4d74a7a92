package builtin

import (
	"fmt"
	"maps"
	"strings"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/objects/storage"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/apiserver/wire/status"
	"github.com/quorate/quorate/raftstore/mvcc"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var (
	podsGVR     = apischema.GroupVersionResource{Version: "v1", Resource: "pods"}
	bindingKind = &kinds.Resource{
		Version: "v1", Kind: "Binding", Plural: "bindings", Singular: "binding", Namespaced: true, Model: "io.k8s.api.core.v1.Binding",
	}
)

// createBinding is posted to a pod, and as a Binding that names one.
var createBinding = objects.KeepingMeta(objects.Completed(objects.CreaterOf(bindingKind, bindPod), checkBinding))

var bindingStrategy = objects.Strategy{Post: createBinding}

func checkBinding(o *objects.Op, b *corev1.Binding) error {
	if o.Info.Subresource == "" {
		o.Info.Name = b.Name
	}
	if b.Name != o.Info.Name {
		return status.BadRequest("name in URL does not match name in Binding object")
	}
	var errs field.ErrorList
	if b.Target.Kind != "" && b.Target.Kind != "Node" {
		errs = append(errs, field.NotSupported(field.NewPath("target", "kind"), b.Target.Kind, []string{"Node", "<empty>"}))
	}
	if b.Target.Name == "" {
		errs = append(errs, field.Required(field.NewPath("target", "name"), ""))
	}
	return invalidBinding(o, errs)
}

// bindPod serves POST pods/NAME/binding and the older POST bindings: it says on which
// node a pod runs, once.
func bindPod(o *objects.Op, b *corev1.Binding) (objects.Created, error) {
	if b.Name == "" {
		return objects.Created{}, status.BadRequest("Name parameter required.")
	}
	if wrong := tree.PathSegmentName(b.Name, false); len(wrong) > 0 {
		return objects.Created{}, status.BadRequest("Name parameter invalid: %q: %s", b.Name, strings.Join(wrong, ";"))
	}
	pods, err := o.Derived(podsGVR, b.Name, "update")
	if err != nil {
		return objects.Created{}, err
	}
	w, err := pods.GuaranteedUpdate(pods.Key(), func(cur *mvcc.Version) (objects.Change, error) { return decideBinding(pods, b, cur) })
	if err != nil {
		return objects.Created{}, err
	}
	if w.Version == nil {
		return objects.Created{}, nil
	}
	return objects.Created{Revision: w.Version.Revision}, nil
}

func invalidBinding(o *objects.Op, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return status.Invalid(bindingKind.GVK().GroupKind(), o.Info.Name, errs)
}

func decideBinding(o *objects.Op, b *corev1.Binding, cur *mvcc.Version) (objects.Change, error) {
	if cur == nil {
		return objects.Change{}, o.NotFound()
	}
	if err := o.CheckStorage(string(b.UID), b.ResourceVersion, cur); err != nil {
		return objects.Change{}, err
	}
	old, obj, meta, err := o.Editable(cur)
	if err != nil {
		return objects.Change{}, err
	}
	spec := tree.Clone(obj["spec"])
	gates, _ := spec["schedulingGates"].([]any)
	switch node := tree.Text(spec, "nodeName"); {
	case tree.Text(meta, "deletionTimestamp") != "":
		return objects.Change{}, bindingConflict(b.Name, "pod %s is being deleted, cannot be assigned to a host", b.Name)
	case node != "":
		// A pod is bound once: no newer version can take that back.
		return objects.Change{}, storage.Permanent{Err: bindingConflict(b.Name, "pod %v is already assigned to node %q", b.Name, node)}
	case len(gates) > 0:
		return objects.Change{}, bindingConflict(b.Name, "pod %v has non-empty .spec.schedulingGates", b.Name)
	}
	spec["nodeName"] = b.Target.Name
	obj["spec"] = spec
	mergeInto(meta, "annotations", b.Annotations)
	mergeInto(meta, "labels", b.Labels)
	state := tree.Clone(obj["status"])
	delete(state, "nominatedNodeName")
	setPodCondition(o, state, tree.Object{"type": "PodScheduled", "status": "True"})
	obj["status"] = state
	// Where a pod runs is no change that its generation counts.
	base := maps.Clone(old)
	base["spec"] = spec
	// Nor has who binds it an entry in managedFields, for what the binding says of the pod.
	was := tree.Clone(old["metadata"])
	tree.CopyField(was, meta, "annotations")
	tree.CopyField(was, meta, "labels")
	base["metadata"] = was
	return o.Replace(cur, obj, base)
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
func setPodCondition(o *objects.Op, state, set tree.Object) {
	set["lastProbeTime"] = nil
	state["conditions"] = tree.SetCondition(state["conditions"], set, o.Store.Now())
}
