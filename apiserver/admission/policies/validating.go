package policies

import (
	"context"
	"io"

	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/admission/suspension"
	"github.com/quorate/quorate/apiserver/admission/upstream"
	"github.com/quorate/quorate/apiserver/types/state"
	v1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/generic"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/cel/environment"
)

type (
	validatingSource = source[*v1.ValidatingAdmissionPolicy, *v1.ValidatingAdmissionPolicyBinding, validating.Validator]
	validatingHook   = validating.PolicyHook
)

// Validating is the plugin ValidatingAdmissionPolicy.
type Validating struct {
	cfg      Config
	source   *validatingSource
	params   *params
	matching *matching.Matcher
	matcher  generic.PolicyMatcher
}

var _ admission.Validator = (*Validating)(nil)

// NewValidating returns the plugin. config is its configuration (ValidatingAdmissionPolicyConfiguration),
// nil if there is none. Errors: it cannot be used, or one of the files that it names.
func NewValidating(cfg Config, config io.Reader) (*Validating, error) {
	all := state.All[v1.ValidatingAdmissionPolicy](cfg.State, schema.GroupResource{Group: group, Resource: "validatingadmissionpolicies"}, cfg.Log)
	bindings := state.All[v1.ValidatingAdmissionPolicyBinding](cfg.State, schema.GroupResource{Group: group, Resource: "validatingadmissionpolicybindings"}, cfg.Log)
	p := &Validating{
		cfg: cfg, params: newParams(cfg),
		source: &validatingSource{
			kinds:      cfg.Kinds,
			policies:   suspension.Filter(cfg.Suspensions, "validatingadmissionpolicies", all.List),
			bindings:   bindings.List,
			unreadable: unreadableOf(cfg, "validatingadmissionpolicies", all, bindings),
			policy:     validating.NewValidatingAdmissionPolicyAccessor,
			binding:    validating.NewValidatingAdmissionPolicyBindingAccessor,
			compile:    compileValidating,
		},
		matching: cfg.matcher(),
	}
	p.matcher = generic.NewPolicyMatcher(p.matching)
	return p, p.withFiles(config)
}

// Handles implements admission.Plugin.
func (p *Validating) Handles(a *admission.Attributes) bool {
	return p.source.concerns(a) != nil || p.source.unread(a) != nil
}

// Validate implements admission.Validator.
func (p *Validating) Validate(ctx context.Context, a *admission.Attributes) error {
	c := p.source.concerns(a)
	if err := p.source.unread(a); err != nil || c == nil {
		return err
	}
	hooks := bind(ctx, p.params, p.source, c, a)
	d := validating.NewDispatcher(upstream.AuthorizerFor(p.cfg.Authorizer, a), &matcher{p.matcher, p.matching, c.criteria})
	return d.Dispatch(withValues(withWarnings(ctx, a)), a, p.cfg.Kinds, hooks)
}

// compileValidating compiles the expressions of a policy. What is wrong with one is kept, and
// told when it is evaluated.
func compileValidating(p *v1.ValidatingAdmissionPolicy) validating.Validator {
	spec := &p.Spec
	vars := cel.OptionalVariableDeclarations{HasParams: spec.ParamKind != nil, HasAuthorizer: true}
	messageVars := cel.OptionalVariableDeclarations{HasParams: spec.ParamKind != nil}
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		return validating.NewValidator(nil, nil, nil, nil, spec.FailurePolicy, err)
	}
	compiler.CompileAndStoreVariables(variables(spec.Variables), vars, environment.StoredExpressions)
	conditions := conditionsOf(compiler, spec.MatchConditions, vars, spec.FailurePolicy, p.Name)
	checks := make([]cel.ExpressionAccessor, len(spec.Validations))
	messages := make([]cel.ExpressionAccessor, len(spec.Validations)) // nil where there is none
	for i, v := range spec.Validations {
		checks[i] = &validating.ValidationCondition{Expression: v.Expression, Message: v.Message, Reason: v.Reason}
		if v.MessageExpression != "" {
			messages[i] = &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression}
		}
	}
	annotations := make([]cel.ExpressionAccessor, len(spec.AuditAnnotations))
	for i, a := range spec.AuditAnnotations {
		annotations[i] = &validating.AuditAnnotationCondition{Key: a.Key, ValueExpression: a.ValueExpression}
	}
	return validating.NewValidator(
		compile(compiler, checks, vars), conditions,
		compile(compiler, annotations, vars),
		compile(compiler, messages, messageVars),
		spec.FailurePolicy, nil)
}

// variables are what later expressions of a policy can name.
func variables(all []v1.Variable) []cel.NamedExpressionAccessor {
	out := make([]cel.NamedExpressionAccessor, len(all))
	for i, v := range all {
		out[i] = &validating.Variable{Name: v.Name, Expression: v.Expression}
	}
	return out
}

// conditionsOf are the match conditions of a policy; nil if it has none.
func conditionsOf(c *cel.CompositedCompiler, all []v1.MatchCondition, vars cel.OptionalVariableDeclarations, fail *v1.FailurePolicyType, name string) matchconditions.Matcher {
	if len(all) == 0 {
		return nil
	}
	conditions := make([]cel.ExpressionAccessor, len(all))
	for i := range all {
		conditions[i] = (*matchconditions.MatchCondition)(&all[i])
	}
	return matchconditions.NewMatcher(compile(c, conditions, vars), fail, "policy", "validate", name)
}
