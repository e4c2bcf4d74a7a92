package builtin

import (
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

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
