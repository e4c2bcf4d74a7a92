package policies

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"slices"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/interpreter"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	upstreamadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
)

// conditions are compiled expressions. They are evaluated as upstream's ConditionEvaluator does
// it, to the letter of the errors, but for when the values are made that expressions can name:
// upstream makes the request and the namespace three times for each policy, whether they are named
// or not. Here they are made when an expression names them, once for a decision.
type conditions struct {
	compiler *cel.CompositedCompiler
	compiled []cel.CompilationResult
	none     bool // all expressions are nil
}

var _ cel.ConditionEvaluator = (*conditions)(nil)

// compile compiles expressions, of which some may be nil.
func compile(c *cel.CompositedCompiler, expressions []cel.ExpressionAccessor, vars cel.OptionalVariableDeclarations) *conditions {
	out := &conditions{compiler: c, compiled: make([]cel.CompilationResult, len(expressions)), none: true}
	for i, e := range expressions {
		if e != nil {
			out.compiled[i], out.none = c.CompileCELExpression(e, vars, environment.StoredExpressions), false
		}
	}
	return out
}

// CompilationErrors implements cel.ConditionEvaluator.
func (c *conditions) CompilationErrors() []error {
	all := []error{}
	for _, r := range c.compiled {
		if r.Error != nil {
			all = append(all, r.Error)
		}
	}
	return all
}

// ForInput implements cel.ConditionEvaluator.
func (c *conditions) ForInput(ctx context.Context, attr *upstreamadmission.VersionedAttributes, request *admissionv1.AdmissionRequest, inputs cel.OptionalVariableBindings, namespace *corev1.Namespace, budget int64) ([]cel.EvaluationResult, int64, error) {
	out := make([]cel.EvaluationResult, len(c.compiled))
	if c.none {
		return out, budget, nil
	}
	in, err := newActivation(ctx, attr, request, inputs, namespace)
	if err != nil {
		return nil, -1, err
	}
	in.composition = c.compiler.CreateContext(ctx)
	for i := range c.compiled {
		if c.compiled[i].ExpressionAccessor == nil {
			continue
		}
		if out[i], budget, err = in.evaluate(&c.compiled[i], budget); err != nil {
			return nil, -1, err
		}
	}
	return out, budget, nil
}

var errOutOfBudget = &apiservercel.Error{
	Type:   apiservercel.ErrorTypeInvalid,
	Detail: "validation failed due to running out of cost budget, no further validation rules will be run",
	Cause:  apiservercel.ErrOutOfBudget,
}

// evaluate evaluates one expression and returns what is left of the budget. An error is that
// nothing further is evaluated.
func (a *activation) evaluate(c *cel.CompilationResult, budget int64) (cel.EvaluationResult, int64, error) {
	out := cel.EvaluationResult{ExpressionAccessor: c.ExpressionAccessor}
	switch {
	case c.Error != nil:
		out.Error = &apiservercel.Error{Type: apiservercel.ErrorTypeInvalid, Detail: fmt.Sprintf("compilation error: %v", c.Error), Cause: c.Error}
		return out, budget, nil
	case c.Program == nil:
		out.Error = &apiservercel.Error{Type: apiservercel.ErrorTypeInternal, Detail: "unexpected internal error compiling expression"}
		return out, budget, nil
	}
	begin := time.Now()
	result, details, err := c.Program.ContextEval(a.composition, a)
	spent := a.composition.GetAndResetCost() // of variables, which are evaluated when they are named
	if spent > budget {
		return out, -1, errOutOfBudget
	}
	budget -= spent
	out.Elapsed = time.Since(begin)
	if details == nil {
		return out, -1, &apiservercel.Error{
			Type:   apiservercel.ErrorTypeInternal,
			Detail: fmt.Sprintf("runtime cost could not be calculated for expression: %v, no further expression will be run", c.ExpressionAccessor.GetExpression()),
		}
	}
	cost := details.ActualCost()
	switch {
	case cost == nil:
		return out, -1, &apiservercel.Error{
			Type:   apiservercel.ErrorTypeInvalid,
			Detail: fmt.Sprintf("runtime cost could not be calculated for expression: %v, no further expression will be run", c.ExpressionAccessor.GetExpression()),
			Cause:  apiservercel.ErrOutOfBudget,
		}
	case *cost > math.MaxInt64 || int64(*cost) > budget:
		return out, -1, errOutOfBudget
	}
	budget -= int64(*cost)
	if err != nil {
		out.Error = &apiservercel.Error{Type: apiservercel.ErrorTypeInvalid, Detail: fmt.Sprintf("expression '%v' resulted in error: %v", c.ExpressionAccessor.GetExpression(), err)}
	} else {
		out.EvalResult = result
	}
	return out, budget, nil
}

// activation is what expressions can name. For one goroutine.
type activation struct {
	attr      *upstreamadmission.VersionedAttributes
	inputs    cel.OptionalVariableBindings
	request   *admissionv1.AdmissionRequest
	namespace *corev1.Namespace
	made      *values

	composition cel.CompositionContext // of the variables of a policy, and their cost

	object, old, params                              any
	variables, authorizer, requestResourceAuthorizer any // nil: not named yet
}

func newActivation(ctx context.Context, attr *upstreamadmission.VersionedAttributes, request *admissionv1.AdmissionRequest, inputs cel.OptionalVariableBindings, namespace *corev1.Namespace) (*activation, error) {
	a := &activation{attr: attr, inputs: inputs, request: request, namespace: namespace, made: valuesOf(ctx)}
	var err error
	if a.old, err = content(attr.VersionedOldObject); err != nil {
		return nil, fmt.Errorf("failed to prepare oldObject variable for evaluation: %w", err)
	}
	if a.object, err = content(attr.VersionedObject); err != nil {
		return nil, fmt.Errorf("failed to prepare object variable for evaluation: %w", err)
	}
	if inputs.VersionedParams != nil {
		if a.params, err = content(inputs.VersionedParams); err != nil {
			return nil, fmt.Errorf("failed to prepare params variable for evaluation: %w", err)
		}
	}
	return a, nil
}

// content is an object as a tree, shared with it if it is one; nil if there is none.
func content(obj runtime.Object) (any, error) {
	if obj == nil || reflect.ValueOf(obj).IsNil() {
		return nil, nil
	}
	made, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	return made, nil
}

// ResolveName implements interpreter.Activation.
func (a *activation) ResolveName(name string) (any, bool) {
	switch name {
	case cel.ObjectVarName:
		return a.object, true
	case cel.OldObjectVarName:
		return a.old, true
	case cel.ParamsVarName:
		return a.params, true // null if there are none
	case cel.RequestVarName:
		return a.made.request(a.request), true
	case cel.NamespaceVarName:
		return a.made.namespace(a.namespace), true
	case cel.AuthorizerVarName:
		if a.inputs.Authorizer == nil {
			return nil, false
		}
		if a.authorizer == nil {
			a.authorizer = library.NewAuthorizerVal(a.attr.GetUserInfo(), a.inputs.Authorizer)
		}
		return a.authorizer, true
	case cel.RequestResourceAuthorizerVarName:
		if a.inputs.Authorizer == nil {
			return nil, false
		}
		if a.requestResourceAuthorizer == nil {
			a.requestResourceAuthorizer = library.NewResourceAuthorizerVal(a.attr.GetUserInfo(), a.inputs.Authorizer, a.attr)
		}
		return a.requestResourceAuthorizer, true
	case cel.VariableVarName:
		if a.variables == nil {
			a.variables = a.composition.Variables(a)
		}
		return a.variables, true
	}
	return nil, false
}

// Parent implements interpreter.Activation.
func (a *activation) Parent() interpreter.Activation { return nil }

// values are what was made for one decision. What differs between policies is the kind that a
// policy has matched, and which fields of the namespace are shown. For one goroutine.
type values struct {
	requests   []madeRequest
	namespaces []madeNamespace
}

type madeRequest struct {
	kind     metav1.GroupVersionKind
	resource metav1.GroupVersionResource
	value    any
}

type madeNamespace struct {
	of    *corev1.Namespace
	value any
}

type valuesKey struct{}

// withValues is the context of one decision.
func withValues(ctx context.Context) context.Context {
	return context.WithValue(ctx, valuesKey{}, &values{})
}

// valuesOf are those of a decision, or new ones.
func valuesOf(ctx context.Context) *values {
	if v, ok := ctx.Value(valuesKey{}).(*values); ok {
		return v
	}
	return &values{}
}

func (v *values) request(r *admissionv1.AdmissionRequest) any {
	for i := range v.requests {
		if m := &v.requests[i]; m.kind == r.Kind && m.resource == r.Resource {
			return m.value
		}
	}
	value, err := runtime.DefaultUnstructuredConverter.ToUnstructured(r)
	if err != nil {
		return types.NewErr("failed to prepare request variable for evaluation: %v", err)
	}
	v.requests = append(v.requests, madeRequest{r.Kind, r.Resource, value})
	return value
}

// namespace is the value of a namespace. Upstream copies the same one for each policy.
func (v *values) namespace(n *corev1.Namespace) any {
	if n == nil {
		return nil
	}
	if i := slices.IndexFunc(v.namespaces, func(m madeNamespace) bool { return sameNamespace(m.of, n) }); i >= 0 {
		return v.namespaces[i].value
	}
	value, err := runtime.DefaultUnstructuredConverter.ToUnstructured(n)
	if err != nil {
		return types.NewErr("failed to prepare namespace variable for evaluation: %v", err)
	}
	v.namespaces = append(v.namespaces, madeNamespace{n, value})
	return value
}

// sameNamespace reports whether two copies have the same fields of the same version.
func sameNamespace(a, b *corev1.Namespace) bool {
	return a == b || a.UID == b.UID && a.UID != "" && a.ResourceVersion == b.ResourceVersion && a.ResourceVersion != "" &&
		a.TypeMeta == b.TypeMeta && len(a.ManagedFields) == len(b.ManagedFields) && len(a.OwnerReferences) == len(b.OwnerReferences)
}
