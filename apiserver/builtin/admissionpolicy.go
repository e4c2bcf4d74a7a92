package builtin

import (
	"fmt"
	"slices"
	"strings"

	"github.com/quorate/quorate/apiserver/tree"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/util/jsonpath"
)

// Bounds of audit annotations.
const (
	maxAuditAnnotations     = 20
	maxAnnotationExpression = 5 << 10 // bytes
)

// decodePolicy decodes a policy or a binding; nil if there is none.
func decodePolicy[T any](obj tree.Object) (*T, error) {
	if obj == nil {
		return nil, nil
	}
	out := new(T)
	return out, runtime.DefaultUnstructuredConverter.FromUnstructured(obj, out)
}

// validateBoth decodes an object and what was there before, and checks the one with the other.
// What was there and cannot be decoded counts for nothing.
func validateBoth[T any](check func(now, old *T) field.ErrorList) func(obj, old tree.Object) field.ErrorList {
	return func(obj, old tree.Object) field.ErrorList {
		now, err := decodePolicy[T](obj)
		if err != nil {
			return field.ErrorList{field.InternalError(field.NewPath("spec"), err)}
		}
		before, err := decodePolicy[T](old)
		if err != nil {
			before = nil
		}
		return check(now, before)
	}
}

func validateValidatingPolicy(now, old *admissionv1.ValidatingAdmissionPolicy) field.ErrorList {
	spec, path := &now.Spec, field.NewPath("spec")
	c := newExpressions(spec.ParamKind != nil, len(spec.Variables) > 0)
	unchanged := false
	if old != nil {
		c.rememberValidating(&old.Spec)
		unchanged = equality.Semantic.DeepEqual(spec.ParamKind, old.Spec.ParamKind) && equality.Semantic.DeepEqual(spec.MatchConditions, old.Spec.MatchConditions)
	}
	errs := validatePolicyHead(spec.FailurePolicy, spec.ParamKind, spec.MatchConstraints, path)
	if !unchanged {
		errs = append(errs, c.matchConditions(spec.MatchConditions, path.Child("matchConditions"))...)
	}
	errs = append(errs, c.variables(spec.Variables, path.Child("variables"))...)
	if len(spec.Validations) == 0 && len(spec.AuditAnnotations) == 0 {
		const neither = "validations or auditAnnotations must contain at least one item"
		return append(errs, field.Required(path.Child("validations"), neither), field.Required(path.Child("auditAnnotations"), neither))
	}
	for i := range spec.Validations {
		errs = append(errs, c.validation(&spec.Validations[i], path.Child("validations").Index(i))...)
	}
	return append(errs, c.auditAnnotations(now.Name, spec.AuditAnnotations, path.Child("auditAnnotations"))...)
}

// mutatingOperations are those of requests that have an object to change.
var mutatingOperations = []string{"*", "CONNECT", "CREATE", "UPDATE"}

func validateMutatingPolicy(now, old *admissionv1.MutatingAdmissionPolicy) field.ErrorList {
	spec, path := &now.Spec, field.NewPath("spec")
	c := newExpressions(spec.ParamKind != nil, true)
	unchanged := false
	if old != nil {
		c.rememberMutating(&old.Spec)
		unchanged = equality.Semantic.DeepEqual(spec.ParamKind, old.Spec.ParamKind) && equality.Semantic.DeepEqual(spec.MatchConditions, old.Spec.MatchConditions)
	}
	errs := validatePolicyHead(spec.FailurePolicy, spec.ParamKind, spec.MatchConstraints, path)
	errs = append(errs, validateMutatingOperations(spec.MatchConstraints, path.Child("matchConstraints"))...)
	if !unchanged {
		errs = append(errs, c.matchConditions(spec.MatchConditions, path.Child("matchConditions"))...)
	}
	errs = append(errs, c.variables(spec.Variables, path.Child("variables"))...)
	if len(spec.Mutations) == 0 {
		errs = append(errs, field.Required(path.Child("mutations"), "mutations must contain at least one item"))
	}
	for i := range spec.Mutations {
		errs = append(errs, c.mutation(&spec.Mutations[i], path.Child("mutations").Index(i))...)
	}
	if spec.ReinvocationPolicy == "" {
		return append(errs, field.Required(path.Child("reinvocationPolicy"), ""))
	}
	return append(errs, oneOf(spec.ReinvocationPolicy, path.Child("reinvocationPolicy"), "IfNeeded", "Never")...)
}

func validateMutatingOperations(m *admissionv1.MatchResources, path *field.Path) (errs field.ErrorList) {
	if m == nil {
		return nil
	}
	for _, rule := range m.ResourceRules {
		for _, op := range rule.Operations {
			errs = append(errs, oneOf(op, path.Child("resourceRules", "operations"), mutatingOperations...)...)
		}
	}
	return errs
}

func oneOf[T ~string](value T, path *field.Path, values ...string) field.ErrorList {
	if slices.Contains(values, string(value)) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, value, values)}
}

// validatePolicyHead checks what policies of both kinds begin with.
func validatePolicyHead(fail *admissionv1.FailurePolicyType, kind *admissionv1.ParamKind, match *admissionv1.MatchResources, path *field.Path) (errs field.ErrorList) {
	if fail == nil {
		errs = append(errs, field.Required(path.Child("failurePolicy"), ""))
	} else {
		errs = append(errs, oneOf(*fail, path.Child("failurePolicy"), "Fail", "Ignore")...)
	}
	if kind != nil {
		errs = append(errs, validateParamKind(kind, path.Child("paramKind"))...)
	}
	path = path.Child("matchConstraints")
	if match == nil {
		return append(errs, field.Required(path, ""))
	}
	errs = append(errs, validateMatchResources(match, path)...)
	if len(match.ResourceRules) == 0 { // they say which types expressions are about
		errs = append(errs, field.Required(path.Child("resourceRules"), ""))
	}
	return errs
}

func validateParamKind(k *admissionv1.ParamKind, path *field.Path) (errs field.ErrorList) {
	at := path.Child("apiVersion")
	group, version, slash := strings.Cut(k.APIVersion, "/")
	if !slash {
		group, version = "", k.APIVersion
	}
	switch {
	case k.APIVersion == "":
		errs = append(errs, field.Required(at, ""))
	case strings.Count(k.APIVersion, "/") > 1:
		errs = append(errs, field.Invalid(at, k.APIVersion, fmt.Sprintf("unexpected GroupVersion string: %v", k.APIVersion)))
	default:
		if msgs := validation.IsDNS1123Subdomain(group); group != "" && len(msgs) > 0 {
			errs = append(errs, field.Invalid(at, group, strings.Join(msgs, ",")))
		}
		if version == "" {
			errs = append(errs, field.Invalid(at, k.APIVersion, "version must be specified"))
		} else if msgs := validation.IsDNS1035Label(version); len(msgs) > 0 {
			errs = append(errs, field.Invalid(at, version, strings.Join(msgs, ",")))
		}
	}
	if k.Kind == "" {
		return append(errs, field.Required(path.Child("kind"), ""))
	}
	if msgs := validation.IsDNS1035Label(strings.ToLower(k.Kind)); len(msgs) > 0 {
		errs = append(errs, field.Invalid(path.Child("kind"), k.Kind, "may have mixed case, but should otherwise match: "+strings.Join(msgs, ",")))
	}
	return errs
}

func validateMatchResources(m *admissionv1.MatchResources, path *field.Path) (errs field.ErrorList) {
	if m.MatchPolicy == nil {
		errs = append(errs, field.Required(path.Child("matchPolicy"), ""))
	} else {
		errs = append(errs, oneOf(*m.MatchPolicy, path.Child("matchPolicy"), "Equivalent", "Exact")...)
	}
	strict := metav1validation.LabelSelectorValidationOptions{}
	if m.NamespaceSelector == nil {
		errs = append(errs, field.Required(path.Child("namespaceSelector"), ""))
	} else {
		errs = append(errs, metav1validation.ValidateLabelSelector(m.NamespaceSelector, strict, path.Child("namespaceSelector"))...)
	}
	if m.ObjectSelector == nil {
		errs = append(errs, field.Required(path.Child("objectSelector"), ""))
	} else {
		errs = append(errs, metav1validation.ValidateLabelSelector(m.ObjectSelector, strict, path.Child("objectSelector"))...)
	}
	for i := range m.ResourceRules {
		errs = append(errs, validateNamedRule(&m.ResourceRules[i], path.Child("resourceRules").Index(i))...)
	}
	for i := range m.ExcludeResourceRules {
		errs = append(errs, validateNamedRule(&m.ExcludeResourceRules[i], path.Child("excludeResourceRules").Index(i))...)
	}
	return errs
}

func validateNamedRule(r *admissionv1.NamedRuleWithOperations, path *field.Path) (errs field.ErrorList) {
	seen := map[string]bool{}
	for i, name := range r.ResourceNames {
		at := path.Child("resourceNames").Index(i)
		for _, msg := range content.IsPathSegmentName(name) {
			errs = append(errs, field.Invalid(at, name, msg))
		}
		if seen[name] {
			errs = append(errs, field.Duplicate(at, name))
		}
		seen[name] = true
	}
	errs = append(errs, validateWebhookRule(&r.RuleWithOperations, path)...)
	if r.Scope != nil {
		errs = append(errs, oneOf(*r.Scope, path.Child("scope"), "*", "Cluster", "Namespaced")...)
	}
	return errs
}

func validateValidatingBinding(now, _ *admissionv1.ValidatingAdmissionPolicyBinding) field.ErrorList {
	path := field.NewPath("spec")
	errs := validateBindingHead(now.Spec.PolicyName, now.Spec.ParamRef, now.Spec.MatchResources, path)
	at, actions := path.Child("validationActions"), now.Spec.ValidationActions
	seen := map[admissionv1.ValidationAction]bool{}
	for i, action := range actions {
		errs = append(errs, oneOf(action, at.Index(i), "Audit", "Deny", "Warn")...)
		if seen[action] {
			errs = append(errs, field.Duplicate(at.Index(i), action))
		}
		seen[action] = true
	}
	if seen[admissionv1.Deny] && seen[admissionv1.Warn] {
		errs = append(errs, field.Invalid(at, actions, "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)"))
	}
	if len(actions) == 0 {
		errs = append(errs, field.Required(at, "at least one validation action is required"))
	}
	return errs
}

func validateMutatingBinding(now, _ *admissionv1.MutatingAdmissionPolicyBinding) field.ErrorList {
	path := field.NewPath("spec")
	errs := validateBindingHead(now.Spec.PolicyName, now.Spec.ParamRef, now.Spec.MatchResources, path)
	return append(errs, validateMutatingOperations(now.Spec.MatchResources, path.Child("matchResources"))...)
}

// validateBindingHead checks what bindings of both kinds begin with.
func validateBindingHead(policy string, ref *admissionv1.ParamRef, match *admissionv1.MatchResources, path *field.Path) (errs field.ErrorList) {
	if policy == "" {
		errs = append(errs, field.Required(path.Child("policyName"), ""))
	} else {
		for _, msg := range validation.IsDNS1123Subdomain(policy) {
			errs = append(errs, field.Invalid(path.Child("policyName"), policy, msg))
		}
	}
	errs = append(errs, validateParamRef(ref, path.Child("paramRef"))...)
	if match != nil {
		errs = append(errs, validateMatchResources(match, path.Child("matchResources"))...)
	}
	return errs
}

func validateParamRef(ref *admissionv1.ParamRef, path *field.Path) (errs field.ErrorList) {
	if ref == nil {
		return nil
	}
	const both = "name and selector are mutually exclusive"
	if ref.Name != "" {
		for _, msg := range content.IsPathSegmentName(ref.Name) {
			errs = append(errs, field.Invalid(path.Child("name"), ref.Name, msg))
		}
		if ref.Selector != nil {
			errs = append(errs, field.Forbidden(path.Child("name"), both))
		}
	}
	if ref.Selector != nil {
		errs = append(errs, metav1validation.ValidateLabelSelector(ref.Selector, metav1validation.LabelSelectorValidationOptions{}, path.Child("selector"))...)
		if ref.Name != "" {
			errs = append(errs, field.Forbidden(path.Child("selector"), both))
		}
	}
	if ref.Name == "" && ref.Selector == nil {
		errs = append(errs, field.Required(path, "one of name or selector must be specified"))
	}
	at := path.Child("parameterNotFoundAction")
	if ref.ParameterNotFoundAction == nil || *ref.ParameterNotFoundAction == "" {
		return append(errs, field.Required(at, ""))
	}
	if a := *ref.ParameterNotFoundAction; a != admissionv1.DenyAction && a != admissionv1.AllowAction {
		errs = append(errs, field.NotSupported(at, ref.ParameterNotFoundAction, []string{"Deny", "Allow"}))
	}
	return errs
}

// validatePolicyStatus checks the status of a ValidatingAdmissionPolicy.
func validatePolicyStatus(now, _ *admissionv1.ValidatingAdmissionPolicy) (errs field.ErrorList) {
	path := field.NewPath("status")
	if t := now.Status.TypeChecking; t != nil {
		for i, w := range t.ExpressionWarnings {
			at := path.Child("typeChecking", "expressionWarnings").Index(i)
			if w.Warning == "" {
				errs = append(errs, field.Required(at.Child("warning"), ""))
			}
			ref := strings.TrimSpace(w.FieldRef)
			if ref == "" {
				errs = append(errs, field.Required(at.Child("fieldRef"), ""))
			} else if err := jsonpath.New("spec").Parse(fmt.Sprintf("{%s}", ref)); err != nil {
				errs = append(errs, field.Invalid(at.Child("fieldRef"), ref, fmt.Sprintf("invalid JSONPath: %v", err)))
			}
		}
	}
	return append(errs, metav1validation.ValidateConditions(now.Status.Conditions, path.Child("conditions"))...)
}
