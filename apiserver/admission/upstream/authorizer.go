package upstream

import (
	"context"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// AuthorizerFor is Authorizer for one decision, which what it answers counts for: a policy may ask
// about any user in any namespace.
func AuthorizerFor(of auth.Authorizer, a *admission.Attributes) authorizer.Authorizer {
	return authorizer.AuthorizerFunc(func(ctx context.Context, q authorizer.Attributes) (authorizer.Decision, string, error) {
		a.ConsultedRoles(q.GetNamespace())
		return ask(ctx, of, q, a)
	})
}

// Authorizer is an authorizer of this server as upstream's plugins ask it.
func Authorizer(of auth.Authorizer) authorizer.Authorizer {
	return authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		return ask(ctx, of, a, nil)
	})
}

func ask(ctx context.Context, of auth.Authorizer, a authorizer.Attributes, basis auth.Basis) (authorizer.Decision, string, error) {
	selected, _ := a.GetFieldSelector() // what cannot be read asks for more
	d, reason, err := of.Authorize(ctx, auth.Attributes{
		User: userOf(a.GetUser()), Verb: a.GetVerb(), Namespace: a.GetNamespace(),
		APIGroup: a.GetAPIGroup(), APIVersion: a.GetAPIVersion(), Resource: a.GetResource(), Subresource: a.GetSubresource(),
		Name: a.GetName(), Path: a.GetPath(), ResourceRequest: a.IsResourceRequest(), FieldSelector: selected, Basis: basis,
	})
	switch d {
	case auth.Allow:
		return authorizer.DecisionAllow, reason, err
	case auth.Deny:
		return authorizer.DecisionDeny, reason, err
	}
	return authorizer.DecisionNoOpinion, reason, err
}

func userOf(u user.Info) *auth.User {
	if u == nil {
		return nil
	}
	return &auth.User{Name: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: u.GetExtra()}
}
