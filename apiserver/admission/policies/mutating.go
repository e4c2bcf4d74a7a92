package policies

import (
	"context"
	"fmt"
	"io"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/suspension"
	"github.com/quorate/quorate/apiserver/admission/upstream"
	"github.com/quorate/quorate/apiserver/types/state"
	v1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

type (
	mutatingSource = source[*v1.MutatingAdmissionPolicy, *v1.MutatingAdmissionPolicyBinding, mutating.PolicyEvaluator]
	mutatingHook   = mutating.PolicyHook
)

// Mutating is the plugin MutatingAdmissionPolicy.
type Mutating struct {
	cfg     Config
	source  *mutatingSource
	params  *params
	matcher *matching.Matcher
}

var _ admission.Mutator = (*Mutating)(nil)

// NewMutating returns the plugin. config is its configuration (MutatingAdmissionPolicyConfiguration),
// nil if there is none. Errors: it cannot be used, or one of the files that it names.
func NewMutating(cfg Config, config io.Reader) (*Mutating, error) {
	all := state.All[v1.MutatingAdmissionPolicy](cfg.State, schema.GroupResource{Group: group, Resource: "mutatingadmissionpolicies"}, cfg.Log)
	bindings := state.All[v1.MutatingAdmissionPolicyBinding](cfg.State, schema.GroupResource{Group: group, Resource: "mutatingadmissionpolicybindings"}, cfg.Log)
	p := &Mutating{
		cfg: cfg, params: newParams(cfg),
		source: &mutatingSource{
			kinds:      cfg.Kinds,
			policies:   suspension.Filter(cfg.Suspensions, "mutatingadmissionpolicies", all.List),
			bindings:   bindings.List,
			unreadable: unreadableOf(cfg, "mutatingadmissionpolicies", all, bindings),
			policy:     mutating.NewMutatingAdmissionPolicyAccessor,
			binding:    mutating.NewMutatingAdmissionPolicyBindingAccessor,
			compile:    func(p *v1.MutatingAdmissionPolicy) mutating.PolicyEvaluator { return compileMutating(cfg.Kinds, p) },
		},
		matcher: cfg.matcher(),
	}
	return p, p.withFiles(config)
}

// Handles implements admission.Plugin. There is nothing to change in a deletion.
func (p *Mutating) Handles(a *admission.Attributes) bool {
	return a.Operation != admission.Delete && (p.source.concerns(a) != nil || p.source.unread(a) != nil)
}

// Admit implements admission.Mutator.
func (p *Mutating) Admit(ctx context.Context, a *admission.Attributes) error {
	c := p.source.concerns(a)
	if err := p.source.unread(a); err != nil || c == nil {
		return err
	}
	hooks := bind(ctx, p.params, p.source, c, a)
	m := &mutation{Kinds: p.cfg.Kinds}
	d := mutating.NewDispatcher(upstream.AuthorizerFor(p.cfg.Authorizer, a), p.matcher, converters{p.cfg.Kinds})
	if err := d.Dispatch(withWarnings(ctx, a), a, m, hooks); err != nil {
		return err
	}
	if !m.changed {
		return nil
	}
	// What policies have made fits the version that they match, which may be another one.
	made := runtime.DeepCopyJSON(a.Object)
	if _, err := p.cfg.Kinds.Fit(made); err != nil {
		return errors.NewInternalError(err)
	}
	a.SetObject(made)
	return nil
}

// mutation is upstream's ObjectInterfaces for one decision: it notes whether the object was
// changed.
type mutation struct {
	*upstream.Kinds
	changed bool
}

func (m *mutation) GetObjectConvertor() runtime.ObjectConvertor {
	return noting{m.Kinds.GetObjectConvertor(), m}
}

type noting struct {
	runtime.ObjectConvertor
	of *mutation
}

// Convert is called with what policies have made, and with the object where they match another
// version: then nothing is lost by fitting it once more.
func (n noting) Convert(in, out, context any) error {
	n.of.changed = true
	return n.ObjectConvertor.Convert(in, out, context)
}

// fitting is a patch whose result fits the model of its kind: what the model does not know is
// an error, as it is for upstream's strict decoder.
type fitting struct {
	patch.Patcher
	kinds *upstream.Kinds
}

func (f fitting) Patch(ctx context.Context, r patch.Request, budget int64) (runtime.Object, error) {
	made, err := f.Patcher.Patch(ctx, r, budget)
	if err != nil || made == r.VersionedAttributes.VersionedObject {
		return made, err
	}
	u, ok := made.(*unstructured.Unstructured)
	if !ok {
		return nil, errors.NewInternalError(fmt.Errorf("a patch has made a %T", made))
	}
	u = u.DeepCopy() // a merge shares with what it was made of
	if res := f.kinds.Resource(u.GroupVersionKind()); res != nil && res.Custom {
		return u, nil // which may have what only other versions know
	}
	unknown, err := f.kinds.Fit(u.Object)
	if err != nil {
		return nil, errors.NewInternalError(err)
	}
	if len(unknown) > 0 {
		all := make([]error, len(unknown))
		for i, path := range unknown {
			all[i] = fmt.Errorf("unknown field %q", path)
		}
		return nil, errors.NewInternalError(runtime.NewStrictDecodingError(all))
	}
	return u, nil
}

// compileMutating compiles the expressions of a policy. What is wrong with one is kept, and
// told when it is evaluated.
func compileMutating(known *upstream.Kinds, p *v1.MutatingAdmissionPolicy) mutating.PolicyEvaluator {
	spec := &p.Spec
	vars := cel.OptionalVariableDeclarations{HasParams: spec.ParamKind != nil, HasAuthorizer: true}
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		return mutating.PolicyEvaluator{Error: &apiservercel.Error{
			Type: apiservercel.ErrorTypeInternal, Detail: fmt.Sprintf("failed to initialize CEL compiler: %v", err),
		}}
	}
	compiler.CompileAndStoreVariables(variables(spec.Variables), vars, environment.StoredExpressions)
	made := mutating.PolicyEvaluator{CompositedCompiler: compiler, Matcher: conditionsOf(compiler, spec.MatchConditions, vars, spec.FailurePolicy, p.Name)}
	vars.HasPatchTypes = true
	add := func(of patch.Patcher) { made.Mutators = append(made.Mutators, fitting{of, known}) }
	for _, m := range spec.Mutations {
		switch {
		case m.PatchType == v1.PatchTypeJSONPatch && m.JSONPatch != nil:
			expression := &patch.JSONPatchCondition{Expression: m.JSONPatch.Expression}
			add(patch.NewJSONPatcher(compiler.CompileMutatingEvaluator(expression, vars, environment.StoredExpressions)))
		case m.PatchType == v1.PatchTypeApplyConfiguration && m.ApplyConfiguration != nil:
			expression := &patch.ApplyConfigurationCondition{Expression: m.ApplyConfiguration.Expression}
			add(patch.NewApplyConfigurationPatcher(compiler.CompileMutatingEvaluator(expression, vars, environment.StoredExpressions)))
		}
	}
	return made
}
