package objects

import (
	"cmp"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/objects/storage"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// authorizeAlso asks for a second permission that a request turns out to need.
func (o *Op) authorizeAlso(verb string) error {
	a := o.Attributes()
	a.Verb = verb
	d, reason, err := o.Store.Authorizer.Authorize(o.Context, a)
	if d == auth.Allow {
		return nil
	}
	if err != nil && reason == "" {
		o.Store.Log.Error("authorization is incomplete", "err", err, "user", o.User.Name)
	}
	return storage.Permanent{Err: auth.Forbidden(a, reason)}
}

// Permitted asks for a permission that is not the request's own, in its namespace.
func (o *Op) Permitted(verb string, gr schema.GroupResource, name string) bool {
	a := auth.Attributes{
		User: o.User, Verb: verb, Namespace: o.Info.ObjectNamespace, APIGroup: gr.Group, APIVersion: "*",
		Resource: gr.Resource, Name: name, ResourceRequest: true,
	}
	d, reason, err := o.Store.Authorizer.Authorize(o.Context, a)
	if d != auth.Allow && err != nil && reason == "" {
		o.Store.Log.Error("authorization is incomplete", "err", err, "user", o.User.Name, "verb", verb)
	}
	return d == auth.Allow
}

// Attributes are what the authorizer decides on.
func (o *Op) Attributes() auth.Attributes {
	i := &o.Info
	return auth.Attributes{
		User: o.User, Verb: i.Verb, Path: i.Path, ResourceRequest: i.IsResource,
		Namespace: i.Namespace, APIGroup: i.Group, APIVersion: i.Version,
		Resource: i.Resource, Subresource: i.Subresource, Name: cmp.Or(i.Name, i.Selected), FieldSelector: i.FieldSelector,
	}
}
