package objects

import (
	"context"
	"time"

	"github.com/quorate/quorate/apiserver/access/audit"
	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/types/conversion"
	"github.com/quorate/quorate/apiserver/types/crd"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/schema"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/apiserver/wire/request"
	"github.com/quorate/quorate/apiserver/wire/status"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
)

// Op is one operation on objects: a client's, or the node's own. It decides and writes;
// it knows nothing of HTTP. A call embeds one; the node's own loops, and a request that
// changes a second object, have one without a call. For one goroutine.
type Op struct {
	Store   *Store
	Context context.Context
	// Info is what is asked for, in the words of RBAC. Its name and namespace are those of
	// the object; of a create they follow from it.
	Info        request.Info
	User        *auth.User
	Resource    *kinds.Resource
	Subresource *kinds.Subresource // nil: the object itself
	Options     request.Options
	// Kind is what the operation is counted under.
	Kind  request.Kind
	Start time.Time
	// Manager owns the fields that the operation writes.
	Manager string
	// Client says that somebody asks from outside: the node itself is spared what
	// protects clients from each other, and takes no warnings.
	Client bool
	// admitted has plugins asked although no client asks: see DeleteAdmitted.
	admitted bool
	// patience is how long admission may take; zero: as long as it takes.
	patience time.Duration
	// Other is what the body of a custom resource says to be, if that is not of the resource's kind:
	// upstream reads any kind, completes and prunes its own only, and refuses others when they are
	// validated. Nil: it is of the kind.
	Other *apischema.GroupVersionKind
	// applying is a server-side apply, which has tracked its fields itself.
	applying bool
	// owned: ownSent has tracked the fields that are written.
	owned bool
	// partOf is the version of which a subresource is written, and partSeen what is seen of it in the operation's version.
	// Nil: the object itself is written.
	partOf   *mvcc.Version
	partSeen tree.Object
	// mayBeGenerated is a create with a prefix for names.
	mayBeGenerated bool
	// DecidedAt is a revision that this node had applied before anything was decided: rules
	// that have changed since may not have been seen. Zero: no rules count.
	DecidedAt proto.Revision
	// Impersonated says that the user is allowed what another one may impersonate.
	Impersonated bool
	// Credential is that of who has sent the request, if it can end meanwhile; else nil. Who is
	// impersonated needs none.
	Credential auth.Credential
	// Requester is the request that the operation is for, nil if there is none.
	Requester Requester
	// behalf is the client's operation whose decision this one carries out; nil if there is none.
	behalf *Op
	// redecided counts how often a create was decided again because of changed rules: if at all,
	// by a state that this node has had since the request came.
	redecided int
	// nameGenerated: the server has made the name of what is created.
	nameGenerated bool
	// sentVersion: what is created names a version of itself, and is refused when it is admitted.
	sentVersion bool
	// Event is the request's in the audit log; nil: nothing is recorded.
	Event *audit.Event
	// attributes are what plugins are asked about: a part of the operation, because a decision
	// without any plugin must not cost an allocation.
	attributes admission.Attributes
	// refusedByPlugin says that a plugin has refused the last decision.
	refusedByPlugin bool
	// sent is the body as JSON, and current the version that a write is decided about; nil if there is none. Fields
	// that are kept as they were sent have their texts from them (withRaw).
	sent    []byte
	current *mvcc.Version
	// emptied is what validation is to see of what a client has sent, or a patch made.
	emptied schema.Emptied
	// warnings are what the client is told besides the answer.
	warnings warnings
	claims   claims
	// trees are what webhooks have made of the operation's own; nil: nothing yet.
	trees *conversion.Cache[treeKey, tree.Object]
	// unanswered is why a conversion failed that took all the time a webhook has: it is not waited
	// for again.
	unanswered error
}

// System is an operation that no client asked for: by the node itself, with every
// permission.
func (s *Store) System(ctx context.Context, res *kinds.Resource, namespace, name, verb string) *Op {
	return &Op{
		Store: s, Context: ctx, Resource: res, Start: time.Now(), Manager: "quorate",
		User: &auth.User{Name: "system:apiserver", Groups: []string{auth.Masters, auth.Authenticated}},
		Info: request.Info{
			IsResource: true, Verb: verb, Group: res.Group, Version: res.Version, Resource: res.Plural,
			Namespace: namespace, Name: name, ObjectNamespace: namespace,
		},
		Kind: request.Kind{Verb: verb, Group: res.Group, Version: res.Version, Resource: res.Plural, Component: "apiserver"},
	}
}

// Derived is an operation on another object on behalf of this one: as the node itself,
// and dry if this one is. Nothing is decided about it, so its entries name the rules that this
// one was decided by. If those have changed since, it ends with ErrDecideAgain.
func (o *Op) Derived(gvr apischema.GroupVersionResource, name, verb string) (*Op, error) {
	res := o.Store.Kinds().Lookup(gvr)
	if res == nil {
		return nil, status.NotFound(gvr.GroupResource(), name)
	}
	namespace := ""
	if res.Namespaced {
		namespace = o.Info.ObjectNamespace
	}
	other := o.Store.System(o.Context, res, namespace, name, verb)
	other.Options.DryRun = o.Options.DryRun
	if other.behalf = o.behalf; other.behalf == nil && o.DecidedAt != 0 {
		other.behalf = o
	}
	return other, nil
}

// Listed is the same operation on one object of the collection that this one is for: an
// operation of its own, with what it may claim and warn of.
func (o *Op) Listed(namespace, name string) *Op {
	one := &Op{Store: o.Store, Context: o.Context, Info: o.Info, User: o.User, Resource: o.Resource, Options: o.Options, Kind: o.Kind, Start: o.Start, Manager: o.Manager, Client: o.Client, Event: o.Event, DecidedAt: o.DecidedAt, Impersonated: o.Impersonated, Credential: o.Credential, Requester: o.Requester}
	one.Info.Name, one.Info.ObjectNamespace = name, namespace
	return one
}

// NameGenerated reports whether the server has made the name of what is created.
func (o *Op) NameGenerated() bool { return o.nameGenerated }

// Warnings are the values of the header Warning, nil if there are none.
func (o *Op) Warnings() []string { return o.warnings.lines }

// Advice is a list for what Validation tells of the object; nil if nobody is told: only clients are, who
// write the object itself or its scale.
func (o *Op) Advice() *[]string {
	if !o.Client || !o.whole() {
		return nil
	}
	return new([]string)
}

// Warn keeps what the client is to be told besides the answer.
func (o *Op) Warn(texts []string) {
	if o.Client {
		o.warnings.add(texts)
	}
}

// Key of the object that the path names.
func (o *Op) Key() string { return o.Resource.Key(o.Info.ObjectNamespace, o.Info.Name) }

// Model of the resource's objects.
func (o *Op) Model() (*schema.Model, error) { return ModelOf(o.Resource) }

// ModelOf is the model of a resource's objects.
func ModelOf(res *kinds.Resource) (*schema.Model, error) {
	if v := crd.Of(res); v != nil {
		return v.Model()
	}
	return schema.Lookup(res.Model)
}
