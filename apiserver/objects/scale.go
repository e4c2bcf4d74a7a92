package objects

import (
	"github.com/quorate/quorate/apiserver/kinds"
	"github.com/quorate/quorate/apiserver/status"
	"github.com/quorate/quorate/apiserver/tree"
	"github.com/quorate/quorate/raftstore/mvcc"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ScaleResource is the Scale as a resource of its own, for decoding, negotiation
// and answers.
var ScaleKind = &kinds.Resource{
	Group: "autoscaling", Version: "v1", Kind: "Scale", Plural: "scales", Singular: "scale",
	Namespaced: true, Model: "io.k8s.api.autoscaling.v1.Scale",
}

// ScaleOf shows an object as a Scale.
func (o *Op) ScaleOf(obj tree.Object) tree.Object {
	meta, _ := obj["metadata"].(tree.Object)
	shown := tree.Object{}
	for _, name := range [...]string{"name", "namespace", "uid", "resourceVersion", "creationTimestamp"} {
		if v, ok := meta[name]; ok {
			shown[name] = v
		}
	}
	spec, state := tree.Object{}, tree.Object{"replicas": int64(0)}
	if n, ok := tree.Int(tree.Lookup(obj, o.Subresource.SpecReplicas)); ok && n != 0 {
		spec["replicas"] = n
	}
	if n, ok := tree.Int(tree.Lookup(obj, o.Subresource.StatusReplicas)); ok {
		state["replicas"] = n
	}
	if o.Subresource.Selector != "" {
		if s := selectorText(tree.Lookup(obj, o.Subresource.Selector)); s != "" {
			state["selector"] = s
		}
	}
	return tree.Object{
		"kind": ScaleKind.Kind, "apiVersion": ScaleKind.GroupVersion().String(),
		"metadata": shown, "spec": spec, "status": state,
	}
}

// selectorText is a selector as text: a LabelSelector, a plain map of labels, or
// already a string.
func selectorText(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case tree.Object:
		if _, ok := v["matchLabels"]; !ok && v["matchExpressions"] == nil {
			set := labels.Set{}
			for k, x := range v {
				set[k], _ = x.(string)
			}
			return set.String()
		}
		var s metav1.LabelSelector
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(v, &s); err != nil {
			return ""
		}
		selector, err := metav1.LabelSelectorAsSelector(&s)
		if err != nil {
			return ""
		}
		return selector.String()
	}
	return ""
}

// ApplyScale writes a Scale's spec.replicas into the object.
func (o *Op) ApplyScale(cur *mvcc.Version, sent, old tree.Object) (Change, error) {
	meta, err := tree.Meta(sent)
	if err != nil {
		return Change{}, err
	}
	if err := o.CheckIdentity(meta, cur); err != nil {
		return Change{}, err
	}
	obj, _, err := tree.WithOwnMeta(old)
	if err != nil {
		return Change{}, err
	}
	return o.Rescale(cur, obj, old, tree.Lookup(sent, "spec.replicas"))
}

// Rescale writes a number of replicas into obj, which has metadata of its own.
func (o *Op) Rescale(cur *mvcc.Version, obj, old tree.Object, wanted any) (Change, error) {
	replicas, _ := tree.Int(wanted)
	if replicas < 0 && !o.Resource.Custom { // whose validation looks at the field
		return Change{}, status.Invalid(ScaleKind.GVK().GroupKind(), o.Info.Name, field.ErrorList{
			field.Invalid(field.NewPath("spec", "replicas"), replicas, apivalidation.IsNegativeErrorMsg),
		})
	}
	if err := tree.Set(obj, o.Subresource.SpecReplicas, replicas); err != nil {
		return Change{}, err
	}
	ch, err := o.Replace(cur, obj, old)
	if ch.None {
		ch.Object = old
	}
	return ch, err
}
