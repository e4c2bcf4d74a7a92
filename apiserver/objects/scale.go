package objects

import (
	"github.com/quorate/quorate/apiserver/kinds"
	"github.com/quorate/quorate/apiserver/patch"
	"github.com/quorate/quorate/apiserver/schema"
	"github.com/quorate/quorate/apiserver/status"
	"github.com/quorate/quorate/apiserver/tree"
	"github.com/quorate/quorate/raftstore/mvcc"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// scaleKind is the Scale as a resource of its own, for decoding, negotiation
// and answers.
var scaleKind = &kinds.Resource{
	Group: "autoscaling", Version: "v1", Kind: "Scale", Plural: "scales", Singular: "scale",
	Namespaced: true, Model: "io.k8s.api.autoscaling.v1.Scale",
}

// scaleOf shows an object as a Scale.
func (o *Op) scaleOf(obj tree.Object) tree.Object {
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
		"kind": scaleKind.Kind, "apiVersion": scaleKind.GroupVersion().String(),
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

// Scale is the number of replicas of an object, which is shown as a Scale.
var Scale Target = scale{}

type scale struct{}

func (scale) Kind(*Op) *kinds.Resource { return scaleKind }

func (scale) Shown(o *Op, obj tree.Object) tree.Object { return o.scaleOf(obj) }

// configuration is the object as far as a Scale shows it.
func (scale) configuration(o *Op, body tree.Object, _ *schema.Model) (tree.Object, error) {
	if _, err := CheckKind(body, scaleKind.GVK()); err != nil {
		return nil, err
	}
	sent, err := tree.Meta(body)
	if err != nil {
		return nil, err
	}
	meta := tree.Object{}
	for _, name := range [...]string{"name", "namespace", "uid", "resourceVersion"} {
		if v, ok := sent[name]; ok {
			meta[name] = v
		}
	}
	c := tree.Object{"kind": o.Resource.Kind, "apiVersion": o.Resource.GroupVersion().String(), "metadata": meta}
	if replicas := tree.Lookup(body, "spec.replicas"); replicas != nil {
		err = tree.Set(c, o.Subresource.SpecReplicas, replicas)
	}
	return c, err
}

func (scale) inserts() bool { return false }

// match leaves it to take, which also a patch comes by.
func (scale) match(*Op, tree.Object, *mvcc.Version) error { return nil }

func (scale) patched(o *Op, p *patch.Patch, old tree.Object, _ *mvcc.Version) (tree.Object, error) {
	model, err := ModelOf(scaleKind)
	if err != nil {
		return nil, err
	}
	sent, err := p.Apply(o.scaleOf(old), model.PatchMeta())
	if err != nil {
		return nil, err
	}
	if err := o.saysVersion(p, sent, scaleKind.GVK()); err != nil {
		return nil, err
	}
	return sent, o.fitPatched(p, sent, model)
}

func (scale) take(o *Op, sent, old tree.Object, cur *mvcc.Version) (tree.Object, error) {
	if err := o.checkSent(sent, cur); err != nil {
		return nil, err
	}
	obj, meta, err := tree.WithOwnMeta(old)
	if err != nil {
		return nil, err
	}
	at := "spec.replicas"
	if o.applying { // what was merged is the object, with who owns its fields
		tree.CopyField(meta, tree.As(sent["metadata"]), "managedFields")
		at = o.Subresource.SpecReplicas
	}
	replicas, _ := tree.Int(tree.Lookup(sent, at))
	if replicas < 0 && !o.Resource.Custom { // whose validation looks at the field
		return nil, status.Invalid(scaleKind.GVK().GroupKind(), o.Info.Name, field.ErrorList{
			field.Invalid(field.NewPath("spec", "replicas"), replicas, apivalidation.IsNegativeErrorMsg),
		})
	}
	return obj, tree.Set(obj, o.Subresource.SpecReplicas, replicas)
}
