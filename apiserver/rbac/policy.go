package rbac

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

//go:embed data/policy.txt
var policyText string

// Policy is a set of roles and bindings.
type Policy struct {
	ClusterRoles        []*rbacv1.ClusterRole
	ClusterRoleBindings []*rbacv1.ClusterRoleBinding
	Roles               []*rbacv1.Role
	RoleBindings        []*rbacv1.RoleBinding
}

// Bootstrap is what a cluster has in the beginning. Not to be changed.
var Bootstrap = sync.OnceValues(func() (*Policy, error) { return parsePolicy(policyText) })

// NodeRules are what kubelets may do by the role system:node as a cluster has it in the beginning,
// no matter who is bound to it and whatever it says by now. bundles: ClusterTrustBundles are served.
func NodeRules(bundles bool) ([]rbacv1.PolicyRule, error) {
	policy, err := Bootstrap()
	if err != nil {
		return nil, err
	}
	var rules []rbacv1.PolicyRule
	for _, r := range policy.ClusterRoles {
		if r.Name == "system:node" {
			rules = slices.Clone(r.Rules)
		}
	}
	if bundles {
		rules = append(rules, rbacv1.PolicyRule{
			Verbs: []string{"get", "list", "watch"}, APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"clustertrustbundles"},
		})
	}
	return rules, nil
}

// parsePolicy reads the language that data/policy.txt explains.
func parsePolicy(text string) (*Policy, error) {
	r := &policyReader{policy: new(Policy)}
	for i, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "" {
			continue
		}
		read := r.object
		if strings.HasPrefix(line, "\t") {
			read = r.detail
		}
		if err := read(strings.Fields(line)); err != nil {
			return nil, fmt.Errorf("policy: line %d: %w", i+1, err)
		}
	}
	return r.policy, nil
}

// policyReader reads line by line; what a line says is about the object that was
// named last.
type policyReader struct {
	policy   *Policy
	meta     *metav1.ObjectMeta
	rules    *[]rbacv1.PolicyRule
	role     *rbacv1.ClusterRole // if it is one
	subjects *[]rbacv1.Subject
}

func (r *policyReader) object(words []string) error {
	r.rules, r.role, r.subjects = nil, nil, nil
	if len(words) < 2 {
		return fmt.Errorf("%q: a kind and a name are needed", words)
	}
	meta := metav1.ObjectMeta{
		Name:        words[1],
		Labels:      map[string]string{"kubernetes.io/bootstrapping": "rbac-defaults"},
		Annotations: map[string]string{rbacv1.AutoUpdateAnnotationKey: "true"},
	}
	kind := words[0]
	if kind == "Role" || kind == "RoleBinding" {
		var ok bool
		if meta.Namespace, meta.Name, ok = strings.Cut(words[1], "/"); !ok {
			return fmt.Errorf("%s: a namespace is needed", words[1])
		}
	}
	var ref rbacv1.RoleRef
	if strings.HasSuffix(kind, "Binding") {
		if len(words) != 5 || words[2] != "to" {
			return fmt.Errorf("%q: the role is missing", words)
		}
		ref = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: words[3], Name: words[4]}
	}
	switch kind {
	case "ClusterRole":
		o := &rbacv1.ClusterRole{ObjectMeta: meta}
		r.policy.ClusterRoles = append(r.policy.ClusterRoles, o)
		r.meta, r.rules, r.role = &o.ObjectMeta, &o.Rules, o
	case "Role":
		o := &rbacv1.Role{ObjectMeta: meta}
		r.policy.Roles = append(r.policy.Roles, o)
		r.meta, r.rules = &o.ObjectMeta, &o.Rules
	case "ClusterRoleBinding":
		o := &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref}
		r.policy.ClusterRoleBindings = append(r.policy.ClusterRoleBindings, o)
		r.meta, r.subjects = &o.ObjectMeta, &o.Subjects
	case "RoleBinding":
		o := &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref}
		r.policy.RoleBindings = append(r.policy.RoleBindings, o)
		r.meta, r.subjects = &o.ObjectMeta, &o.Subjects
	default:
		return fmt.Errorf("unknown kind %q", kind)
	}
	return nil
}

func (r *policyReader) detail(words []string) error {
	switch {
	case r.subjects != nil:
		return r.subject(words)
	case r.rules == nil:
		return fmt.Errorf("%q: it belongs to nothing", words)
	case words[0] == "label" || words[0] == "collect":
		key, value, ok := strings.Cut(words[len(words)-1], "=")
		if len(words) != 2 || !ok || r.role == nil {
			return fmt.Errorf("%q: a ClusterRole and key=value are needed", words)
		}
		if words[0] == "label" {
			r.meta.Labels[key] = value
			return nil
		}
		if r.role.AggregationRule == nil {
			r.role.AggregationRule = new(rbacv1.AggregationRule)
		}
		r.role.AggregationRule.ClusterRoleSelectors = append(r.role.AggregationRule.ClusterRoleSelectors,
			metav1.LabelSelector{MatchLabels: map[string]string{key: value}})
		return nil
	}
	rule, err := parseRule(words)
	*r.rules = append(*r.rules, rule)
	return err
}

func parseRule(words []string) (rule rbacv1.PolicyRule, err error) {
	if len(words) < 3 {
		return rule, fmt.Errorf("%q: no rule", words)
	}
	rule.Verbs = strings.Split(words[0], ",")
	if words[1] == "at" {
		rule.NonResourceURLs = words[2:]
		return rule, nil
	}
	rule.APIGroups = strings.Split(words[1], ",")
	for i, g := range rule.APIGroups {
		if g == "core" {
			rule.APIGroups[i] = ""
		}
	}
	for i, w := range words[2:] {
		if w == "named" {
			rule.ResourceNames = words[2+i+1:]
			return rule, nil
		}
		rule.Resources = append(rule.Resources, w)
	}
	return rule, nil
}

func (r *policyReader) subject(words []string) error {
	if len(words) != 2 {
		return fmt.Errorf("%q: no subject", words)
	}
	s := rbacv1.Subject{Kind: words[0], APIGroup: rbacv1.GroupName, Name: words[1]}
	switch s.Kind {
	case rbacv1.UserKind, rbacv1.GroupKind:
	case rbacv1.ServiceAccountKind:
		var ok bool
		s.APIGroup = ""
		if s.Namespace, s.Name, ok = strings.Cut(words[1], "/"); !ok {
			return fmt.Errorf("%q: a namespace is needed", words)
		}
	default:
		return fmt.Errorf("unknown subject %q", s.Kind)
	}
	*r.subjects = append(*r.subjects, s)
	return nil
}
