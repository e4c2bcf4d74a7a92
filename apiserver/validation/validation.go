package validation

import (
	"fmt"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/quorate/quorate/apiserver/tree"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/conversion"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/capabilities"
)

// Kind validates the objects of one kind, which have been through the fit and the defaults of
// their model and have the metadata that the server adds. It changes nothing and keeps nothing;
// it is safe for concurrent use.
type Kind interface {
	// Create is what is wrong with a new object (upstream's rest.BeforeCreate). namespaced is
	// its scope.
	Create(obj tree.Object, namespaced bool) field.ErrorList
	// Update is what is wrong with an object in the place of another (rest.BeforeUpdate), by
	// a write of the subresource; "" is the object itself. Of a subresource that upstream
	// validates no differently it is what holds for the object.
	Update(subresource string, obj, old tree.Object, namespaced bool) field.ErrorList
}

// Of returns the validation of a built-in kind by its resource and group, such as
// "deployments.apps" (kinds.Resource.CodeName); nil: upstream has none, because its objects are
// not stored.
func Of(resource string) Kind {
	k := all[resource]
	if of := bounds[resource]; of != nil {
		return bounded{k, of}
	}
	return k
}

// rules are the validation of one kind: V is its type in k8s.io/api, I the internal one.
type rules[V, I any] struct {
	convert func(*V, *I, conversion.Scope) error
	create  func(*I) field.ErrorList
	update  func(obj, old *I) field.ErrorList
	// parts are subresources that upstream validates in a way of their own.
	parts map[string]func(obj, old *I) field.ErrorList
}

// none is how what is not validated at all is validated.
func none[I any](_, _ *I) field.ErrorList { return nil }

func (r rules[V, I]) Create(obj tree.Object, namespaced bool) (errs field.ErrorList) {
	defer contain(&errs)
	in, err := r.decode(obj)
	if err != nil {
		return undecodable(err)
	}
	if errs = append(managers(obj), r.create(in)...); len(errs) > 0 {
		return errs
	}
	return validation.ValidateObjectMetaAccessor(metaOf(in), namespaced, tree.PathSegmentName, metadataPath)
}

func (r rules[V, I]) Update(subresource string, obj, old tree.Object, namespaced bool) (errs field.ErrorList) {
	defer contain(&errs)
	in, err := r.decode(obj)
	if err != nil {
		return undecodable(err)
	}
	was, err := r.decode(old)
	if err != nil {
		return undecodable(err)
	}
	// An update that names no version is about the one that is there (upstream's
	// unconditional update).
	if metaOf(in).GetResourceVersion() == "" {
		metaOf(in).SetResourceVersion(metaOf(was).GetResourceVersion())
	}
	validate := r.update
	if part := r.parts[subresource]; part != nil {
		validate = part
	}
	errs = validation.ValidateObjectMetaAccessor(metaOf(in), namespaced, tree.PathSegmentName, metadataPath)
	errs = append(append(managers(obj), errs...), validation.ValidateObjectMetaAccessorUpdate(metaOf(in), metaOf(was), metadataPath)...)
	return append(errs, validate(in, was)...)
}

// contain makes a refusal of a panic: upstream's functions have some for objects that its own
// servers end the connection for, such as a device of a ResourceSlice with an empty list of valid
// values. The refusal carries what is logged of it, which its words do not have.
func contain(errs *field.ErrorList) {
	if p := recover(); p != nil {
		err := field.InternalError(nil, fmt.Errorf("the validation of Kubernetes ended with a panic: %v", p))
		err.BadValue = panicked{where: panickedAt(), stack: debug.Stack()}
		*errs = field.ErrorList{err}
	}
}

// panicked is an objects.ValidationPanic.
type panicked struct {
	where string
	stack []byte
}

func (p panicked) Where() string { return p.where }
func (p panicked) Stack() string { return string(p.stack) }

// panickedAt is the function and the line that panicked, for the function that recovers.
func panickedAt() string {
	var pcs [32]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for below := false; ; {
		f, more := frames.Next()
		if below && !strings.HasPrefix(f.Function, "runtime.") {
			return fmt.Sprintf("%s:%d", f.Function, f.Line)
		}
		if below = below || f.Function == "runtime.gopanic"; !more {
			return f.Function
		}
	}
}

var metadataPath = field.NewPath("metadata")

// metaOf is the metadata of an internal type, all of which have it.
func metaOf(obj any) metav1.Object { return obj.(metav1.ObjectMetaAccessor).GetObjectMeta() }

func (r rules[V, I]) decode(obj tree.Object) (*I, error) {
	var out V
	if err := k8sruntime.DefaultUnstructuredConverter.FromUnstructured(withoutManagedFields(obj), &out); err != nil {
		return nil, fmt.Errorf("decode a %T: %w", out, err)
	}
	in := new(I)
	if err := r.convert(&out, in, nil); err != nil {
		return nil, fmt.Errorf("convert a %T: %w", out, err)
	}
	return in, nil
}

// Whether containers may be privileged is upstream's flag --allow-privileged, off by default and
// on wherever there are kubelets: PodSecurity and policies decide about it. The functions ask a
// variable of their library.
func init() { capabilities.Initialize(capabilities.Capabilities{AllowPrivileged: true}) }

// undecodable is the answer for an object that its Go type cannot hold. What fits the
// model can be held: the model is made from the type.
func undecodable(err error) field.ErrorList {
	return field.ErrorList{field.InternalError(nil, err)}
}

// managers is what is wrong with managedFields, but for the fields themselves.
func managers(obj tree.Object) field.ErrorList {
	list := tree.List(tree.As(obj["metadata"])["managedFields"])
	if len(list) == 0 {
		return nil
	}
	entries := make([]metav1.ManagedFieldsEntry, len(list))
	for i, x := range list {
		e := tree.As(x)
		entries[i] = metav1.ManagedFieldsEntry{
			Manager: tree.Text(e, "manager"), Operation: metav1.ManagedFieldsOperationType(tree.Text(e, "operation")),
			FieldsType: tree.Text(e, "fieldsType"), Subresource: tree.Text(e, "subresource"),
		}
	}
	return metavalidation.ValidateManagedFields(entries, metadataPath.Child("managedFields"))
}

// withoutManagedFields is an object without them; obj is not changed.
func withoutManagedFields(obj tree.Object) tree.Object {
	meta := tree.As(obj["metadata"])
	if _, has := meta["managedFields"]; !has {
		return obj
	}
	obj, meta = tree.Clone(obj), tree.Clone(meta)
	delete(meta, "managedFields")
	obj["metadata"] = meta
	return obj
}

// Kinds are the resources that Of knows, sorted.
func Kinds() []string { return slices.Sorted(maps.Keys(all)) }

// subresources are those with rules of their own, sorted.
func (r rules[V, I]) subresources() []string { return slices.Sorted(maps.Keys(r.parts)) }
