package builtin

import (
	"context"
	"errors"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/access/rbac"
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/types/tree"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Nobody grants what he does not have himself: neither by writing a role, unless he
// may escalate it, nor by binding one, unless he may bind it.
type escalation struct{ roles Roles }

// Roles says who has which permissions. *rbac.Authorizer satisfies it.
type Roles interface {
	// Mark stands for what is in force; Changed reports whether a role or a binding has changed
	// since, or may have. Both must be cheap.
	Mark() rbac.Mark
	Changed(since rbac.Mark) bool
	// RulesFor returns a user's rules in a namespace and the whole cluster. With
	// an error they are incomplete.
	RulesFor(u *auth.User, namespace string) ([]rbacv1.PolicyRule, error)
	// RulesOfRole returns the rules of the role that a binding in a namespace, or
	// of the cluster, refers to. Errors: NotFound.
	RulesOfRole(ref rbacv1.RoleRef, namespace string) ([]rbacv1.PolicyRule, error)
	// ConfirmNoEscalation is nil if a user has all that the rules allow. The error
	// is the reason of a refusal, or rbac.ErrTooManyCombinations, or the context's.
	ConfirmNoEscalation(ctx context.Context, u *auth.User, namespace string, rules []rbacv1.PolicyRule) error
}

// unchecked reports whether a write of roles or bindings needs no check: without
// roles there is nothing to escalate to, system:masters has everything, and who
// only changes what garbage collection goes by grants nothing.
func (e *escalation) unchecked(o *objects.Op, obj, old tree.Object) bool {
	return e.roles == nil || o.User.InGroup(auth.Masters) || old != nil && onlyCollectionFields(obj, old)
}

// onlyCollectionFields reports whether two versions differ in nothing but what
// holds an object and who owns it.
func onlyCollectionFields(obj, old tree.Object) bool {
	strip := func(t tree.Object) tree.Object {
		work, meta, err := tree.WithOwnMeta(t)
		if err != nil {
			return t
		}
		for _, name := range [...]string{"ownerReferences", "finalizers", "selfLink", "managedFields", "resourceVersion"} {
			delete(meta, name)
		}
		return work
	}
	return tree.Equal(strip(obj), strip(old))
}

func (e *escalation) storeRole(o *objects.Op, obj, old tree.Object) error {
	if e.unchecked(o, obj, old) {
		return nil
	}
	name := tree.Text(tree.As(obj["metadata"]), "name")
	asked := name
	if o.Info.Verb == "create" {
		asked = "" // as the path of a POST names nothing
	}
	if o.Permitted("escalate", o.Resource.GroupResource(), asked) {
		return nil
	}
	var role rbacv1.ClusterRole // a Role has a part of its fields
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj, &role); err != nil {
		return err
	}
	if err := e.confirmNoEscalation(o, name, "rules", role.Rules, ""); err != nil {
		return err
	}
	// Who decides what is collected can gather anything, and keep others from taking
	// it away.
	if !collects(obj) && !collects(old) {
		return nil
	}
	return e.confirmNoEscalation(o, name, "aggregationRule", rbac.Everything, "must have cluster-admin privileges to use the aggregationRule")
}

// confirmNoEscalation refuses to give rules that the user has not. at is the field of the
// object that gives them; instead, if it is not empty, is said instead of what is missing.
func (e *escalation) confirmNoEscalation(o *objects.Op, name, at string, rules []rbacv1.PolicyRule, instead string) error {
	err := e.roles.ConfirmNoEscalation(o.Context, o.User, o.Info.ObjectNamespace, rules)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, rbac.ErrTooManyCombinations):
		return o.Invalid(name, field.ErrorList{field.Forbidden(field.NewPath(at), err.Error())})
	case o.Context.Err() != nil && errors.Is(err, o.Context.Err()):
		return err
	case instead != "":
		err = errors.New(instead)
	}
	return apierrors.NewForbidden(o.Resource.GroupResource(), name, err)
}

func collects(obj tree.Object) bool {
	list, _ := tree.Lookup(obj, "aggregationRule.clusterRoleSelectors").([]any)
	return len(list) > 0
}

func (e *escalation) storeBinding(o *objects.Op, obj, old tree.Object) error {
	if e.unchecked(o, obj, old) {
		return nil
	}
	var ref rbacv1.RoleRef
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(tree.As(obj["roleRef"]), &ref); err != nil {
		return err
	}
	switch ref.Kind {
	case "ClusterRole":
		if o.Permitted("bind", schema.GroupResource{Group: ref.APIGroup, Resource: "clusterroles"}, ref.Name) {
			return nil
		}
	case "Role":
		if o.Permitted("bind", schema.GroupResource{Group: ref.APIGroup, Resource: "roles"}, ref.Name) {
			return nil
		}
	}
	rules, err := e.roles.RulesOfRole(ref, o.Info.ObjectNamespace)
	if err != nil {
		return err
	}
	return e.confirmNoEscalation(o, tree.Text(tree.As(obj["metadata"]), "name"), "roleRef", rules, "")
}
