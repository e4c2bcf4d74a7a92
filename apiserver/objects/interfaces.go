package objects

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/quorate/quorate/apiserver/types/conversion"
	"github.com/quorate/quorate/apiserver/types/crd"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/schema"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/apiserver/wire/codec"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/admission"
)

// interfaces are what upstream's plugins do with objects of any kind: make, decode, convert and
// default them. An object is a tree, a *typed for a built-in kind and an
// *unstructured.Unstructured for a custom one, as upstream has typed and unstructured ones.
type interfaces decision

var _ admission.ObjectInterfaces = (*interfaces)(nil)

func (i *interfaces) GetObjectCreater() runtime.ObjectCreater     { return i }
func (i *interfaces) GetObjectTyper() runtime.ObjectTyper         { return i }
func (i *interfaces) GetObjectDefaulter() runtime.ObjectDefaulter { return i }
func (i *interfaces) GetObjectConvertor() runtime.ObjectConvertor { return i }
func (i *interfaces) GetEquivalentResourceMapper() runtime.EquivalentResourceMapper {
	return i
}

// typed is an object of a built-in kind. It is decoded as upstream decodes into a Go type: values
// of the wrong type are refused and unknown fields dropped. Its fields are exported because
// upstream compares such objects by reflection.
type typed struct {
	*unstructured.Unstructured
	Model string
}

// UnmarshalJSON implements json.Unmarshaler. What does not say its kind is one of that of which t was made: webhooks
// written in Go send objects without it.
func (t *typed) UnmarshalJSON(raw []byte) error {
	var content map[string]any
	if err := json.Unmarshal(raw, &content); err != nil {
		return err
	}
	if content == nil {
		return errors.New("an object is wanted, and it is null")
	}
	model, err := schema.Lookup(t.Model)
	if err != nil {
		return err
	}
	if _, err := model.Fit(content); err != nil {
		return err
	}
	if meta := tree.As(content["metadata"]); meta != nil && len(tree.List(meta["managedFields"])) == 0 {
		delete(meta, "managedFields") // none, in upstream's type
	}
	made := t.GroupVersionKind()
	if tree.Text(content, "kind") == "" {
		content["kind"] = made.Kind
	}
	if tree.Text(content, "apiVersion") == "" {
		content["apiVersion"] = made.GroupVersion().String()
	}
	t.Unstructured = &unstructured.Unstructured{Object: content}
	return nil
}

// MarshalJSON implements json.Marshaler. Its fields have the order of upstream's Go types, as far as
// an answer has it.
func (t *typed) MarshalJSON() ([]byte, error) { return codec.AppendTree(nil, t.Object) }

// DeepCopyObject implements runtime.Object.
func (t *typed) DeepCopyObject() runtime.Object {
	return &typed{t.Unstructured.DeepCopy(), t.Model}
}

// NewEmptyInstance implements runtime.Unstructured.
func (t *typed) NewEmptyInstance() runtime.Unstructured {
	return &typed{&unstructured.Unstructured{}, t.Model}
}

// New returns an object of a kind without content.
func (i *interfaces) New(gvk apischema.GroupVersionKind) (runtime.Object, error) {
	made := &unstructured.Unstructured{Object: map[string]any{}}
	made.SetGroupVersionKind(gvk)
	if model := i.modelName(gvk); model != "" {
		return &typed{made, model}, nil
	}
	return made, nil
}

// modelName is the model of a built-in kind, empty for others.
func (i *interfaces) modelName(gvk apischema.GroupVersionKind) string {
	if res := i.resource(gvk); res != nil {
		if res.Custom {
			return ""
		}
		return res.Model
	}
	if s := i.Subresource; s != nil && s.Kind == gvk.Kind {
		return s.Model
	}
	return ""
}

// resource is what is served of a kind.
func (i *interfaces) resource(gvk apischema.GroupVersionKind) *kinds.Resource {
	switch gvk {
	case i.Resource.GVK():
		return i.Resource
	case scaleKind.GVK():
		return scaleKind
	}
	return i.Store.Kinds().LookupKind(gvk)
}

// ObjectKinds implements runtime.ObjectTyper: an object says itself what it is.
func (i *interfaces) ObjectKinds(obj runtime.Object) ([]apischema.GroupVersionKind, bool, error) {
	return []apischema.GroupVersionKind{obj.GetObjectKind().GroupVersionKind()}, false, nil
}

// Recognizes implements runtime.ObjectTyper.
func (i *interfaces) Recognizes(apischema.GroupVersionKind) bool { return true }

// Default fills in what an object leaves out. What a schema cannot default is refused when the
// object is taken over.
func (i *interfaces) Default(in runtime.Object) {
	obj, ok := in.(runtime.Unstructured)
	if !ok {
		return
	}
	res := i.resource(in.GetObjectKind().GroupVersionKind())
	if res == nil {
		return
	}
	if model, err := ModelOf(res); err == nil && model.Default(obj.UnstructuredContent()) == nil {
		model.Fill(obj.UnstructuredContent())
	}
}

// Convert makes out what in is in the version of out. The object of the operation itself is
// taken over by it: that is how a plugin writes back what it has changed.
func (i *interfaces) Convert(in, out, _ any) error {
	from, ok := in.(runtime.Unstructured)
	to, also := out.(runtime.Unstructured)
	if !ok || !also {
		return fmt.Errorf("unable to convert object type %T to %T", in, out)
	}
	a, b := from.GetObjectKind().GroupVersionKind(), to.GetObjectKind().GroupVersionKind()
	obj, err := i.converted(from.UnstructuredContent(), a, b)
	if err != nil {
		return err
	}
	if !i.isObject(to) {
		to.SetUnstructuredContent(obj)
		return nil
	}
	if err := i.fitCustom(obj, i.resource(b)); err != nil {
		return err
	}
	i.attributes.SetObject(obj)
	return nil
}

// isObject reports whether an object is what the operation is about.
func (i *interfaces) isObject(obj runtime.Unstructured) bool {
	content := obj.UnstructuredContent()
	return i.attributes.Object != nil && reflect.ValueOf(content).Pointer() == reflect.ValueOf(i.attributes.Object).Pointer()
}

// converted is an object of one kind as another one of the same resource.
func (i *interfaces) converted(obj tree.Object, a, b apischema.GroupVersionKind) (tree.Object, error) {
	from, to := i.resource(a), i.resource(b)
	switch {
	case a == b:
		return obj, nil
	case from == nil || to == nil || from.Table() != to.Table():
		return nil, conversion.Internal(fmt.Errorf("converting (%s.%s) to (%s.%s): unknown conversion", a.Version, a.Kind, internalPackage(b.Group), b.Kind))
	case !to.Custom:
		return kinds.Convert(obj, from, to)
	}
	out, err := (*decision)(i).convertWhole([]tree.Object{obj}, crd.Of(to))
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

// internalPackage is what upstream calls the package of a group's internal types.
func internalPackage(group string) string {
	if group == "" {
		return "core"
	}
	name, _, _ := strings.Cut(group, ".")
	return name
}

// fitCustom brings a custom resource into the form of its schema: what plugins have put there was
// decoded without it. Nulls that cannot be stay, for validation to refuse.
func (i *interfaces) fitCustom(obj tree.Object, res *kinds.Resource) error {
	if res == nil || !res.Custom {
		return nil
	}
	model, err := ModelOf(res)
	if err != nil {
		return err
	}
	if err := model.FitMerged(obj, nil); err != nil {
		return conversion.Internal(err)
	}
	return model.Default(obj)
}

// ConvertToVersion implements runtime.ObjectConvertor.
func (i *interfaces) ConvertToVersion(in runtime.Object, target runtime.GroupVersioner) (runtime.Object, error) {
	kind := in.GetObjectKind().GroupVersionKind()
	gvk, ok := target.KindForGroupVersionKinds([]apischema.GroupVersionKind{kind})
	if !ok {
		return nil, fmt.Errorf("%v is not suitable for converting to %v", kind, target)
	}
	return admission.ConvertToGVK(in, gvk, i)
}

// ConvertFieldLabel implements runtime.ObjectConvertor. No plugin selects by fields.
func (i *interfaces) ConvertFieldLabel(_ apischema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}

// EquivalentResourcesFor implements runtime.EquivalentResourceMapper.
func (i *interfaces) EquivalentResourcesFor(gvr apischema.GroupVersionResource, sub string) []apischema.GroupVersionResource {
	return i.Store.Kinds().EquivalentResources(gvr, sub)
}

// KindFor implements runtime.EquivalentResourceMapper.
func (i *interfaces) KindFor(gvr apischema.GroupVersionResource, sub string) apischema.GroupVersionKind {
	return i.Store.Kinds().KindFor(gvr, sub)
}
