package objects

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"

	"github.com/quorate/quorate/apiserver/objects/patch"
	"github.com/quorate/quorate/apiserver/objects/storage"
	"github.com/quorate/quorate/apiserver/types/kinds"
	models "github.com/quorate/quorate/apiserver/types/schema"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/apiserver/wire/status"
	"github.com/quorate/quorate/raftstore/mvcc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// scaleKind is the Scale as a resource of its own, for decoding, negotiation
// and answers.
var scaleKind = &kinds.Resource{
	Group: "autoscaling", Version: "v1", Kind: "Scale", Plural: "scales", Singular: "scale",
	Namespaced: true, Model: "io.k8s.api.autoscaling.v1.Scale",
}

// scaleOf shows an object as a Scale.
func (r *Request) scaleOf(obj tree.Object) tree.Object {
	meta, _ := obj["metadata"].(tree.Object)
	shown := tree.Object{}
	for _, name := range [...]string{"name", "namespace", "uid", "resourceVersion", "creationTimestamp"} {
		if v, ok := meta[name]; ok {
			shown[name] = v
		}
	}
	spec, state := tree.Object{}, tree.Object{"replicas": int64(0)}
	if n, ok := tree.Int(tree.Lookup(obj, r.Subresource.SpecReplicas)); ok && n != 0 {
		spec["replicas"] = n
	}
	if n, ok := tree.Int(tree.Lookup(obj, r.Subresource.StatusReplicas)); ok {
		state["replicas"] = n
	}
	if r.Subresource.Selector != "" {
		if s := selectorText(tree.Lookup(obj, r.Subresource.Selector)); s != "" {
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
func (scale) configuration(o *Op, body tree.Object, _ *models.Model) (tree.Object, error) {
	if gvk := (&unstructured.Unstructured{Object: body}).GroupVersionKind(); gvk != scaleKind.GVK() {
		return nil, status.BadRequest("invalid object type: %v", gvk)
	}
	if _, ok := tree.Field(body, "metadata", "managedFields").([]any); ok {
		return nil, status.BadRequest("metadata.managedFields must be nil")
	}
	if err := fitsScale(o, withoutBadTimes(body)); err != nil {
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
	if replicas, there := tree.As(body["spec"])["replicas"]; there { // null, too: who applies it owns the field
		err = tree.Set(c, o.Subresource.SpecReplicas, replicas)
	}
	return c, err
}

// fitsScale refuses a configuration that is no Scale: the merge does not see it, but the object.
func fitsScale(o *Op, body tree.Object) error {
	model, err := ModelOf(scaleKind)
	if err != nil {
		return err
	}
	fitted := runtime.DeepCopyJSON(body)
	dropNulls(fitted)
	if isNumber(tree.Lookup(body, "spec.replicas")) {
		delete(tree.As(fitted["spec"]), "replicas") // of a number that is none of replicas a conflict is told first
	}
	unknown, err := model.FitKeeping(fitted)
	if err != nil {
		return status.CannotBeHandled(scaleKind.GVK(), scaleKind.Kind, err)
	}
	if len(unknown) > 0 {
		return status.BadRequest("failed to create typed patch object (%s; %s): .%s: field not declared in schema", o.Key(), scaleKind.GVK(), unknown[0])
	}
	return nil
}

func isNumber(v any) bool {
	switch v.(type) {
	case int64, float64, json.Number:
		return true
	}
	return false
}

func (scale) inserts() bool { return false }

// match checks the uid of a body, which is a precondition. The rest is left to take, which also
// a patch comes by.
func (scale) match(o *Op, sent tree.Object, cur *mvcc.Version) error {
	meta, err := tree.Meta(sent)
	if err != nil {
		return err
	}
	if uid := tree.Text(meta, "uid"); uid != "" && uid != cur.UID {
		return status.UIDPrecondition(o.Resource.GroupResource(), o.Info.Name, o.keyPath(), uid, cur.UID)
	}
	return nil
}

// noReplicas is what upstream shows to patches where a custom resource does not say how many
// replicas it wants, and does not take for an answer.
const noReplicas = int64(math.MinInt32)

func (scale) patched(o *Op, p *patch.Patch, old tree.Object, _ *mvcc.Version) (tree.Object, error) {
	model, err := ModelOf(scaleKind)
	if err != nil {
		return nil, err
	}
	shown := o.scaleOf(old)
	if o.Resource.Custom && tree.Lookup(old, o.Subresource.SpecReplicas) == nil {
		shown["spec"] = tree.Object{"replicas": noReplicas}
	}
	sent, err := p.Apply(shown, model.PatchMeta())
	if err != nil {
		return nil, err
	}
	if err := saysText(p, sent); err != nil {
		return nil, err
	}
	if err := o.saysVersion(p, sent, scaleKind.GVK()); err != nil {
		return nil, err
	}
	if p.Type != types.StrategicMergePatchType {
		if _, err := CheckKind(sent, scaleKind.GVK()); err != nil {
			return nil, invalidPatch(string(p.Raw), err.Error())
		}
	}
	if err := o.fitPatched(p, sent, model); err != nil {
		return nil, err
	}
	o.dedupOwners(tree.As(sent["metadata"]), sameOwnersAfterMutation)
	return sent, nil
}

func (scale) take(o *Op, sent, old tree.Object, cur *mvcc.Version) (tree.Object, error) {
	at := "spec.replicas"
	if o.applying { // what was merged is the object, with who owns its fields
		at = o.Subresource.SpecReplicas
	}
	replicas, said := tree.Int(tree.Lookup(sent, at))
	if o.Resource.Custom && (replicas == noReplicas || o.applying && !said) {
		return nil, status.BadRequest("the spec replicas field %q cannot be empty", o.Subresource.SpecReplicas)
	}
	if !o.applying {
		if err := validScale(o, sent); err != nil {
			return nil, err
		}
	}
	if err := o.checkScaled(sent, cur); err != nil {
		return nil, err
	}
	obj, meta, err := tree.WithOwnMeta(old)
	if err != nil {
		return nil, err
	}
	if o.applying {
		tree.CopyField(meta, tree.As(sent["metadata"]), "managedFields")
	}
	return obj, tree.Set(obj, o.Subresource.SpecReplicas, replicas)
}

// checkScaled checks which object a Scale is of. That another uid is a conflict upstream finds
// in the Scales of built-in kinds only, and calls them by the subresource.
func (r *Request) checkScaled(sent tree.Object, cur *mvcc.Version) error {
	meta, err := tree.Meta(sent)
	if err != nil {
		return err
	}
	if uid := tree.Text(meta, "uid"); uid != "" && uid != cur.UID && !r.Resource.Custom {
		resource := r.Resource.GroupResource()
		resource.Resource += "/scale"
		return status.ConflictText(resource, r.Info.Name, fmt.Sprintf("Precondition failed: UID in precondition: %s, UID in object meta: %s", uid, cur.UID))
	}
	if r.Resource.Custom && tree.Text(meta, "resourceVersion") == "0" { // none at all is that of the object
		return storage.Permanent{Err: status.MustSpecifyVersion(r.Resource.GroupResource(), r.Info.Name)}
	}
	return r.checkRevision(meta, cur)
}

// validScale refuses a Scale that is wrong. Custom resources have no rules for it: they are
// validated with the field that it sets.
func validScale(o *Op, sent tree.Object) error {
	validate := o.Strategy().ValidateScale
	if validate == nil {
		return nil
	}
	meta := tree.Clone(sent["metadata"])
	meta["name"], meta["namespace"] = o.Info.Name, o.Info.ObjectNamespace
	delete(meta, "managedFields") // they are not stored, and nobody reads them
	obj := maps.Clone(sent)
	obj["metadata"] = meta
	errs := validate(obj)
	if len(errs) == 0 {
		return nil
	}
	return status.Invalid(scaleKind.GVK().GroupKind(), o.Info.Name, errs)
}
