package fairness

import (
	"strings"

	v1 "k8s.io/api/flowcontrol/v1"
)

// Request is what a request is classified by.
type Request struct {
	User   string
	Groups []string
	// Resource says that the request is for a resource; then the fields of the
	// second group count, else Path.
	IsResource bool
	Verb       string
	Path       string

	Group, Resource, Subresource, Namespace string
}

// every is the wildcard of all lists of a rule.
const every = "*"

// matches reports whether one of a schema's rules matches.
func matches(rules []v1.PolicyRulesWithSubjects, r *Request) bool {
	for i := range rules {
		rule := &rules[i]
		if !anySubject(rule.Subjects, r) {
			continue
		}
		if r.IsResource && anyResource(rule.ResourceRules, r) || !r.IsResource && anyPath(rule.NonResourceRules, r) {
			return true
		}
	}
	return false
}

func anySubject(subjects []v1.Subject, r *Request) bool {
	for i := range subjects {
		if isSubject(&subjects[i], r) {
			return true
		}
	}
	return false
}

func isSubject(s *v1.Subject, r *Request) bool {
	switch {
	case s.Kind == v1.SubjectKindUser && s.User != nil:
		return s.User.Name == every || s.User.Name == r.User
	case s.Kind == v1.SubjectKindGroup && s.Group != nil:
		return s.Group.Name == every || has(r.Groups, s.Group.Name)
	case s.Kind == v1.SubjectKindServiceAccount && s.ServiceAccount != nil:
		namespace, name, ok := serviceAccount(r.User)
		return ok && namespace == s.ServiceAccount.Namespace && (s.ServiceAccount.Name == every || s.ServiceAccount.Name == name)
	}
	return false
}

// serviceAccount splits the user name of a service account.
func serviceAccount(user string) (namespace, name string, ok bool) {
	rest, ok := strings.CutPrefix(user, "system:serviceaccount:")
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, ":")
}

func anyResource(rules []v1.ResourcePolicyRule, r *Request) bool {
	for i := range rules {
		rule := &rules[i]
		if !listed(rule.Verbs, r.Verb) || !listed(rule.APIGroups, r.Group) || !listedResource(rule.Resources, r) {
			continue
		}
		if r.Namespace == "" && rule.ClusterScope || r.Namespace != "" && listed(rule.Namespaces, r.Namespace) {
			return true
		}
	}
	return false
}

// listedResource compares "resource" or "resource/subresource".
func listedResource(list []string, r *Request) bool {
	for _, x := range list {
		if x == every {
			return true
		}
		resource, sub, _ := strings.Cut(x, "/")
		if resource == r.Resource && sub == r.Subresource {
			return true
		}
	}
	return false
}

func anyPath(rules []v1.NonResourcePolicyRule, r *Request) bool {
	for i := range rules {
		if !listed(rules[i].Verbs, r.Verb) {
			continue
		}
		for _, url := range rules[i].NonResourceURLs {
			if url == every || url == r.Path || below(r.Path, url) {
				return true
			}
		}
	}
	return false
}

// below reports whether path lies below url, with or without "/*" at its end.
func below(path, url string) bool {
	dir := strings.TrimSuffix(strings.TrimSuffix(url, every), "/")
	return len(path) > len(dir) && strings.HasPrefix(path, dir) && path[len(dir)] == '/'
}

func listed(list []string, x string) bool {
	for _, y := range list {
		if y == x || y == every {
			return true
		}
	}
	return false
}

func has(list []string, x string) bool {
	for _, y := range list {
		if y == x {
			return true
		}
	}
	return false
}
