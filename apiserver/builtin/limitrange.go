package builtin

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/tree"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var limitRangeStrategy = objects.Strategy{Validate: validateLimitRange}

var limitTypes = []string{string(corev1.LimitTypeContainer), string(corev1.LimitTypePod), string(corev1.LimitTypePersistentVolumeClaim)}

// validateLimitRange checks the limits of a range against each other. On an update, limits that
// have not changed are let through, so that a range which an earlier version took can still be
// written.
func validateLimitRange(obj, old tree.Object) (errs field.ErrorList) {
	if old != nil && semanticEqual(obj["spec"], old["spec"]) {
		return nil
	}
	seen := map[string]bool{}
	for i, v := range tree.List(tree.Field(obj, "spec", "limits")) {
		item, at := tree.As(v), field.NewPath("spec", "limits").Index(i)
		limitType := tree.Text(item, "type")
		errs = append(errs, validateLimitType(limitType, at.Child("type"))...)
		if seen[limitType] {
			errs = append(errs, field.Duplicate(at.Child("type"), limitType))
		}
		seen[limitType] = true
		errs = append(errs, validateLimits(item, limitType, at)...)
	}
	return errs
}

func validateLimitType(name string, at *field.Path) (errs field.ErrorList) {
	for _, why := range validation.IsQualifiedName(name) {
		errs = append(errs, field.Invalid(at, name, why))
	}
	if len(errs) == 0 && !strings.Contains(name, "/") && !slices.Contains(limitTypes, name) {
		errs = append(errs, field.Invalid(at, name, "must be a standard limit type or fully qualified"))
	}
	return errs
}

// validateLimits checks one item of a range: the names of its resources, then the amounts of each.
func validateLimits(item tree.Object, limitType string, at *field.Path) (errs field.ErrorList) {
	validName := validateResourceName
	if limitType == string(corev1.LimitTypePod) || limitType == string(corev1.LimitTypeContainer) {
		validName = validateContainerResourceName
	}
	limits, names := map[string]map[string]resource.Quantity{}, map[string]bool{}
	for _, list := range [...]string{"max", "min", "default", "defaultRequest", "maxLimitRequestRatio"} {
		amounts := quantitiesOf(item[list])
		if limitType == string(corev1.LimitTypePod) && (list == "default" || list == "defaultRequest") {
			if len(amounts) > 0 {
				errs = append(errs, field.Forbidden(at.Child(list), "may not be specified when `type` is 'Pod'"))
			}
			continue
		}
		if list == "maxLimitRequestRatio" {
			errs = append(errs, validateClaimLimits(limits, limitType, at)...)
		}
		for _, name := range slices.Sorted(maps.Keys(amounts)) {
			errs = append(errs, validName(name, at.Child(list).Key(name))...)
			names[name] = true
		}
		limits[list] = amounts
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		errs = append(errs, validateLimitsOf(name, limits, at)...)
	}
	return errs
}

// validateClaimLimits checks that a range says something of the storage of claims if it is for them.
func validateClaimLimits(limits map[string]map[string]resource.Quantity, limitType string, at *field.Path) field.ErrorList {
	_, low := limits["min"]["storage"]
	_, high := limits["max"]["storage"]
	if limitType == string(corev1.LimitTypePersistentVolumeClaim) && !low && !high {
		return field.ErrorList{field.Required(at.Child("limits"), "either minimum or maximum storage value is required, but neither was provided")}
	}
	return nil
}

// orders are the pairs of limits of which the first must not be greater than the second. An error
// is of a field, with a value that need not be that field's: upstream has it so.
var orders = [...]struct {
	less, lessName, more, moreName string
	field, value                   string
}{
	{"min", "min value", "max", "max value", "min", "min"},
	{"min", "min value", "defaultRequest", "default request value", "defaultRequest", "defaultRequest"},
	{"defaultRequest", "default request value", "max", "max value", "defaultRequest", "defaultRequest"},
	{"defaultRequest", "default request value", "default", "default limit value", "defaultRequest", "defaultRequest"},
	{"min", "min value", "default", "default value", "default", "min"},
	{"default", "default value", "max", "max value", "default", "max"},
}

// validateLimitsOf checks the limits of one resource against each other.
func validateLimitsOf(name string, limits map[string]map[string]resource.Quantity, at *field.Path) (errs field.ErrorList) {
	for _, o := range orders {
		less, has := limits[o.less][name]
		more, hasMore := limits[o.more][name]
		if has && hasMore && less.Cmp(more) > 0 {
			why := fmt.Sprintf("%s %s is greater than %s %s", o.lessName, less.String(), o.moreName, more.String())
			errs = append(errs, field.Invalid(at.Child(o.field).Key(name), limits[o.value][name], why))
		}
	}
	errs = append(errs, validateRatio(name, limits, at.Child("maxLimitRequestRatio").Key(name))...)
	limit, has := limits["default"][name]
	request, asked := limits["defaultRequest"][name]
	if has && asked && limit.Cmp(request) != 0 && !mayOvercommit(name) {
		why := fmt.Sprintf("default value %s must equal to defaultRequest value %s in %s", limit.String(), request.String(), name)
		errs = append(errs, field.Invalid(at.Child("defaultRequest").Key(name), request, why))
	}
	return errs
}

func validateRatio(name string, limits map[string]map[string]resource.Quantity, at *field.Path) (errs field.ErrorList) {
	ratio, ok := limits["maxLimitRequestRatio"][name]
	if !ok {
		return nil
	}
	if ratio.Cmp(*resource.NewQuantity(1, resource.DecimalSI)) < 0 {
		errs = append(errs, field.Invalid(at, ratio, fmt.Sprintf("ratio %s is less than 1", ratio.String())))
	}
	low, hasLow := limits["min"][name]
	high, hasHigh := limits["max"][name]
	if !hasLow || !hasHigh {
		return errs
	}
	r, l, h := float64(ratio.Value()), low.Value(), high.Value()
	if ratio.Value() < resource.MaxMilliValue && l < resource.MaxMilliValue && h < resource.MaxMilliValue {
		r, l, h = float64(ratio.MilliValue())/1000, low.MilliValue(), high.MilliValue()
	}
	if most := float64(h) / float64(l); r > most {
		errs = append(errs, field.Invalid(at, ratio, fmt.Sprintf("ratio %s is greater than max/min = %f", ratio.String(), most)))
	}
	return errs
}
