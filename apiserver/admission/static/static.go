// Package static is what plugins have in common whose rules come from files (upstream's
// manifest-based admission control): policies and webhooks that are in force before the first
// request, are read again when the files change, and cannot be changed or suspended through the
// API.
//
// The types to know:
//
//   - Files is how they are read, checked and followed.
//   - Rule is one of them that is in force, for those who look.
package static

import (
	"context"
	"fmt"
	"os"
	"path"

	"github.com/quorate/quorate/apiserver/admission/upstream"
	"github.com/quorate/quorate/apiserver/types/tree"
	v1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Files is how rules come from files.
type Files struct {
	// Enabled is the feature gate ManifestBasedAdmissionControlConfig.
	Enabled bool
	// Check validates an object of a resource of admissionregistration.k8s.io as the API does.
	// obj is complete; model is what its model says of it.
	Check func(resource string, obj tree.Object) field.ErrorList
	// Run runs what follows the files until its context ends. It does not wait.
	Run func(func(ctx context.Context))
	// Server names this server in metrics.
	Server string
	// Listed is told, once by each plugin, of what returns its rules that are in force. Nil:
	// nobody is.
	Listed func(rules func() []Rule)
}

// Rule is a policy or a webhook of a file.
type Rule struct {
	Resource      string // of admissionregistration.k8s.io
	Configuration string // the name of the object
	Webhook       string // empty for policies
	FailurePolicy string
	// TimeoutSeconds are those of a webhook; zero: it does not say.
	TimeoutSeconds int32
}

// CheckDir refuses a directory of files that cannot be used. Errors: files are not enabled, or
// it cannot be read, in upstream's words.
func (f *Files) CheckDir(dir string) error {
	at := field.NewPath("staticManifestsDir")
	if !f.Enabled {
		return field.Forbidden(at, "staticManifestsDir requires the ManifestBasedAdmissionControlConfig feature gate to be enabled")
	}
	if !path.IsAbs(dir) {
		return field.Invalid(at, dir, "must be an absolute file path")
	}
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return field.Invalid(at, dir, fmt.Sprintf("unable to read: %v", err))
	case !info.IsDir():
		return field.Invalid(at, dir, "must be a directory")
	}
	return nil
}

// Decoder reads objects of files. Fields that nobody knows are errors.
func Decoder() runtime.Decoder { return decoder }

var decoder = func() runtime.Decoder {
	s := runtime.NewScheme()
	if err := v1.AddToScheme(s); err != nil {
		panic(err) // the types do not change
	}
	s.AddUnversionedTypes(metav1.SchemeGroupVersion, &metav1.List{}, &metav1.Status{})
	return serializer.NewCodecFactory(s, serializer.EnableStrict).UniversalDeserializer()
}()

// Complete gives objects of a resource their defaults, and validates them. T is their type.
// Errors: one of them is not valid.
func Complete[T any](f *Files, known *upstream.Kinds, resource string, all ...*T) ([]*T, error) {
	gvk := known.KindFor(v1.SchemeGroupVersion.WithResource(resource), "")
	for _, obj := range all {
		if err := complete(f, known, resource, gvk, obj); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func complete[T any](f *Files, known *upstream.Kinds, resource string, gvk schema.GroupVersionKind, obj *T) error {
	t, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return err
	}
	t["apiVersion"], t["kind"] = gvk.GroupVersion().String(), gvk.Kind
	name := tree.Text(tree.As(t["metadata"]), "name")
	if _, err := known.Fit(t); err != nil {
		return fmt.Errorf("%s %q: %w", gvk.Kind, name, err)
	}
	if errs := f.Check(resource, t); len(errs) > 0 {
		return fmt.Errorf("%s %q: %w", gvk.Kind, name, errs.ToAggregate())
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(t, obj)
}

// Pointers are the items of a list.
func Pointers[T any](items []T) []*T {
	out := make([]*T, len(items))
	for i := range items {
		out[i] = &items[i]
	}
	return out
}

// List tells Listed of what returns rules.
func (f *Files) List(rules func() []Rule) {
	if f.Listed != nil {
		f.Listed(rules)
	}
}

// FailurePolicy is what a rule says of its failure; by default it fails.
func FailurePolicy(p *v1.FailurePolicyType) string {
	if p == nil {
		return string(v1.Fail)
	}
	return string(*p)
}
