package builtin

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	admissioncel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// expressions compiles those of one policy. One that is stored already, at the same place of a
// policy, may be one that only a newer release would accept.
type expressions struct {
	params   bool
	composed *admissioncel.CompositedCompiler // nil: no expression can name variables
	stored   map[place]map[string]bool
}

// place is where expressions stand in a policy.
type place int

const (
	inConditions place = iota
	inValidations
	inMessages
	inAnnotations
	inMutations
)

func newExpressions(params, variables bool) *expressions {
	c := &expressions{params: params, stored: map[place]map[string]bool{}}
	if variables {
		// It fails for a broken environment only, which is upstream's own.
		c.composed, _ = admissioncel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	}
	return c
}

func (c *expressions) remember(at place, expression string) {
	if c.stored[at] == nil {
		c.stored[at] = map[string]bool{}
	}
	c.stored[at][expression] = true
}

func (c *expressions) rememberValidating(old *admissionv1.ValidatingAdmissionPolicySpec) {
	for _, m := range old.MatchConditions {
		c.remember(inConditions, m.Expression)
	}
	for _, v := range old.Validations {
		c.remember(inValidations, v.Expression)
		c.remember(inMessages, v.MessageExpression)
	}
	for _, a := range old.AuditAnnotations {
		c.remember(inAnnotations, a.ValueExpression)
	}
}

func (c *expressions) rememberMutating(old *admissionv1.MutatingAdmissionPolicySpec) {
	for _, m := range old.MatchConditions {
		c.remember(inConditions, m.Expression)
	}
	for _, m := range old.Mutations {
		if m.ApplyConfiguration != nil {
			c.remember(inMutations, m.ApplyConfiguration.Expression)
		}
		if m.JSONPatch != nil {
			c.remember(inMutations, m.JSONPatch.Expression)
		}
	}
}

func (c *expressions) mode(at place, expression string) environment.Type {
	if c.stored[at][expression] {
		return environment.StoredExpressions
	}
	return environment.NewExpressions
}

// vars are what expressions can name beside the object.
func (c *expressions) vars(authorizer bool) admissioncel.OptionalVariableDeclarations {
	return admissioncel.OptionalVariableDeclarations{HasParams: c.params, HasAuthorizer: authorizer}
}

// compile reports what is wrong with an expression.
func (c *expressions) compile(e admissioncel.ExpressionAccessor, vars admissioncel.OptionalVariableDeclarations, mode environment.Type, path *field.Path) field.ErrorList {
	compiler := conditionCompiler()
	if c.composed != nil {
		compiler = c.composed
	}
	if err := compiler.CompileCELExpression(e, vars, mode).Error; err != nil {
		return field.ErrorList{celError(path, e.GetExpression(), err)}
	}
	return nil
}

func celError(path *field.Path, expression string, err error) *field.Error {
	var wrong *cel.Error
	if !errors.As(err, &wrong) {
		return field.InternalError(path, fmt.Errorf("unsupported error type: %w", err))
	}
	switch wrong.Type {
	case cel.ErrorTypeRequired:
		return field.Required(path, wrong.Detail)
	case cel.ErrorTypeInvalid:
		return field.Invalid(path, expression, wrong.Detail)
	}
	return field.InternalError(path, wrong)
}

// matchConditions cannot name variables.
func (c *expressions) matchConditions(all []admissionv1.MatchCondition, path *field.Path) (errs field.ErrorList) {
	if len(all) > maxConditions {
		errs = append(errs, field.TooMany(path, len(all), maxConditions))
	}
	alone := &expressions{params: c.params}
	names := map[string]bool{}
	for i, m := range all {
		at := path.Index(i)
		if s := strings.TrimSpace(m.Expression); s == "" {
			errs = append(errs, field.Required(at.Child("expression"), ""))
		} else {
			errs = append(errs, alone.compile(&matchconditions.MatchCondition{Expression: s}, c.vars(true), c.mode(inConditions, s), at.Child("expression"))...)
		}
		if m.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
			continue
		}
		errs = append(errs, qualified(m.Name, at.Child("name"))...)
		if names[m.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), m.Name))
		}
		names[m.Name] = true
	}
	return errs
}

func qualified(name string, path *field.Path) (errs field.ErrorList) {
	for _, msg := range validation.IsQualifiedName(name) {
		errs = append(errs, field.Invalid(path, name, msg))
	}
	return errs
}

var celIdentifier = regexp.MustCompile("^[_a-zA-Z][_a-zA-Z0-9]*$")

// celReserved are the words of CEL that name nothing.
var celReserved = map[string]bool{
	"true": true, "false": true, "null": true, "in": true, "as": true, "break": true, "const": true, "continue": true, "else": true,
	"for": true, "function": true, "if": true, "import": true, "let": true, "loop": true, "package": true, "namespace": true,
	"return": true, "var": true, "void": true, "while": true,
}

func (c *expressions) variables(all []admissionv1.Variable, path *field.Path) (errs field.ErrorList) {
	for i, v := range all {
		at := path.Index(i)
		if strings.TrimSpace(v.Name) == "" {
			errs = append(errs, field.Required(at.Child("name"), "name is not specified"))
		} else if !celIdentifier.MatchString(v.Name) || celReserved[v.Name] {
			errs = append(errs, field.Invalid(at.Child("name"), v.Name, "must be a valid CEL identifier"))
		}
		if strings.TrimSpace(v.Expression) == "" {
			errs = append(errs, field.Required(at.Child("expression"), "expression is not specified"))
			continue
		}
		if c.composed == nil {
			errs = append(errs, field.InternalError(at, errors.New("variable composition is not allowed")))
			continue
		}
		result := c.composed.CompileAndStoreVariable(&validating.Variable{Name: v.Name, Expression: v.Expression}, c.vars(true), c.mode(inValidations, v.Expression))
		if result.Error != nil {
			errs = append(errs, celError(at.Child("expression"), v.Expression, result.Error))
		}
	}
	return errs
}

func (c *expressions) validation(v *admissionv1.Validation, path *field.Path) (errs field.ErrorList) {
	if strings.TrimSpace(v.Expression) == "" {
		errs = append(errs, field.Required(path.Child("expression"), "expression is not specified"))
	} else {
		errs = append(errs, c.compile(&validating.ValidationCondition{Expression: v.Expression}, c.vars(true), c.mode(inValidations, v.Expression), path.Child("expression"))...)
	}
	if at := path.Child("messageExpression"); v.MessageExpression != "" {
		if strings.TrimSpace(v.MessageExpression) == "" {
			errs = append(errs, field.Invalid(at, v.MessageExpression, "must be non-empty if specified"))
		} else {
			errs = append(errs, c.compile(&validating.MessageExpressionCondition{MessageExpression: v.MessageExpression}, c.vars(false), c.mode(inMessages, v.MessageExpression), at)...)
		}
	}
	switch trimmed := strings.TrimSpace(v.Message); {
	case v.Message != "" && trimmed == "":
		errs = append(errs, field.Invalid(path.Child("message"), v.Message, "must be non-empty if specified"))
	case strings.ContainsAny(trimmed, "\n\r"):
		errs = append(errs, field.Invalid(path.Child("message"), v.Message, "must not contain line breaks"))
	}
	if v.Reason != nil {
		errs = append(errs, oneOf(*v.Reason, path.Child("reason"), "Forbidden", "Invalid", "RequestEntityTooLarge")...)
	}
	return errs
}

func (c *expressions) auditAnnotations(policy string, all []admissionv1.AuditAnnotation, path *field.Path) (errs field.ErrorList) {
	if len(all) > maxAuditAnnotations {
		errs = append(errs, field.Invalid(path, all, fmt.Sprintf("must not have more than %d auditAnnotations", maxAuditAnnotations)))
	}
	keys := map[string]bool{}
	for i, a := range all {
		at := path.Index(i)
		errs = append(errs, c.auditAnnotation(policy, &a, at)...)
		if keys[a.Key] {
			errs = append(errs, field.Duplicate(at.Child("key"), a.Key))
		}
		keys[a.Key] = true
	}
	return errs
}

func (c *expressions) auditAnnotation(policy string, a *admissionv1.AuditAnnotation, path *field.Path) (errs field.ErrorList) {
	if policy == "" {
		errs = append(errs, field.Invalid(path.Child("key"), a.Key, "requires metadata.name be non-empty"))
	} else {
		errs = append(errs, qualified(policy+"/"+a.Key, path.Child("key"))...)
	}
	at, s := path.Child("valueExpression"), strings.TrimSpace(a.ValueExpression)
	switch {
	case s == "":
		return append(errs, field.Required(at, "valueExpression is not specified"))
	case len(s) > maxAnnotationExpression:
		return append(errs, field.Required(at, fmt.Sprintf("must not exceed %d bytes in length", maxAnnotationExpression)))
	}
	found := c.compile(&validating.AuditAnnotationCondition{ValueExpression: s}, c.vars(true), c.mode(inAnnotations, a.ValueExpression), at)
	for _, e := range found {
		if e.Type == field.ErrorTypeInvalid {
			e.BadValue = a.ValueExpression
		}
	}
	return append(errs, found...)
}

func (c *expressions) mutation(m *admissionv1.Mutation, path *field.Path) (errs field.ErrorList) {
	apply, patched := path.Child("applyConfiguration"), path.Child("jsonPatch")
	switch m.PatchType {
	case "":
		errs = append(errs, field.Required(path.Child("patchType"), ""))
	case admissionv1.PatchTypeJSONPatch:
		if m.JSONPatch == nil {
			errs = append(errs, field.Required(patched, "must be specified when patchType is JSONPatch"))
		} else if s, found := c.mutationExpression(m.JSONPatch.Expression, patched); s != "" {
			errs = append(errs, c.compileMutation(&patch.JSONPatchCondition{Expression: s}, m.JSONPatch.Expression, patched)...)
		} else {
			errs = append(errs, found...)
		}
		if m.ApplyConfiguration != nil {
			errs = append(errs, field.Invalid(apply, "{applyConfiguration}", "must not be specified when patchType is JSONPatch"))
		}
	case admissionv1.PatchTypeApplyConfiguration:
		if m.ApplyConfiguration == nil {
			errs = append(errs, field.Required(apply, "must be specified when patchType is ApplyConfiguration"))
		} else if s, found := c.mutationExpression(m.ApplyConfiguration.Expression, apply); s != "" {
			errs = append(errs, c.compileMutation(&patch.ApplyConfigurationCondition{Expression: s}, m.ApplyConfiguration.Expression, apply)...)
		} else {
			errs = append(errs, found...)
		}
		if m.JSONPatch != nil {
			errs = append(errs, field.Invalid(patched, "{jsonPatch}", "must not be specified when patchType is ApplyConfiguration"))
		}
	default:
		errs = append(errs, field.NotSupported(path.Child("patchType"), m.PatchType, []string{"ApplyConfiguration", "JSONPatch"}))
	}
	return errs
}

// mutationExpression is an expression without the space around it.
func (c *expressions) mutationExpression(expression string, path *field.Path) (string, field.ErrorList) {
	s := strings.TrimSpace(expression)
	if s == "" {
		return "", field.ErrorList{field.Required(path.Child("expression"), "")}
	}
	return s, nil
}

func (c *expressions) compileMutation(e admissioncel.ExpressionAccessor, as string, path *field.Path) field.ErrorList {
	vars := c.vars(true)
	vars.HasPatchTypes = true
	return c.compile(e, vars, c.mode(inMutations, as), path.Child("expression"))
}
