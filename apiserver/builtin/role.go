package builtin

import (
	"slices"
	"strings"

	"github.com/quorate/quorate/apiserver/tree"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const rbacGroup = "rbac.authorization.k8s.io"

func validateRole(obj, _ tree.Object) field.ErrorList { return validatePolicyRules(obj, true) }

func validateClusterRole(obj, _ tree.Object) field.ErrorList {
	errs := validatePolicyRules(obj, false)
	rule, ok := obj["aggregationRule"].(tree.Object)
	if !ok {
		return errs
	}
	path := field.NewPath("aggregationRule", "clusterRoleSelectors")
	selectors := tree.List(rule["clusterRoleSelectors"])
	if len(selectors) == 0 {
		errs = append(errs, field.Required(path, "at least one clusterRoleSelector required if aggregationRule is non-nil"))
	}
	for i, x := range selectors {
		var s metav1.LabelSelector
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(tree.As(x), &s); err != nil {
			errs = append(errs, field.Invalid(path.Index(i), x, "invalid label selector."))
			continue
		}
		errs = append(errs, metav1validation.ValidateLabelSelector(&s, metav1validation.LabelSelectorValidationOptions{}, path.Index(i))...)
	}
	return errs
}

// validatePolicyRules checks that each rule is about resources or about paths.
func validatePolicyRules(obj tree.Object, namespaced bool) (errs field.ErrorList) {
	for i, x := range tree.List(obj["rules"]) {
		rule, path := tree.As(x), field.NewPath("rules").Index(i)
		groups, resources, names, urls := tree.List(rule["apiGroups"]), tree.List(rule["resources"]), tree.List(rule["resourceNames"]), tree.List(rule["nonResourceURLs"])
		if len(urls) > 0 {
			if namespaced {
				errs = append(errs, field.Invalid(path.Child("nonResourceURLs"), urls, "namespaced rules cannot apply to non-resource URLs"))
			}
			if len(groups) > 0 || len(resources) > 0 || len(names) > 0 {
				errs = append(errs, field.Invalid(path.Child("nonResourceURLs"), urls, "rules cannot apply to both regular resources and non-resource URLs"))
			}
			continue
		}
		if len(groups) == 0 {
			errs = append(errs, field.Required(path.Child("apiGroups"), "resource rules must supply at least one api group"))
		}
		if len(resources) == 0 {
			errs = append(errs, field.Required(path.Child("resources"), "resource rules must supply at least one resource"))
		}
	}
	return errs
}

func validateRoleBinding(obj, old tree.Object) field.ErrorList {
	return append(validateRoleRef(obj, old, "Role", "ClusterRole"), validateRoleSubjects(obj, true)...)
}

func validateClusterRoleBinding(obj, old tree.Object) field.ErrorList {
	return append(validateRoleRef(obj, old, "ClusterRole"), validateRoleSubjects(obj, false)...)
}

// validateRoleRef checks what a binding refers to. That it is there at all is the schema's
// to check.
func validateRoleRef(obj, old tree.Object, kinds ...string) (errs field.ErrorList) {
	ref, path := tree.As(obj["roleRef"]), field.NewPath("roleRef")
	if group := tree.Text(ref, "apiGroup"); group != rbacGroup {
		errs = append(errs, field.NotSupported(path.Child("apiGroup"), group, []string{rbacGroup}))
	}
	if kind := tree.Text(ref, "kind"); kind != "" && !slices.Contains(kinds, kind) {
		errs = append(errs, field.NotSupported(path.Child("kind"), kind, kinds))
	}
	errs = append(errs, validatePathName(tree.Text(ref, "name"), path.Child("name"))...)
	if old != nil {
		was := tree.As(old["roleRef"])
		for _, name := range [...]string{"apiGroup", "kind", "name"} {
			if tree.Text(was, name) != tree.Text(ref, name) {
				return append(errs, field.Invalid(path, ref, "cannot change roleRef"))
			}
		}
	}
	return errs
}

// validatePathName checks a name that only has to fit in a path.
func validatePathName(name string, path *field.Path) (errs field.ErrorList) {
	switch name {
	case ".", "..":
		errs = append(errs, field.Invalid(path, name, "may not be '"+name+"'"))
	}
	for _, c := range [...]string{"/", "%"} {
		if strings.Contains(name, c) {
			errs = append(errs, field.Invalid(path, name, "may not contain '"+c+"'"))
		}
	}
	return errs
}

func validateRoleSubjects(obj tree.Object, namespaced bool) (errs field.ErrorList) {
	for i, x := range tree.List(obj["subjects"]) {
		s, path := tree.As(x), field.NewPath("subjects").Index(i)
		group := tree.Text(s, "apiGroup")
		switch kind := tree.Text(s, "kind"); kind {
		case "ServiceAccount":
			if name := tree.Text(s, "name"); name != "" {
				for _, msg := range validation.IsDNS1123Subdomain(name) {
					errs = append(errs, field.Invalid(path.Child("name"), name, msg))
				}
			}
			if group != "" {
				errs = append(errs, field.NotSupported(path.Child("apiGroup"), group, []string{""}))
			}
			if !namespaced && tree.Text(s, "namespace") == "" {
				errs = append(errs, field.Required(path.Child("namespace"), ""))
			}
		case "User", "Group":
			if group != rbacGroup {
				errs = append(errs, field.NotSupported(path.Child("apiGroup"), group, []string{rbacGroup}))
			}
		case "":
		default:
			errs = append(errs, field.NotSupported(path.Child("kind"), kind, []string{"ServiceAccount", "User", "Group"}))
		}
	}
	return errs
}
