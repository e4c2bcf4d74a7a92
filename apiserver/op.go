package apiserver

import (
	"context"
	"time"

	"github.com/quorate/quorate/apiserver/auth"
	"github.com/quorate/quorate/apiserver/kinds"
	"github.com/quorate/quorate/apiserver/request"
	"github.com/quorate/quorate/apiserver/status"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
)

// op is one operation on objects: a client's, or the node's own. It decides and writes;
// it knows nothing of HTTP. A call embeds one; the node's own loops, and a request that
// changes a second object, have one without a call. For one goroutine.
type op struct {
	s   *objectStore
	ctx context.Context
	// info is what is asked for, in the words of RBAC. Its name and namespace are those of
	// the object; of a create they follow from it.
	info request.Info
	user *auth.User
	res  *kinds.Resource
	sub  *kinds.Subresource // nil: the object itself
	q    request.Options
	// kind is what the operation is counted under.
	kind  request.Kind
	start time.Time
	// manager owns the fields that the operation writes.
	manager string
	// client says that somebody asks from outside: the node itself is spared what
	// protects clients from each other, and takes no warnings.
	client bool
	// applying is a server-side apply, which has tracked its fields itself.
	applying bool
	// warnings are what the client is told besides the answer.
	warnings warnings
	claims   claims
}

// system is an operation that no client asked for: by the node itself, with every
// permission.
func (s *objectStore) system(ctx context.Context, res *kinds.Resource, namespace, name, verb string) *op {
	return &op{
		s: s, ctx: ctx, res: res, start: time.Now(), manager: "quorate",
		user: &auth.User{Name: "system:apiserver", Groups: []string{auth.Masters, auth.Authenticated}},
		info: request.Info{
			IsResource: true, Verb: verb, Group: res.Group, Version: res.Version, Resource: res.Plural,
			Namespace: namespace, Name: name, ObjectNamespace: namespace,
		},
		kind: request.Kind{Verb: verb, Group: res.Group, Version: res.Version, Resource: res.Plural, Component: "apiserver"},
	}
}

// derived is an operation on another object on behalf of this one: as the node itself,
// and dry if this one is.
func (o *op) derived(gvr apischema.GroupVersionResource, name, verb string) (*op, error) {
	res := o.s.cfg.Kinds().Lookup(gvr)
	if res == nil {
		return nil, status.NotFound(gvr.GroupResource(), name)
	}
	namespace := ""
	if res.Namespaced {
		namespace = o.info.ObjectNamespace
	}
	other := o.s.system(o.ctx, res, namespace, name, verb)
	other.q.DryRun = o.q.DryRun
	return other, nil
}

// listed is the same operation on one object of the collection that this one is for: an
// operation of its own, with what it may claim and warn of.
func (o *op) listed(namespace, name string) *op {
	one := &op{s: o.s, ctx: o.ctx, info: o.info, user: o.user, res: o.res, q: o.q, kind: o.kind, start: o.start, manager: o.manager, client: o.client}
	one.info.Name, one.info.ObjectNamespace = name, namespace
	return one
}

// warn keeps what the client is to be told besides the answer.
func (o *op) warn(texts []string) {
	if o.client {
		o.warnings.add(texts)
	}
}
