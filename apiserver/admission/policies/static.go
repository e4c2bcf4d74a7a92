package policies

import (
	"errors"
	"fmt"
	"io"

	"github.com/quorate/quorate/apiserver/admission/static"
	"github.com/quorate/quorate/apiserver/admission/upstream"
	v1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/admission/plugin/manifest/metrics"
	"k8s.io/apiserver/pkg/admission/plugin/policy/config/apis/policyconfig"
	policyconfigv1 "k8s.io/apiserver/pkg/admission/plugin/policy/config/apis/policyconfig/v1"
	"k8s.io/apiserver/pkg/admission/plugin/policy/generic"
	"k8s.io/apiserver/pkg/admission/plugin/policy/manifest/loader"
	manifests "k8s.io/apiserver/pkg/admission/plugin/policy/manifest/source"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
)

// configs has the configurations of the plugins; fields that nobody knows are errors.
var configs = func() serializer.CodecFactory {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{policyconfig.AddToScheme, policyconfigv1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err) // the types do not change
		}
	}
	return serializer.NewCodecFactory(s, serializer.EnableStrict)
}()

// directory is the field of both kinds of configurations.
type directory interface{ GetStaticManifestsDir() string }

// staticDir reads a plugin's configuration of type T; nil is none. Errors: it is not one, or
// names no directory that can be read, or files are not enabled.
func staticDir(files *static.Files, config io.Reader, is func(runtime.Object) bool) (string, error) {
	if config == nil {
		return "", nil
	}
	raw, err := io.ReadAll(config)
	if err != nil {
		return "", err
	}
	decoded, err := runtime.Decode(configs.UniversalDecoder(), raw)
	if err != nil {
		return "", err
	}
	named, ok := decoded.(directory)
	if !ok || !is(decoded) {
		return "", fmt.Errorf("unexpected type: %T", decoded)
	}
	dir := named.GetStaticManifestsDir()
	if dir == "" {
		return "", nil
	}
	return dir, files.CheckDir(dir)
}

// validatingFiles are the policies of a directory, which are read and followed. Errors: one of
// them is not valid.
func validatingFiles(s *static.Files, dir string, known *upstream.Kinds) (func() []validatingHook, error) {
	load := func(dir string) ([]*v1.ValidatingAdmissionPolicy, []*v1.ValidatingAdmissionPolicyBinding, string, error) {
		return loader.LoadPolicyManifests(dir, static.Decoder(), func(obj runtime.Object) ([]*v1.ValidatingAdmissionPolicy, error) {
			switch obj := obj.(type) {
			case *v1.ValidatingAdmissionPolicy:
				return static.Complete(s, known, "validatingadmissionpolicies", obj)
			case *v1.ValidatingAdmissionPolicyList:
				return static.Complete(s, known, "validatingadmissionpolicies", static.Pointers(obj.Items)...)
			}
			return nil, loader.ErrUnrecognizedType
		}, func(obj runtime.Object) ([]*v1.ValidatingAdmissionPolicyBinding, error) {
			switch obj := obj.(type) {
			case *v1.ValidatingAdmissionPolicyBinding:
				return static.Complete(s, known, "validatingadmissionpolicybindings", obj)
			case *v1.ValidatingAdmissionPolicyBindingList:
				return static.Complete(s, known, "validatingadmissionpolicybindings", static.Pointers(obj.Items)...)
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
func mutatingFiles(s *static.Files, dir string, known *upstream.Kinds) (func() []mutatingHook, error) {
	load := func(dir string) ([]*v1.MutatingAdmissionPolicy, []*v1.MutatingAdmissionPolicyBinding, string, error) {
		return loader.LoadPolicyManifests(dir, static.Decoder(), func(obj runtime.Object) ([]*v1.MutatingAdmissionPolicy, error) {
			switch obj := obj.(type) {
			case *v1.MutatingAdmissionPolicy:
				return static.Complete(s, known, "mutatingadmissionpolicies", obj)
			case *v1.MutatingAdmissionPolicyList:
				return static.Complete(s, known, "mutatingadmissionpolicies", static.Pointers(obj.Items)...)
			}
			return nil, loader.ErrUnrecognizedType
		}, func(obj runtime.Object) ([]*v1.MutatingAdmissionPolicyBinding, error) {
			switch obj := obj.(type) {
			case *v1.MutatingAdmissionPolicyBinding:
				return static.Complete(s, known, "mutatingadmissionpolicybindings", obj)
			case *v1.MutatingAdmissionPolicyBindingList:
				return static.Complete(s, known, "mutatingadmissionpolicybindings", static.Pointers(obj.Items)...)
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
func follow[P, B stored, E any](s *static.Files, from *manifests.StaticPolicySource[P, B, E]) (func() []generic.PolicyHook[P, B, E], error) {
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
	dir, err := staticDir(s, config, of[*policyconfig.ValidatingAdmissionPolicyConfiguration])
	if err != nil || dir == "" {
		return err
	}
	p.source.static, err = validatingFiles(s, dir, p.cfg.Kinds)
	if err == nil {
		s.List(func() []static.Rule { return inForce(p.source, "validatingadmissionpolicies") })
	}
	return err
}

func (p *Mutating) withFiles(config io.Reader) error {
	s := &p.cfg.Static
	dir, err := staticDir(s, config, of[*policyconfig.MutatingAdmissionPolicyConfiguration])
	if err != nil || dir == "" {
		return err
	}
	p.source.static, err = mutatingFiles(s, dir, p.cfg.Kinds)
	if err == nil {
		s.List(func() []static.Rule { return inForce(p.source, "mutatingadmissionpolicies") })
	}
	return err
}

// inForce are the policies of files.
func inForce[P, B stored, E any](s *source[P, B, E], resource string) []static.Rule {
	var out []static.Rule
	for _, hook := range s.static() {
		p := s.policy(hook.Policy)
		out = append(out, static.Rule{Resource: resource, Configuration: p.GetName(), FailurePolicy: static.FailurePolicy(p.GetFailurePolicy())})
	}
	return out
}
