package upstream

import (
	"fmt"
	"maps"

	"github.com/quorate/quorate/apiserver/types/crd"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/schema"
	"github.com/quorate/quorate/apiserver/types/tree"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/kubernetes/scheme"
)

// Convert returns an object of one version of a resource in another one; the object itself is
// not changed, but the result may share parts with it. What a custom resource has that the other
// version does not know stays: it comes back.
type Convert func(obj tree.Object, from, to *kinds.Resource) (tree.Object, error)

// Kinds are the served kinds as upstream's plugins want them: all objects are trees. Safe for
// concurrent use.
type Kinds struct {
	now     func() *kinds.Registry
	convert Convert
}

var _ admission.ObjectInterfaces = (*Kinds)(nil)

// NewKinds returns the kinds of a registry, which is asked for at each question.
func NewKinds(now func() *kinds.Registry, convert Convert) *Kinds { return &Kinds{now, convert} }

// GetObjectCreater and the methods below are those of upstream's ObjectInterfaces.
func (k *Kinds) GetObjectCreater() runtime.ObjectCreater                       { return creater{} }
func (k *Kinds) GetObjectTyper() runtime.ObjectTyper                           { return typer{k} }
func (k *Kinds) GetObjectDefaulter() runtime.ObjectDefaulter                   { return defaulter{k} }
func (k *Kinds) GetObjectConvertor() runtime.ObjectConvertor                   { return convertor{k} }
func (k *Kinds) GetEquivalentResourceMapper() runtime.EquivalentResourceMapper { return k }

// Resource returns the resource of a kind that is served, nil if there is none.
func (k *Kinds) Resource(gvk apischema.GroupVersionKind) *kinds.Resource {
	return k.now().LookupKind(gvk)
}

// Registry returns what is served now.
func (k *Kinds) Registry() *kinds.Registry { return k.now() }

// EquivalentResourcesFor implements runtime.EquivalentResourceMapper.
func (k *Kinds) EquivalentResourcesFor(resource apischema.GroupVersionResource, subresource string) []apischema.GroupVersionResource {
	return k.now().EquivalentResources(resource, subresource)
}

// KindFor implements runtime.EquivalentResourceMapper.
func (k *Kinds) KindFor(resource apischema.GroupVersionResource, subresource string) apischema.GroupVersionKind {
	return k.now().KindFor(resource, subresource)
}

// ModelOf returns the model of a kind, also of one that only subresources have. Errors: the
// kind is not served.
func (k *Kinds) ModelOf(gvk apischema.GroupVersionKind) (*schema.Model, error) {
	registry := k.now()
	if r := registry.LookupKind(gvk); r != nil {
		if v := crd.Of(r); v != nil {
			return v.Model()
		}
		return schema.Lookup(r.Model)
	}
	for _, r := range registry.All() {
		for i := range r.Subresources {
			if s := &r.Subresources[i]; s.Model != "" && k.KindFor(r.GVR(), s.Name) == gvk {
				return schema.Lookup(s.Model)
			}
		}
	}
	return nil, runtime.NewNotRegisteredErrForKind("this server", gvk)
}

// Fit makes an object, in place, one that fits the model of its kind, with all defaults. It
// returns the paths of the fields that the model does not know, which it has dropped, but not of
// a custom resource. Nulls that those cannot have stay, for validation to refuse. The options of connections, as of exec,
// have no model: they are read into their type. Errors: a value has the wrong type; the kind is not served.
func (k *Kinds) Fit(obj tree.Object) (unknown []string, err error) {
	gvk := (&unstructured.Unstructured{Object: obj}).GroupVersionKind()
	model, err := k.ModelOf(gvk)
	switch {
	case err != nil && scheme.Scheme.Recognizes(gvk) && k.now().HasGroupVersion(gvk.GroupVersion()):
		return nil, nil
	case err != nil:
		return nil, err
	}
	if model.Custom() {
		err = model.FitMerged(obj, nil)
	} else {
		unknown, err = model.Fit(obj)
	}
	if err != nil {
		return nil, err
	}
	if err := model.Default(obj); err != nil {
		return nil, err
	}
	model.Fill(obj)
	return unknown, nil
}

// creater makes empty trees.
type creater struct{}

func (creater) New(gvk apischema.GroupVersionKind) (runtime.Object, error) {
	u := &unstructured.Unstructured{Object: tree.Object{}}
	u.SetGroupVersionKind(gvk)
	return u, nil
}

// typer knows trees by what they say.
type typer struct{ kinds *Kinds }

func (t typer) ObjectKinds(obj runtime.Object) ([]apischema.GroupVersionKind, bool, error) {
	gvk := obj.GetObjectKind().GroupVersionKind()
	switch {
	case gvk.Kind == "":
		return nil, false, runtime.NewMissingKindErr("an object without a kind")
	case gvk.Version == "":
		return nil, false, runtime.NewMissingVersionErr("an object without a version")
	}
	return []apischema.GroupVersionKind{gvk}, false, nil
}

func (t typer) Recognizes(gvk apischema.GroupVersionKind) bool {
	_, err := t.kinds.ModelOf(gvk)
	return err == nil
}

// defaulter completes trees. It cannot say what is wrong with one: Fit can.
type defaulter struct{ kinds *Kinds }

func (d defaulter) Default(in runtime.Object) {
	u, ok := in.(*unstructured.Unstructured)
	if !ok {
		return
	}
	if model, err := d.kinds.ModelOf(u.GroupVersionKind()); err == nil && model.Default(u.Object) == nil {
		model.Fill(u.Object)
	}
}

// convertor leads between the versions of a resource.
type convertor struct{ kinds *Kinds }

// Convert makes out, in place, what in is in the version of out. The map of out stays the same.
func (c convertor) Convert(in, out, _ any) error {
	from, ok := in.(*unstructured.Unstructured)
	to, ok2 := out.(*unstructured.Unstructured)
	if !ok || !ok2 {
		return fmt.Errorf("convert a %T to a %T: only trees are converted here", in, out)
	}
	made, err := c.convert(from.Object, from.GroupVersionKind(), to.GroupVersionKind())
	if err != nil {
		return err
	}
	if to.Object == nil {
		to.Object = tree.Object{}
	}
	made = maps.Clone(made) // in and out may have the same map
	clear(to.Object)
	maps.Copy(to.Object, made)
	return nil
}

// ConvertToVersion returns a tree in another version.
func (c convertor) ConvertToVersion(in runtime.Object, target runtime.GroupVersioner) (runtime.Object, error) {
	u, ok := in.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("convert a %T: only trees are converted here", in)
	}
	from := u.GroupVersionKind()
	to, ok := target.KindForGroupVersionKinds([]apischema.GroupVersionKind{from})
	if !ok {
		return nil, runtime.NewNotRegisteredErrForTarget("this server", nil, target)
	}
	made, err := c.convert(u.Object, from, to)
	return &unstructured.Unstructured{Object: made}, err
}

// ConvertFieldLabel has nothing to convert: upstream's plugins use no field selectors.
func (convertor) ConvertFieldLabel(_ apischema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}

func (c convertor) convert(obj tree.Object, from, to apischema.GroupVersionKind) (tree.Object, error) {
	if from == to {
		return obj, nil
	}
	a, b := c.kinds.Resource(from), c.kinds.Resource(to)
	switch {
	case a == nil:
		return nil, runtime.NewNotRegisteredErrForKind("this server", from)
	case b == nil:
		return nil, runtime.NewNotRegisteredErrForKind("this server", to)
	case a.Table() != b.Table():
		return nil, fmt.Errorf("convert %s to %s: they are not the same resource", from, to)
	}
	made, err := c.kinds.convert(obj, a, b)
	if err != nil {
		return nil, fmt.Errorf("convert %s to %s: %w", from, to, err)
	}
	return made, nil
}
