package rbac

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/quorate/quorate/apiserver/access/auth"
	rbacv1 "k8s.io/api/rbac/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

// RulesFor returns the rules that a user has in a namespace and in the whole
// cluster. The error names roles that are bound and do not exist; the rules count
// all the same.
func (z *Authorizer) RulesFor(u *auth.User, namespace string) ([]rbacv1.PolicyRule, error) {
	var rules []rbacv1.PolicyRule
	var failed []error
	z.Index().visit(u, namespace, func(_ *grant, more []rbacv1.PolicyRule, err error) bool {
		if err != nil {
			failed = append(failed, err)
		}
		rules = append(rules, more...)
		return true
	})
	return rules, utilerrors.NewAggregate(failed)
}

// RulesOfRole returns the rules of the role that a binding in a namespace refers to
// (of a ClusterRoleBinding, if that is empty). Errors: NotFound, in which the role is called
// by the bindings' resource: so upstream's store does, which knows the request's alone, and
// clients have come to expect it.
func (z *Authorizer) RulesOfRole(ref rbacv1.RoleRef, namespace string) ([]rbacv1.PolicyRule, error) {
	k, resource := roleKey{name: ref.Name}, "rolebindings"
	if namespace == "" {
		resource = "clusterrolebindings"
	}
	switch ref.Kind {
	case "ClusterRole":
	case "Role":
		k.namespace = namespace
	default:
		return nil, fmt.Errorf("unsupported role reference kind: %q", ref.Kind)
	}
	rules := z.Index().roles.get(k)
	if rules == nil {
		return nil, roleNotFound(resource, ref.Name)
	}
	return rules, nil
}

// Everything is what a cluster administrator may do.
var Everything = []rbacv1.PolicyRule{
	{Verbs: []string{all}, APIGroups: []string{all}, Resources: []string{all}},
	{Verbs: []string{all}, NonResourceURLs: []string{all}},
}

// maxReason bounds what a refusal says of what is missing, in bytes.
const maxReason = 4 << 10

// ConfirmNoEscalation is nil if a user has, in a namespace (or in the whole cluster
// if that is empty), all that the rules allow. Else the error says what is missing,
// in upstream's words, as far as maxReason goes. Other errors: ErrTooManyCombinations and
// the context's.
func (z *Authorizer) ConfirmNoEscalation(ctx context.Context, u *auth.User, namespace string, rules []rbacv1.PolicyRule) error {
	own, failed := z.RulesFor(u, namespace)
	v, err := covers(ctx, own, rules)
	if err != nil {
		return err
	}
	if v.covered {
		return nil
	}
	text := fmt.Sprintf("user %q (groups=%q) is attempting to grant RBAC permissions not currently held:\n%s",
		u.Name, u.Groups, reasonOf(describeAll(v.missing), v.more))
	if failed != nil {
		text += "; resolution errors: " + reasonOf([]string{fmt.Sprint([]error{failed})}, false)
	}
	return errors.New(text)
}

// reasonOf joins lines and cuts what is longer than maxReason. more says that there are others.
func reasonOf(lines []string, more bool) string {
	text := strings.Join(lines, "\n")
	if len(text) > maxReason {
		text, more = strings.ToValidUTF8(text[:maxReason], ""), true
	}
	if more {
		text += "... and more"
	}
	return text
}
