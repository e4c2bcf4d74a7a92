package rbac

import (
	"slices"
	"strings"

	"github.com/quorate/quorate/apiserver/access/auth"
	rbacv1 "k8s.io/api/rbac/v1"
	helpers "k8s.io/kubernetes/pkg/apis/rbac/v1"
)

// allows reports whether a rule allows what is asked of somebody who is no administrator.
func allows(r *rbacv1.PolicyRule, a *auth.Attributes) bool {
	switch {
	case !isReserved(a):
		return allowsAdministrator(r, a)
	case a.ResourceRequest:
		return slices.Contains(r.APIGroups, ownGroup) && allowsAdministrator(r, a)
	}
	return matches(r.Verbs, a.Verb) && slices.ContainsFunc(r.NonResourceURLs, func(pattern string) bool {
		return namesTree(pattern) && pathMatches([]string{pattern}, a.Path)
	})
}

// allowsAdministrator reports whether a rule allows what is asked, as upstream does.
func allowsAdministrator(r *rbacv1.PolicyRule, a *auth.Attributes) bool {
	if !matches(r.Verbs, a.Verb) {
		return false
	}
	if !a.ResourceRequest {
		return pathMatches(r.NonResourceURLs, a.Path)
	}
	return matches(r.APIGroups, a.APIGroup) && resourceMatches(r.Resources, a.Resource, a.Subresource) &&
		(len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, a.Name))
}

// Allow reports whether one of the rules allows what is asked.
func Allow(rules []rbacv1.PolicyRule, a *auth.Attributes) bool {
	return slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool { return allows(&r, a) })
}

// all stands for everything in each list of a rule but resourceNames.
const all = "*"

func matches(list []string, s string) bool {
	for _, x := range list {
		if x == all || x == s {
			return true
		}
	}
	return false
}

// resourceMatches compares with RESOURCE, RESOURCE/SUBRESOURCE and */SUBRESOURCE.
func resourceMatches(list []string, resource, sub string) bool {
	for _, x := range list {
		switch {
		case x == all:
			return true
		case sub == "":
			if x == resource {
				return true
			}
		case strings.HasSuffix(x, sub) && len(x) > len(sub) && x[len(x)-len(sub)-1] == '/':
			if head := x[:len(x)-len(sub)-1]; head == all || head == resource {
				return true
			}
		}
	}
	return false
}

func pathMatches(list []string, path string) bool {
	for _, x := range list {
		if x == all || x == path || strings.HasSuffix(x, all) && strings.HasPrefix(path, strings.TrimRight(x, all)) {
			return true
		}
	}
	return false
}

// describeAll describes the smallest rules of a breakdown, those that differ in
// the verb only as one, in alphabetical order.
func describeAll(small []rbacv1.PolicyRule) []string {
	type object struct{ group, resource, name string }
	var whole []rbacv1.PolicyRule
	place := map[object]int{}
	for _, r := range small {
		if len(r.Resources) == 0 { // of a path
			whole = append(whole, r)
			continue
		}
		key := object{group: r.APIGroups[0], resource: r.Resources[0]}
		if len(r.ResourceNames) > 0 {
			key.name = "/" + r.ResourceNames[0] // "" is a name too
		}
		if i, ok := place[key]; ok {
			whole[i].Verbs = append(slices.Clip(whole[i].Verbs), r.Verbs...)
			continue
		}
		place[key] = len(whole)
		whole = append(whole, r)
	}
	out := make([]string, len(whole))
	for i := range whole {
		out[i] = helpers.CompactString(whole[i])
	}
	slices.Sort(out)
	return slices.Compact(out)
}
