package apiserver

import (
	"net/http"

	"github.com/quorate/quorate/apiserver/codec"
	"github.com/quorate/quorate/apiserver/kinds"
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

// scaleResource is the Scale as a resource of its own, for decoding, negotiation
// and answers.
var scaleResource = &kinds.Resource{
	Group: "autoscaling", Version: "v1", Kind: "Scale", Plural: "scales", Singular: "scale",
	Namespaced: true, Model: "io.k8s.api.autoscaling.v1.Scale",
}

// scale serves the scale subresource: a small object that shows and changes the
// number of replicas, at the paths that the resource declares.
func (c *call) scale() error {
	if c.info.Verb == "patch" && c.isApply() {
		return c.applyToScale()
	}
	if c.info.Verb != "get" {
		options := "UpdateOptions"
		if c.info.Verb == "patch" {
			options = "PatchOptions"
		}
		if err := c.writeOptions(options); err != nil {
			return err
		}
	}
	f, err := c.format(scaleResource, codec.ShapeObject)
	if err != nil {
		return err
	}
	var v *mvcc.Version
	switch c.info.Verb {
	case "get":
		v, err = c.readOne()
	case "update":
		return c.updateScale(f)
	case "patch":
		return c.patchScale(f)
	default:
		return status.NoSuchMethod()
	}
	if err != nil {
		return err
	}
	obj, err := c.decode(v)
	if err != nil {
		return err
	}
	return c.answerScale(f, obj)
}

func (c *call) answerScale(f codec.Format, obj tree.Object) error {
	return codec.WriteTree(c, c.r, f, http.StatusOK, scaleResource, c.scaleOf(obj))
}

// scaleOf shows an object as a Scale.
func (o *op) scaleOf(obj tree.Object) tree.Object {
	meta, _ := obj["metadata"].(tree.Object)
	shown := tree.Object{}
	for _, name := range [...]string{"name", "namespace", "uid", "resourceVersion", "creationTimestamp"} {
		if v, ok := meta[name]; ok {
			shown[name] = v
		}
	}
	spec, state := tree.Object{}, tree.Object{"replicas": int64(0)}
	if n, ok := tree.Int(tree.Lookup(obj, o.sub.SpecReplicas)); ok && n != 0 {
		spec["replicas"] = n
	}
	if n, ok := tree.Int(tree.Lookup(obj, o.sub.StatusReplicas)); ok {
		state["replicas"] = n
	}
	if o.sub.Selector != "" {
		if s := selectorText(tree.Lookup(obj, o.sub.Selector)); s != "" {
			state["selector"] = s
		}
	}
	return tree.Object{
		"kind": scaleResource.Kind, "apiVersion": scaleResource.GroupVersion().String(),
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

func (c *call) updateScale(f codec.Format) error {
	model, err := schema.Lookup(scaleResource.Model)
	if err != nil {
		return err
	}
	sent, err := c.readObject(scaleResource, model)
	if err != nil {
		return err
	}
	if err := c.matchPath(sent); err != nil {
		return err
	}
	w, err := c.mutate(c.key(), func(cur *mvcc.Version) (change, error) {
		if cur == nil {
			return change{}, c.notFound()
		}
		old, err := c.decode(cur)
		if err != nil {
			return change{}, err
		}
		return c.applyScale(cur, sent, old)
	})
	if err != nil {
		return err
	}
	return c.answerScale(f, w.obj)
}

func (c *call) patchScale(f codec.Format) error {
	_, p, _, err := c.readPatch()
	if err != nil {
		return err
	}
	model, err := schema.Lookup(scaleResource.Model)
	if err != nil {
		return err
	}
	w, err := c.mutate(c.key(), func(cur *mvcc.Version) (change, error) {
		if cur == nil {
			return change{}, c.notFound()
		}
		old, err := c.decode(cur)
		if err != nil {
			return change{}, err
		}
		sent, err := p.Apply(c.scaleOf(old), model.PatchMeta())
		if err != nil {
			return change{}, err
		}
		unknown, err := model.Fit(sent)
		if err != nil {
			return change{}, c.unfitPatch(p, err)
		}
		if err := c.patchFindings(p, unknown); err != nil {
			return change{}, err
		}
		if err := c.matchPath(sent); err != nil {
			return change{}, err
		}
		return c.applyScale(cur, sent, old)
	})
	if err != nil {
		return err
	}
	return c.answerScale(f, w.obj)
}

// applyScale writes a Scale's spec.replicas into the object.
func (o *op) applyScale(cur *mvcc.Version, sent, old tree.Object) (change, error) {
	meta, err := tree.Meta(sent)
	if err != nil {
		return change{}, err
	}
	if err := o.checkIdentity(meta, cur); err != nil {
		return change{}, err
	}
	obj, _, err := tree.WithOwnMeta(old)
	if err != nil {
		return change{}, err
	}
	return o.rescale(cur, obj, old, tree.Lookup(sent, "spec.replicas"))
}

// rescale writes a number of replicas into obj, which has metadata of its own.
func (o *op) rescale(cur *mvcc.Version, obj, old tree.Object, wanted any) (change, error) {
	replicas, _ := tree.Int(wanted)
	if replicas < 0 && !o.res.Custom { // whose validation looks at the field
		return change{}, status.Invalid(scaleResource.GVK().GroupKind(), o.info.Name, field.ErrorList{
			field.Invalid(field.NewPath("spec", "replicas"), replicas, apivalidation.IsNegativeErrorMsg),
		})
	}
	if err := tree.Set(obj, o.sub.SpecReplicas, replicas); err != nil {
		return change{}, err
	}
	ch, err := o.replace(cur, obj, old)
	if ch.none {
		ch.obj = old
	}
	return ch, err
}
