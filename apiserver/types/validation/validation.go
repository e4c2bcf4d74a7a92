package validation

import (
	"fmt"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/apiserver/types/typed"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/capabilities"
)

// Kind validates the objects of one kind, which have been through the fit and the defaults of
// their model and have the metadata that the server adds. It changes nothing and keeps nothing;
// it is safe for concurrent use.
type Kind interface {
	// Create is what is wrong with a new object (upstream's rest.BeforeCreate). namespaced is
	// its scope. If nothing is, what clients should be told of it is added to warnings; nil: nobody
	// is told.
	Create(obj tree.Object, namespaced bool, warnings *[]string) field.ErrorList
	// Update is what is wrong with an object in the place of another (rest.BeforeUpdate), by
	// a write of the subresource; "" is the object itself. Of a subresource that upstream
	// validates no differently it is what holds for the object. Warnings are those of the object itself.
	Update(subresource string, obj, old tree.Object, namespaced bool, warnings *[]string) field.ErrorList
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
	// plain accepts what most objects are without a look of upstream; nil: nothing.
	plain plainFunc
	// fixed refuses changes that none of the kind can make, and that upstream would take long to
	// refuse for what is large; nil: there are none.
	fixed func(subresource string, obj, old *I) *field.Error
	// warn is what clients are told of a valid object; old is nil for a new one. Nil: nothing.
	warn func(obj, old *I) []string
	// parts are subresources that upstream validates in a way of their own.
	parts map[string]func(obj, old *I) field.ErrorList
}

// none is how what is not validated at all is validated.
func none[I any](_, _ *I) field.ErrorList { return nil }

func (r rules[V, I]) Create(obj tree.Object, namespaced bool, warnings *[]string) (errs field.ErrorList) {
	if r.plain != nil && namespaced && r.plain(obj, nil) {
		return nil
	}
	defer contain(&errs)
	in, err := r.decode(obj)
	if err != nil {
		return undecodable(err)
	}
	if errs = r.create(in); len(errs) > 0 {
		return errs
	}
	errs = createdMeta(metaOf(in), namespaced)
	r.tell(errs, in, nil, warnings)
	return errs
}

func (r rules[V, I]) Update(subresource string, obj, old tree.Object, namespaced bool, warnings *[]string) (errs field.ErrorList) {
	if r.plain != nil && namespaced && subresource == "" && r.plain(obj, old) {
		return nil
	}
	defer contain(&errs)
	in, was, err := r.decodeBoth(obj, old)
	if err != nil {
		return undecodable(err)
	}
	// An update that names no version is about the one that is there (upstream's
	// unconditional update).
	if metaOf(in).GetResourceVersion() == "" {
		metaOf(in).SetResourceVersion(metaOf(was).GetResourceVersion())
	}
	if r.fixed != nil && (crowded(obj) || crowded(old)) {
		if err := r.fixed(subresource, in, was); err != nil {
			return field.ErrorList{err}
		}
	}
	validate := r.update
	if part := r.parts[subresource]; part != nil {
		validate = part
	}
	errs = updatedMeta(metaOf(in), metaOf(was), namespaced)
	errs = append(errs, validate(in, was)...)
	r.tell(errs, in, was, warnings)
	return errs
}

// tell adds what is told of an object, if nothing is wrong with it.
func (r rules[V, I]) tell(errs field.ErrorList, obj, old *I, warnings *[]string) {
	if len(errs) == 0 && warnings != nil && r.warn != nil {
		*warnings = append(*warnings, r.warn(obj, old)...)
	}
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
	if err := typed.DecodeUnmanaged(obj, &out); err != nil {
		return nil, fmt.Errorf("decode a %T: %w", out, err)
	}
	return r.internal(&out, obj)
}

// decodeBoth decodes an object and what it takes the place of. They share what is the same in both:
// upstream's functions change nothing that they are given (verify-mutation, among its linters, looks
// for it), and find by the address that it is equal.
func (r rules[V, I]) decodeBoth(obj, old tree.Object) (in, was *I, err error) {
	var out, before V
	if err = typed.DecodeUnmanaged(obj, &out); err == nil {
		err = typed.DecodeUnmanagedLike(old, &before, obj, &out)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("decode a %T: %w", out, err)
	}
	if in, err = r.internal(&out, obj); err == nil {
		was, err = r.internal(&before, nil)
	}
	return in, was, err
}

// internal is an object in the internal type, with managedFields of the tree that it was decoded from
// if something may be wrong with them.
func (r rules[V, I]) internal(v *V, obj tree.Object) (*I, error) {
	in := new(I)
	if err := r.convert(v, in, nil); err != nil {
		return nil, fmt.Errorf("convert a %T: %w", *v, err)
	}
	if managers := tree.StrangeManagers(tree.As(obj["metadata"])); managers != nil {
		metaOf(in).SetManagedFields(managers)
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

// Kinds are the resources that Of knows, sorted.
func Kinds() []string { return slices.Sorted(maps.Keys(all)) }

// subresources are those with rules of their own, sorted.
func (r rules[V, I]) subresources() []string { return slices.Sorted(maps.Keys(r.parts)) }
