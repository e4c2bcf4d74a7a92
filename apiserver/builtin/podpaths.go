package builtin

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/quorate/quorate/apiserver/tree"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validatePodPaths refuses paths and names of a pod that lead out of where they begin.
func validatePodPaths(spec tree.Object, at *field.Path) (errs field.ErrorList) {
	for i, v := range tree.List(spec["volumes"]) {
		if host := tree.As(tree.As(v)["hostPath"]); host != nil {
			errs = append(errs, validateNoBacksteps(tree.Text(host, "path"), at.Child("volumes").Index(i).Child("hostPath", "path"))...)
		}
	}
	for _, kind := range [...]string{"initContainers", "containers"} {
		for i, c := range tree.List(spec[kind]) {
			mounts := at.Child(kind).Index(i).Child("volumeMounts")
			for j, m := range tree.List(tree.As(c)["volumeMounts"]) {
				sub, expr := tree.Text(tree.As(m), "subPath"), tree.Text(tree.As(m), "subPathExpr")
				// The index is not in upstream's paths of these two.
				errs = append(errs, validateSubPath(sub, mounts.Child("subPath"))...)
				if sub != "" && expr != "" {
					errs = append(errs, field.Invalid(mounts.Index(j).Child("subPathExpr"), expr, "subPathExpr and subPath are mutually exclusive"))
				}
				errs = append(errs, validateSubPath(expr, mounts.Child("subPathExpr"))...)
			}
		}
	}
	return append(errs, validateSysctls(tree.List(tree.As(spec["securityContext"])["sysctls"]), at.Child("securityContext", "sysctls"))...)
}

func validateSubPath(p string, at *field.Path) (errs field.ErrorList) {
	if path.IsAbs(p) {
		errs = append(errs, field.Invalid(at, p, "must be a relative path"))
	}
	return append(errs, validateNoBacksteps(p, at)...)
}

func validateNoBacksteps(p string, at *field.Path) field.ErrorList {
	if slices.Contains(strings.Split(p, "/"), "..") {
		return field.ErrorList{field.Invalid(at, p, "must not contain '..'")}
	}
	return nil
}

const (
	sysctlSegment   = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
	sysctlMaxLength = 253
)

var sysctlName = regexp.MustCompile("^(" + sysctlSegment + `[\./])*` + sysctlSegment + "$")

func validateSysctls(all []any, at *field.Path) (errs field.ErrorList) {
	seen := map[string]bool{}
	for i, s := range all {
		name, here := tree.Text(tree.As(s), "name"), at.Index(i).Child("name")
		switch {
		case name == "":
			errs = append(errs, field.Required(here, ""))
		case len(name) > sysctlMaxLength || !sysctlName.MatchString(name):
			errs = append(errs, field.Invalid(here, name, fmt.Sprintf("must have at most %d characters and match regex %s", sysctlMaxLength, sysctlName)))
		case seen[name]:
			errs = append(errs, field.Duplicate(here, name))
		}
		seen[name] = true
	}
	return errs
}
