package builtin

import (
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func validateSubject(s *authorizationv1.SubjectAccessReviewSpec) field.ErrorList {
	errs := validateExactlyOne(s.ResourceAttributes, s.NonResourceAttributes)
	if s.User == "" && len(s.Groups) == 0 {
		errs = append(errs, field.Invalid(field.NewPath("spec", "user"), s.User, "at least one of user or group must be specified"))
	}
	return append(errs, validateSelectors(s.ResourceAttributes)...)
}

func validateAttributes(r *authorizationv1.ResourceAttributes, path *authorizationv1.NonResourceAttributes) field.ErrorList {
	return append(validateExactlyOne(r, path), validateSelectors(r)...)
}

func validateExactlyOne(r *authorizationv1.ResourceAttributes, path *authorizationv1.NonResourceAttributes) (errs field.ErrorList) {
	switch spec := field.NewPath("spec"); {
	case r != nil && path != nil:
		errs = append(errs, field.Invalid(spec.Child("nonResourceAttributes"), shownPath(path), "cannot be specified in combination with resourceAttributes"))
	case r == nil && path == nil:
		errs = append(errs, field.Invalid(spec.Child("resourceAttributes"), path, "exactly one of nonResourceAttributes or resourceAttributes must be specified"))
	}
	return errs
}

// shownPath is a path as upstream's refusals show it: its type has no names for JSON.
func shownPath(p *authorizationv1.NonResourceAttributes) any {
	return struct{ Path, Verb string }{p.Path, p.Verb}
}

func validateSelectors(r *authorizationv1.ResourceAttributes) (errs field.ErrorList) {
	if r == nil {
		return nil
	}
	path := field.NewPath("spec.resourceAttributes")
	if s := r.FieldSelector; s != nil {
		at := path.Child("fieldSelector")
		errs = append(errs, validateEither(s.RawSelector, len(s.Requirements), at)...)
		// Operators that a newer client knows are no reason to refuse its question.
		o := metav1validation.FieldSelectorValidationOptions{AllowUnknownOperatorInRequirement: true}
		for i, q := range s.Requirements {
			errs = append(errs, metav1validation.ValidateFieldSelectorRequirement(q, o, at.Child("requirements").Index(i))...)
		}
	}
	if s := r.LabelSelector; s != nil {
		at := path.Child("labelSelector")
		errs = append(errs, validateEither(s.RawSelector, len(s.Requirements), at)...)
		o := metav1validation.LabelSelectorValidationOptions{AllowUnknownOperatorInRequirement: true}
		for i, q := range s.Requirements {
			errs = append(errs, metav1validation.ValidateLabelSelectorRequirement(q, o, at.Child("requirements").Index(i))...)
		}
	}
	return errs
}

func validateEither(raw string, requirements int, at *field.Path) (errs field.ErrorList) {
	switch {
	case raw != "" && requirements > 0:
		errs = append(errs, field.Invalid(at.Child("rawSelector"), raw, "may not specified at the same time as requirements"))
	case raw == "" && requirements == 0:
		errs = append(errs, field.Required(at.Child("requirements"), fmt.Sprintf("when %s is specified, requirements or rawSelector is required", at)))
	}
	return errs
}

// unreadableSelectors says which selectors the answer does not take into account.
// Roles do not look at selectors: a question with one is as wide as one without.
func unreadableSelectors(r *authorizationv1.ResourceAttributes) (notes []string) {
	note := func(name string, read, all int) {
		switch {
		case read == all:
		case read > 0:
			notes = append(notes, "spec.resourceAttributes."+name+" partially ignored due to parse error")
		default:
			notes = append(notes, "spec.resourceAttributes."+name+" ignored due to parse error")
		}
	}
	if s := r.FieldSelector; s != nil {
		if s.RawSelector != "" {
			_, err := fields.ParseSelector(s.RawSelector)
			note("fieldSelector", count(err == nil), 1)
		} else {
			read := 0
			for _, q := range s.Requirements {
				read += count((q.Operator == metav1.FieldSelectorOpIn || q.Operator == metav1.FieldSelectorOpNotIn) && len(q.Values) == 1)
			}
			note("fieldSelector", read, len(s.Requirements))
		}
	}
	if s := r.LabelSelector; s != nil {
		if s.RawSelector != "" {
			_, err := labels.Parse(s.RawSelector)
			note("labelSelector", count(err == nil), 1)
		} else {
			read := 0
			for _, q := range s.Requirements {
				_, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{q}})
				read += count(err == nil)
			}
			note("labelSelector", read, len(s.Requirements))
		}
	}
	return notes
}

// fieldRequirements are the requirements of a field selector, but for those that cannot be read:
// all of them hold, so without one more is asked for.
func fieldRequirements(s *authorizationv1.FieldSelectorAttributes) (list fields.Requirements) {
	if s == nil {
		return nil
	}
	if s.RawSelector != "" {
		if selector, err := fields.ParseSelector(s.RawSelector); err == nil {
			list = selector.Requirements()
		}
		return list
	}
	for _, q := range s.Requirements {
		switch {
		case len(q.Values) != 1:
		case q.Operator == metav1.FieldSelectorOpIn:
			list = append(list, fields.Requirement{Field: q.Key, Operator: selection.Equals, Value: q.Values[0]})
		case q.Operator == metav1.FieldSelectorOpNotIn:
			list = append(list, fields.Requirement{Field: q.Key, Operator: selection.NotEquals, Value: q.Values[0]})
		}
	}
	return list
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}
