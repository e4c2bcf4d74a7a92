package builtin

import (
	"errors"
	"strings"
	"sync"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	admissioncel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// maxConditions is how many conditions one webhook may have.
const maxConditions = 64

// conditionCompiler knows what expressions about admission can name. It is made on first use.
var conditionCompiler = sync.OnceValue(func() admissioncel.Compiler {
	return admissioncel.NewCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
})

// validateMatchConditions checks the match conditions of a webhook. known are the
// expressions that were accepted before, maybe by a release that knew more.
func validateMatchConditions(all []admissionv1.MatchCondition, known map[string]bool, path *field.Path) (errs field.ErrorList) {
	if len(all) > maxConditions {
		errs = append(errs, field.TooMany(path, len(all), maxConditions))
	}
	names := map[string]bool{}
	for i, c := range all {
		at := path.Index(i)
		if s := strings.TrimSpace(c.Expression); s == "" {
			errs = append(errs, field.Required(at.Child("expression"), ""))
		} else if err := validateExpression(s, known[s], at.Child("expression")); err != nil {
			errs = append(errs, err)
		}
		if c.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
			continue
		}
		for _, msg := range validation.IsQualifiedName(c.Name) {
			errs = append(errs, field.Invalid(at.Child("name"), c.Name, msg))
		}
		if names[c.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), c.Name))
		}
		names[c.Name] = true
	}
	return errs
}

func validateExpression(expression string, known bool, path *field.Path) *field.Error {
	mode := environment.NewExpressions
	if known {
		mode = environment.StoredExpressions
	}
	result := conditionCompiler().CompileCELExpression(&matchconditions.MatchCondition{Expression: expression},
		admissioncel.OptionalVariableDeclarations{HasAuthorizer: true}, mode)
	if result.Error == nil {
		return nil
	}
	var wrong *cel.Error
	if errors.As(result.Error, &wrong) && wrong.Type == cel.ErrorTypeInvalid {
		return field.Invalid(path, expression, wrong.Detail)
	}
	return field.InternalError(path, result.Error)
}
