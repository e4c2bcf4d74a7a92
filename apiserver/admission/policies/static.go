package policies

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"

	"github.com/quorate/quorate/apiserver/admission/upstream"
	"github.com/quorate/quorate/apiserver/tree"
	v1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission/plugin/manifest/metrics"
	"k8s.io/apiserver/pkg/admission/plugin/policy/config/apis/policyconfig"
	policyconfigv1 "k8s.io/apiserver/pkg/admission/plugin/policy/config/apis/policyconfig/v1"
	"k8s.io/apiserver/pkg/admission/plugin/policy/generic"
	"k8s.io/apiserver/pkg/admission/plugin/policy/manifest/loader"
	manifests "k8s.io/apiserver/pkg/admission/plugin/policy/manifest/source"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
)

// Static is how policies come from files. They are in force before the first request, are
// read again when the files change, and cannot be changed or suspended through the API.
type Static struct {
	// Enabled is the feature gate ManifestBasedAdmissionControlConfig.
	Enabled bool
	// Check validates a policy or a binding as the API does. obj is complete.
	Check func(resource string, obj tree.Object) field.ErrorList
	// Run runs what follows the files until its context ends. It does not wait.
	Run func(func(ctx context.Context))
	// Server names this server in metrics.
	Server string
}

// scheme has what files may have; strict has no fields that nobody knows.
var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1.AddToScheme, policyconfig.AddToScheme, policyconfigv1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err) // the types do not change
		}
	}
	s.AddUnversionedTypes(metav1.SchemeGroupVersion, &metav1.List{}, &metav1.Status{})
	return s
}()

var strict = serializer.NewCodecFactory(scheme, serializer.EnableStrict)

// directory is the field of both kinds of configurations.
type directory interface{ GetStaticManifestsDir() string }

// staticDir reads a plugin's configuration of type T; nil is none. Errors: it is not one, or
// names no directory that can be read, or files are not enabled.
func (s *Static) staticDir(config io.Reader, is func(runtime.Object) bool) (string, error) {
	if config == nil {
		return "", nil
	}
	raw, err := io.ReadAll(config)
	if err != nil {
		return "", err
	}
	decoded, err := runtime.Decode(strict.UniversalDecoder(), raw)
	if err != nil {
		return "", err
	}
	named, ok := decoded.(directory)
	if !ok || !is(decoded) {
		return "", fmt.Errorf("unexpected type: %T", decoded)
	}
	dir, at := named.GetStaticManifestsDir(), field.NewPath("staticManifestsDir")
	if dir == "" {
		return "", nil
	}
	if !s.Enabled {
		return "", field.Forbidden(at, "staticManifestsDir requires the ManifestBasedAdmissionControlConfig feature gate to be enabled")
	}
	if !path.IsAbs(dir) {
		return "", field.Invalid(at, dir, "must be an absolute file path")
	}
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return "", field.Invalid(at, dir, fmt.Sprintf("unable to read: %v", err))
	case !info.IsDir():
		return "", field.Invalid(at, dir, "must be a directory")
	}
	return dir, nil
}

// complete gives an object its defaults, and validates it.
func complete[T any](static *Static, known *upstream.Kinds, resource, kind string, obj *T) error {
	t, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return err
	}
	t["apiVersion"], t["kind"] = v1.SchemeGroupVersion.String(), kind
	name := tree.Text(tree.As(t["metadata"]), "name")
	if _, err := known.Fit(t); err != nil {
		return fmt.Errorf("%s %q: %w", kind, name, err)
	}
	if errs := static.Check(resource, t); len(errs) > 0 {
		return fmt.Errorf("%s %q: %w", kind, name, errs.ToAggregate())
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(t, obj)
}

// completeAll completes the items of a list, or one object.
func completeAll[T any](static *Static, known *upstream.Kinds, resource string, all ...*T) ([]*T, error) {
	gvk := known.KindFor(schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}, "")
	for _, obj := range all {
		if err := complete(static, known, resource, gvk.Kind, obj); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func pointers[T any](items []T) []*T {
	out := make([]*T, len(items))
	for i := range items {
		out[i] = &items[i]
	}
	return out
}

// validatingFiles are the policies of a directory, which are read and followed. Errors: one of
// them is not valid.
func (s *Static) validatingFiles(dir string, known *upstream.Kinds) (func() []validatingHook, error) {
	load := func(dir string) ([]*v1.ValidatingAdmissionPolicy, []*v1.ValidatingAdmissionPolicyBinding, string, error) {
		return loader.LoadPolicyManifests(dir, strict.UniversalDeserializer(), func(obj runtime.Object) ([]*v1.ValidatingAdmissionPolicy, error) {
			switch obj := obj.(type) {
			case *v1.ValidatingAdmissionPolicy:
				return completeAll(s, known, "validatingadmissionpolicies", obj)
			case *v1.ValidatingAdmissionPolicyList:
				return completeAll(s, known, "validatingadmissionpolicies", pointers(obj.Items)...)
			}
			return nil, loader.ErrUnrecognizedType
		}, func(obj runtime.Object) ([]*v1.ValidatingAdmissionPolicyBinding, error) {
			switch obj := obj.(type) {
			case *v1.ValidatingAdmissionPolicyBinding:
				return completeAll(s, known, "validatingadmissionpolicybindings", obj)
			case *v1.ValidatingAdmissionPolicyBindingList:
				return completeAll(s, known, "validatingadmissionpolicybindings", pointers(obj.Items)...)
			}
			return nil, loader.ErrUnrecognizedType
		}, func(b *v1.ValidatingAdmissionPolicyBinding) string { return b.Spec.PolicyName })
	}
	compile := func(p *v1.ValidatingAdmissionPolicy) (validating.Validator, error) {
		made := compileValidating(p)
		return made, made.CompileError()
	}
	return follow(s, manifests.NewStaticPolicySource(dir, s.Server, compile, load, func(b *v1.ValidatingAdmissionPolicyBinding) string { return b.Spec.PolicyName }, metrics.VAPManifestType))
}

// mutatingFiles is validatingFiles for mutating policies.
func (s *Static) mutatingFiles(dir string, known *upstream.Kinds) (func() []mutatingHook, error) {
	load := func(dir string) ([]*v1.MutatingAdmissionPolicy, []*v1.MutatingAdmissionPolicyBinding, string, error) {
		return loader.LoadPolicyManifests(dir, strict.UniversalDeserializer(), func(obj runtime.Object) ([]*v1.MutatingAdmissionPolicy, error) {
			switch obj := obj.(type) {
			case *v1.MutatingAdmissionPolicy:
				return completeAll(s, known, "mutatingadmissionpolicies", obj)
			case *v1.MutatingAdmissionPolicyList:
				return completeAll(s, known, "mutatingadmissionpolicies", pointers(obj.Items)...)
			}
			return nil, loader.ErrUnrecognizedType
		}, func(obj runtime.Object) ([]*v1.MutatingAdmissionPolicyBinding, error) {
			switch obj := obj.(type) {
			case *v1.MutatingAdmissionPolicyBinding:
				return completeAll(s, known, "mutatingadmissionpolicybindings", obj)
			case *v1.MutatingAdmissionPolicyBindingList:
				return completeAll(s, known, "mutatingadmissionpolicybindings", pointers(obj.Items)...)
			}
			return nil, loader.ErrUnrecognizedType
		}, func(b *v1.MutatingAdmissionPolicyBinding) string { return b.Spec.PolicyName })
	}
	compile := func(p *v1.MutatingAdmissionPolicy) (mutating.PolicyEvaluator, error) {
		made := compileMutating(known, p)
		return made, made.Error
	}
	return follow(s, manifests.NewStaticPolicySource(dir, s.Server, compile, load, func(b *v1.MutatingAdmissionPolicyBinding) string { return b.Spec.PolicyName }, metrics.MAPManifestType))
}

// follow reads files, and again when they change. What cannot be read then leaves what was.
func follow[P, B stored, E any](s *Static, from *manifests.StaticPolicySource[P, B, E]) (func() []generic.PolicyHook[P, B, E], error) {
	if err := from.LoadInitial(); err != nil {
		return nil, errors.Join(errors.New("failed to load static policy manifests"), err)
	}
	s.Run(from.RunReloadLoop)
	return from.Hooks, nil
}

// of is a configuration of type T.
func of[T runtime.Object](obj runtime.Object) bool {
	_, ok := obj.(T)
	return ok
}

// withFiles adds the policies of a configuration's directory to a source.
func (p *Validating) withFiles(config io.Reader) error {
	s := &p.cfg.Static
	dir, err := s.staticDir(config, of[*policyconfig.ValidatingAdmissionPolicyConfiguration])
	if err != nil || dir == "" {
		return err
	}
	p.source.static, err = s.validatingFiles(dir, p.cfg.Kinds)
	return err
}

func (p *Mutating) withFiles(config io.Reader) error {
	s := &p.cfg.Static
	dir, err := s.staticDir(config, of[*policyconfig.MutatingAdmissionPolicyConfiguration])
	if err != nil || dir == "" {
		return err
	}
	p.source.static, err = s.mutatingFiles(dir, p.cfg.Kinds)
	return err
}
