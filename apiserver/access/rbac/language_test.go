package rbac

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"
)

// The language in which tests write roles and bindings:
//
//	ClusterRole NAME                  Role NAMESPACE/NAME
//		VERBS GROUPS RESOURCE ...     comma between verbs and between groups; "core" is the group ""
//		... named NAME ...            only these objects
//		VERBS at URL ...
//	ClusterRoleBinding NAME to KIND NAME
//		User NAME, Group NAME, ServiceAccount NAMESPACE/NAME
//
// bootstrap.txt says more of ClusterRoles:
//
//		label KEY=VALUE
//		collect KEY=VALUE             its rules are those of the ClusterRoles with this label

// parsePolicy reads the language.
func parsePolicy(t testing.TB, text string) *Policy {
	t.Helper()
	p := new(Policy)
	rules, subjects := new([]rbacv1.PolicyRule), new([]rbacv1.Subject) // of the object that was named last
	for line := range strings.SplitSeq(text, "\n") {
		words := strings.Fields(line)
		switch {
		case len(words) == 0:
			continue
		case !strings.HasPrefix(line, "\t"):
			rules, subjects = p.add(t, words)
			continue
		}
		switch words[0] {
		case rbacv1.UserKind, rbacv1.GroupKind:
			*subjects = append(*subjects, rbacv1.Subject{Kind: words[0], APIGroup: rbacv1.GroupName, Name: words[1]})
		case rbacv1.ServiceAccountKind:
			namespace, name, _ := strings.Cut(words[1], "/")
			*subjects = append(*subjects, rbacv1.Subject{Kind: words[0], Namespace: namespace, Name: name})
		default:
			*rules = append(*rules, parseRule(words))
		}
	}
	return p
}

// add begins an object.
func (p *Policy) add(t testing.TB, words []string) (*[]rbacv1.PolicyRule, *[]rbacv1.Subject) {
	meta := metav1.ObjectMeta{Name: words[1], Annotations: maps.Clone(bootstrappolicy.Annotation)}
	if namespace, name, ok := strings.Cut(words[1], "/"); ok && !strings.HasPrefix(words[0], "Cluster") {
		meta.Namespace, meta.Name = namespace, name
	}
	var ref rbacv1.RoleRef
	if len(words) == 5 {
		ref = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: words[3], Name: words[4]}
	}
	switch words[0] {
	case "ClusterRole":
		o := &rbacv1.ClusterRole{ObjectMeta: meta}
		p.ClusterRoles = append(p.ClusterRoles, o)
		return &o.Rules, nil
	case "Role":
		o := &rbacv1.Role{ObjectMeta: meta}
		p.Roles = append(p.Roles, o)
		return &o.Rules, nil
	case "ClusterRoleBinding":
		o := &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref}
		p.ClusterRoleBindings = append(p.ClusterRoleBindings, o)
		return nil, &o.Subjects
	case "RoleBinding":
		o := &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref}
		p.RoleBindings = append(p.RoleBindings, o)
		return nil, &o.Subjects
	}
	t.Fatalf("no such kind: %q", words)
	return nil, nil
}

func parseRule(words []string) (rule rbacv1.PolicyRule) {
	rule.Verbs = strings.Split(words[0], ",")
	if words[1] == "at" {
		rule.NonResourceURLs = words[2:]
		return rule
	}
	for g := range strings.SplitSeq(words[1], ",") {
		rule.APIGroups = append(rule.APIGroups, strings.TrimPrefix(g, "core"))
	}
	rule.Resources = words[2:]
	if i := slices.Index(rule.Resources, "named"); i >= 0 {
		rule.Resources, rule.ResourceNames = rule.Resources[:i], rule.Resources[i+1:]
	}
	return rule
}

// policyText is the other way round.
func policyText(t testing.TB, p *Policy) string {
	var b strings.Builder
	object := func(kind string, meta *metav1.ObjectMeta) {
		if meta.Annotations[rbacv1.AutoUpdateAnnotationKey] != "true" || len(meta.Annotations) != 1 || meta.Labels["kubernetes.io/bootstrapping"] != "rbac-defaults" {
			t.Errorf("%s %s has not the labels and annotations of all: %v, %v", kind, meta.Name, meta.Labels, meta.Annotations)
		}
		name := meta.Name
		if meta.Namespace != "" {
			name = meta.Namespace + "/" + name
		}
		fmt.Fprintf(&b, "%s %s", kind, name)
	}
	role := func(list []rbacv1.PolicyRule) {
		for _, r := range list {
			words := []string{strings.Join(r.Verbs, ",")}
			if len(r.NonResourceURLs) > 0 {
				words = append(append(words, "at"), r.NonResourceURLs...)
			} else {
				groups := slices.Clone(r.APIGroups)
				if i := slices.Index(groups, ""); i >= 0 {
					groups[i] = "core"
				}
				words = append(append(words, strings.Join(groups, ",")), r.Resources...)
			}
			if len(r.ResourceNames) > 0 {
				words = append(append(words, "named"), r.ResourceNames...)
			}
			fmt.Fprintf(&b, "\t%s\n", strings.Join(words, " "))
		}
	}
	binding := func(ref rbacv1.RoleRef, subjects []rbacv1.Subject) {
		fmt.Fprintf(&b, " to %s %s\n", ref.Kind, ref.Name)
		for _, s := range subjects {
			if s.Namespace != "" {
				s.Name = s.Namespace + "/" + s.Name
			}
			fmt.Fprintf(&b, "\t%s %s\n", s.Kind, s.Name)
		}
	}
	for _, o := range p.ClusterRoles {
		object("ClusterRole", &o.ObjectMeta)
		b.WriteString("\n")
		for _, key := range slices.Sorted(maps.Keys(o.Labels)) {
			if key != "kubernetes.io/bootstrapping" {
				fmt.Fprintf(&b, "\tlabel %s=%s\n", key, o.Labels[key])
			}
		}
		if o.AggregationRule != nil {
			for _, s := range o.AggregationRule.ClusterRoleSelectors {
				fmt.Fprintf(&b, "\tcollect %s\n", metav1.FormatLabelSelector(&s))
			}
		}
		role(o.Rules)
	}
	for _, o := range p.ClusterRoleBindings {
		object("ClusterRoleBinding", &o.ObjectMeta)
		binding(o.RoleRef, o.Subjects)
	}
	for _, o := range p.Roles {
		object("Role", &o.ObjectMeta)
		b.WriteString("\n")
		role(o.Rules)
	}
	for _, o := range p.RoleBindings {
		object("RoleBinding", &o.ObjectMeta)
		binding(o.RoleRef, o.Subjects)
	}
	return b.String()
}
