package admission

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/admission"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Attributes as upstream's plugins want them.
var _ admission.Attributes = (*Attributes)(nil)

// GetName and the methods below are those of upstream's Attributes.
func (a *Attributes) GetName() string                                       { return a.Name }
func (a *Attributes) GetResource() schema.GroupVersionResource              { return a.Resource }
func (a *Attributes) GetSubresource() string                                { return a.Subresource }
func (a *Attributes) GetOperation() admission.Operation                     { return a.Operation }
func (a *Attributes) GetKind() schema.GroupVersionKind                      { return a.Kind }
func (a *Attributes) IsDryRun() bool                                        { return a.DryRun }
func (a *Attributes) GetReinvocationContext() admission.ReinvocationContext { return &a.reinvoked }

// GetNamespace is Namespace, and of a namespace itself the name that was asked for, as upstream has it.
func (a *Attributes) GetNamespace() string {
	if a.Namespace == "" && !a.Generated && a.Resource.Resource == "namespaces" && a.Resource.Group == "" {
		return a.Name
	}
	return a.Namespace
}

// GetObject is Object as an *unstructured.Unstructured; nil if there is none. Its map is
// Object's: what replaces it as a whole calls SetObject.
func (a *Attributes) GetObject() runtime.Object {
	if a.Object == nil {
		return nil
	}
	a.object.Object = a.Object
	return &a.object
}

// GetOldObject is Old, as GetObject is Object.
func (a *Attributes) GetOldObject() runtime.Object {
	if a.Old == nil {
		return nil
	}
	a.old.Object = a.Old
	return &a.old
}

// GetOperationOptions are the options of the operation, as an object of meta.k8s.io/v1.
func (a *Attributes) GetOperationOptions() runtime.Object {
	kind := func(name string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: metav1.SchemeGroupVersion.String(), Kind: name}
	}
	var dryRun []string
	if a.DryRun {
		dryRun = []string{metav1.DryRunAll}
	}
	switch a.Operation {
	case Create:
		return &metav1.CreateOptions{TypeMeta: kind("CreateOptions"), DryRun: dryRun, FieldManager: a.FieldManager, FieldValidation: a.FieldValidation}
	case Update:
		return &metav1.UpdateOptions{TypeMeta: kind("UpdateOptions"), DryRun: dryRun, FieldManager: a.FieldManager, FieldValidation: a.FieldValidation}
	case Delete:
		o := a.DeleteOptions.DeepCopy()
		if o == nil {
			o = &metav1.DeleteOptions{DryRun: dryRun}
		}
		o.TypeMeta = kind("DeleteOptions")
		return o
	}
	return nil
}

// Forbidden is a refusal in upstream's words: 403, of the object by its name. What is
// forbidden already stays as it is.
func (a *Attributes) Forbidden(err error) error { return admission.NewForbidden(a, err) }

// GetUserInfo is User.
func (a *Attributes) GetUserInfo() user.Info {
	if a.User == nil {
		return nil
	}
	return &user.DefaultInfo{Name: a.User.Name, UID: a.User.UID, Groups: a.User.Groups, Extra: a.User.Extra}
}

// AddAnnotation adds a note to the audit event. Errors: the key has not the form
// prefix/name, or has another value.
func (a *Attributes) AddAnnotation(key, value string) error {
	return a.AddAnnotationWithLevel(key, value, auditinternal.LevelMetadata)
}

// AddAnnotationWithLevel is AddAnnotation for a note that is left out of events below a level.
func (a *Attributes) AddAnnotationWithLevel(key, value string, from auditinternal.Level) error {
	if parts := strings.Split(key, "/"); len(parts) != 2 {
		return fmt.Errorf("annotation key %.200q has invalid format, the right format is a DNS subdomain prefix and '/' and key name", key)
	}
	if msgs := validation.IsQualifiedName(key); len(msgs) != 0 {
		return fmt.Errorf("annotation key %.200q has invalid format: %s", key, strings.Join(msgs, ","))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if had, ok := a.annotations[key]; ok {
		if had != value {
			return fmt.Errorf("the admission annotation %q may not be changed from %.200q to %.200q", key, had, value)
		}
		return nil
	}
	if a.annotations == nil {
		a.annotations = map[string]string{}
	}
	a.annotations[key] = value
	if a.Told != nil {
		a.Told.Annotate(key, value, from)
	}
	return nil
}

// maxAnnotations bounds those in the answer of a server that a plugin asks: each is checked, at the time of the request,
// and is in the audit event or in the log.
const maxAnnotations = 256

// AddAnnotations adds the notes that a server answers, under a prefix of the plugin's; those that cannot be added are
// left out, and too many are left out together. Errors: what was left out, in one that can be logged.
func AddAnnotations(a admission.Attributes, prefix string, notes map[string]string) error {
	if len(notes) > maxAnnotations {
		return fmt.Errorf("the answer has %d audit annotations, at most %d are taken: all were left out", len(notes), maxAnnotations)
	}
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(notes)) {
		if err := a.AddAnnotation(prefix+key, notes[key]); err != nil {
			errs = append(errs, err)
		}
	}
	if n := len(errs) - 10; n > 0 {
		errs = append(errs[:10], fmt.Errorf("and %d more", n))
	}
	return errors.Join(errs...)
}

// reinvocation is whether the mutating plugins are asked a second time, and what they keep
// for that.
type reinvocation struct {
	again, asked bool
	values       map[string]any
}

func (r *reinvocation) IsReinvoke() bool        { return r.again }
func (r *reinvocation) SetIsReinvoke()          { r.again = true }
func (r *reinvocation) ShouldReinvoke() bool    { return r.asked }
func (r *reinvocation) SetShouldReinvoke()      { r.asked = true }
func (r *reinvocation) Value(plugin string) any { return r.values[plugin] }
func (r *reinvocation) SetValue(plugin string, v any) {
	if r.values == nil {
		r.values = map[string]any{}
	}
	r.values[plugin] = v
}
