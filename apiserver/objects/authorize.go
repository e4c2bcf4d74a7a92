package objects

import (
	"cmp"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/objects/storage"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// authorizeAlso asks for a second permission that a request turns out to need.
func (r *Request) authorizeAlso(verb string) error {
	a := r.Attributes()
	a.Verb = verb
	d, reason, err := r.Store.Authorizer.Authorize(r.Context, a)
	if d == auth.Allow {
		return nil
	}
	if err != nil && reason == "" {
		r.Store.Log.Error("authorization is incomplete", "err", err, "user", r.User.Name)
	}
	return storage.Permanent{Err: auth.Forbidden(a, reason)}
}

// Permitted asks for a permission that is not the request's own, in its namespace.
func (r *Request) Permitted(verb string, gr schema.GroupResource, name string) bool {
	a := auth.Attributes{
		User: r.User, Verb: verb, Namespace: r.Info.ObjectNamespace, APIGroup: gr.Group, APIVersion: "*",
		Resource: gr.Resource, Name: name, ResourceRequest: true,
	}
	d, reason, err := r.Store.Authorizer.Authorize(r.Context, a)
	if d != auth.Allow && err != nil && reason == "" {
		r.Store.Log.Error("authorization is incomplete", "err", err, "user", r.User.Name, "verb", verb)
	}
	return d == auth.Allow
}

// Attributes are what the authorizer decides on.
func (r *Request) Attributes() auth.Attributes {
	i := &r.Info
	return auth.Attributes{
		User: r.User, Verb: i.Verb, Path: i.Path, ResourceRequest: i.IsResource,
		Namespace: i.Namespace, APIGroup: i.Group, APIVersion: i.Version,
		Resource: i.Resource, Subresource: i.Subresource, Name: cmp.Or(i.Name, i.Selected), FieldSelector: i.FieldSelector,
	}
}
