package rbac

import (
	"fmt"
	"slices"
	"strings"

	"github.com/quorate/quorate/apiserver/access/auth"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// place is somebody somewhere: a user or a group in a namespace, or in the whole
// cluster if the namespace is empty. Service accounts are users.
type place struct {
	group     bool
	name      string
	namespace string
}

// roleKey names a Role, or a ClusterRole if the namespace is empty.
type roleKey struct{ namespace, name string }

// grant is one binding as it concerns one place. Immutable.
type grant struct {
	binding string // its key in its table
	role    roleKey
	// unsupported is the roleRef's kind if it is neither of the two.
	unsupported string
	// reason is why it allows, for audit and reviews.
	reason string
}

// Index says who has which role where. It is immutable, and the zero value grants
// nothing.
type Index struct {
	grants *frozen[place, []grant]
	roles  *frozen[roleKey, []rbacv1.PolicyRule]
	// bindings counts the ClusterRoleBindings and RoleBindings.
	bindings int
}

// visit calls f for the rules of each grant that concerns a user in a namespace
// and in the whole cluster, in that order of places: the cluster first, the user
// before its groups. A grant of a role that is not there comes with an error. It
// ends when f returns false.
func (x *Index) visit(u *auth.User, namespace string, f func(g *grant, rules []rbacv1.PolicyRule, err error) bool) {
	if u == nil {
		return
	}
	for _, ns := range [...]string{"", namespace} {
		if !x.visitPlace(place{name: u.Name, namespace: ns}, f) {
			return
		}
		for _, group := range u.Groups {
			if !x.visitPlace(place{group: true, name: group, namespace: ns}, f) {
				return
			}
		}
		if namespace == "" {
			return
		}
	}
}

func (x *Index) visitPlace(p place, f func(g *grant, rules []rbacv1.PolicyRule, err error) bool) bool {
	list := x.grants.get(p)
	for i := range list {
		g := &list[i]
		rules, err := x.rulesOf(g)
		if !f(g, rules, err) {
			return false
		}
	}
	return true
}

func (x *Index) rulesOf(g *grant) ([]rbacv1.PolicyRule, error) {
	if g.unsupported != "" {
		return nil, fmt.Errorf("unsupported role reference kind: %q", g.unsupported)
	}
	rules := x.roles.get(g.role)
	if rules == nil {
		// The names of the resources in the singular, as upstream's listers say it.
		if g.role.namespace == "" {
			return nil, roleNotFound("clusterrole", g.role.name)
		}
		return nil, roleNotFound("role", g.role.name)
	}
	return rules, nil
}

func roleNotFound(resource, name string) error {
	return apierrors.NewNotFound(schema.GroupResource{Group: rbacv1.GroupName, Resource: resource}, name)
}

// change is a next Index in the making.
type change struct {
	grants   *draft[place, []grant]
	own      map[place]struct{} // whose list is the change's own: it was copied
	roles    *draft[roleKey, []rbacv1.PolicyRule]
	bindings int
}

func (x *Index) change() *change {
	return &change{grants: edit(x.grants), own: map[place]struct{}{}, roles: edit(x.roles), bindings: x.bindings}
}

// list is what a place has, to be changed. It is copied once for all bindings of a change: a
// place may have thousands, and a node that starts reads them all at once.
func (c *change) list(p place) []grant {
	list := c.grants.get(p)
	if _, ok := c.own[p]; !ok {
		c.own[p], list = struct{}{}, slices.Clone(list)
	}
	return list
}

func (c *change) done() *Index {
	return &Index{grants: c.grants.next, roles: c.roles.next, bindings: c.bindings}
}

// noRules is what a role without rules has: it is there, and grants nothing.
var noRules = []rbacv1.PolicyRule{}

func (c *change) setRole(k roleKey, rules []rbacv1.PolicyRule) {
	if rules == nil {
		rules = noRules
	}
	c.roles.set(k, rules)
}

func (c *change) removeRole(k roleKey) { c.roles.delete(k) }

// binding is what is kept of a binding, to take its grants back when it changes.
type binding struct {
	key      string // in its table: namespace/name, or name
	ref      rbacv1.RoleRef
	subjects []rbacv1.Subject
}

// namespace of a RoleBinding; empty for a ClusterRoleBinding.
func (b *binding) namespace() string {
	namespace, _, ok := strings.Cut(b.key, "/")
	if !ok {
		return ""
	}
	return namespace
}

func (c *change) addBinding(b *binding) {
	c.bindings++
	namespace := b.namespace()
	g := grant{binding: b.key}
	switch b.ref.Kind {
	case "ClusterRole":
		g.role = roleKey{name: b.ref.Name}
	case "Role":
		g.role = roleKey{namespace: namespace, name: b.ref.Name}
	default:
		g.unsupported = b.ref.Kind
	}
	if b.ref.Kind == "Role" && namespace == "" {
		g.unsupported = b.ref.Kind
	}
	for i := range b.subjects {
		p, ok := placeOf(&b.subjects[i], namespace)
		if !ok {
			continue
		}
		g.reason = b.reason(&b.subjects[i])
		list := c.list(p)
		at, found := slices.BinarySearchFunc(list, g.binding, func(g grant, key string) int { return strings.Compare(g.binding, key) })
		if !found {
			c.grants.set(p, slices.Insert(list, at, g))
		}
	}
}

func (c *change) removeBinding(b *binding) {
	c.bindings--
	namespace := b.namespace()
	for i := range b.subjects {
		p, ok := placeOf(&b.subjects[i], namespace)
		if !ok {
			continue
		}
		list := c.list(p)
		at, found := slices.BinarySearchFunc(list, b.key, func(g grant, key string) int { return strings.Compare(g.binding, key) })
		switch {
		case !found: // somebody who is named twice
		case len(list) == 1:
			c.grants.delete(p)
			delete(c.own, p)
		default:
			c.grants.set(p, slices.Delete(list, at, at+1))
		}
	}
}

// placeOf is whom a subject means, within a binding's namespace. Subjects of
// kinds that nobody is have no place.
func placeOf(s *rbacv1.Subject, namespace string) (place, bool) {
	switch s.Kind {
	case rbacv1.UserKind:
		return place{name: s.Name, namespace: namespace}, true
	case rbacv1.GroupKind:
		return place{group: true, name: s.Name, namespace: namespace}, true
	case rbacv1.ServiceAccountKind:
		home := accountNamespace(s, namespace)
		return place{name: auth.ServiceAccountUser(home, s.Name), namespace: namespace}, home != ""
	}
	return place{}, false
}

// accountNamespace is a service account's: a RoleBinding need not say its own.
func accountNamespace(s *rbacv1.Subject, namespace string) string {
	if s.Namespace != "" {
		return s.Namespace
	}
	return namespace
}

// reason words why a binding allows, as upstream does, name before namespace.
func (b *binding) reason(s *rbacv1.Subject) string {
	kind, name, namespace := "ClusterRoleBinding", b.key, b.namespace()
	if namespace != "" {
		kind, name = "RoleBinding", b.key[len(namespace)+1:]+"/"+namespace
	}
	subject := s.Name
	if s.Kind == rbacv1.ServiceAccountKind {
		subject += "/" + accountNamespace(s, namespace)
	}
	return fmt.Sprintf("RBAC: allowed by %s %q of %s %q to %s %q", kind, name, b.ref.Kind, b.ref.Name, s.Kind, subject)
}
