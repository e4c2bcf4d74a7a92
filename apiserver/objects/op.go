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

// Request is what is asked for, and of whom: the same for as long as the operation lasts.
type Request struct {
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
	// Impersonated says that the user is allowed what another one may impersonate.
	Impersonated bool
	// Credential is that of who has sent the request, if it can end meanwhile; else nil. Who is
	// impersonated needs none.
	Credential auth.Credential
	// Requester is the request that the operation is for, nil if there is none.
	Requester Requester
	// Event is the request's in the audit log; nil: nothing is recorded.
	Event *audit.Event
	// warnings are what the client is told besides the answer.
	warnings warnings
}

// reader reads what is asked for: lists, and stored versions in the version of the request.
type reader struct{ Request }

// converter has objects in other versions of their resource, by webhooks too.
type converter struct {
	reader
	// partOf is the version of which a subresource is written, and partSeen what is seen of it in the operation's version.
	// Nil: the object itself is written.
	partOf   *mvcc.Version
	partSeen tree.Object
	// trees are what webhooks have made of the operation's own; nil: nothing yet.
	trees *conversion.Cache[treeKey, tree.Object]
	// unanswered is why a conversion failed that took all the time a webhook has: it is not waited
	// for again.
	unanswered error
}

// decision is whether a write is admitted, by which rules, and whether these still hold.
type decision struct {
	converter
	// DecidedAt is a revision that this node had applied before anything was decided: rules
	// that have changed since may not have been seen. Zero: no rules count.
	DecidedAt proto.Revision
	// behalf is the decision of the client's operation that this one carries out; nil if there is none.
	behalf *decision
	// redecided counts how often a create was decided again because of changed rules: if at all,
	// by a state that this node has had since the request came.
	redecided int
	// attributes are what plugins are asked about: a part of the operation, because a decision
	// without any plugin must not cost an allocation.
	attributes admission.Attributes
	// refusedByPlugin says that a plugin has refused the last decision.
	refusedByPlugin bool
}

// Op is one operation on objects: a client's, or the node's own. It decides and writes;
// it knows nothing of HTTP. A call embeds one; the node's own loops, and a request that
// changes a second object, have one without a call. For one goroutine.
//
// It is built in layers, of which each knows those below it: what is asked (Request), what is there (reader), in which
// version (converter), what is decided about it (decision), and what is written.
type Op struct {
	decision
	// applying is a server-side apply, which has tracked its fields itself.
	applying bool
	attempt
	// sent is the body as JSON.
	sent []byte
	// emptied is what validation is to see of what a client has sent, or a patch made.
	emptied schema.Emptied
	claims  claims
}

// attempt is what one decision about a write finds out. Each try has another one: a write is decided again when there is a
// newer version, or when rules have changed.
type attempt struct {
	// current is the version that the write is decided about; nil if there is none. Fields that are kept as they
	// were sent have their texts from it and from what was sent (withRaw).
	current *mvcc.Version
	// owned: ownSent has tracked the fields that are written.
	owned bool
	// mayBeGenerated is a create with a prefix for names.
	mayBeGenerated bool
	// nameGenerated: the server has made the name of what is created.
	nameGenerated bool
	// sentVersion: what is created names a version of itself, and is refused when it is admitted.
	sentVersion bool
}

// NewOp returns an operation for a request. It is not a pointer, which would be an allocation of its own in a call.
func NewOp(r Request) Op { return Op{decision: decision{converter: converter{reader: reader{r}}}} }

// System is an operation that no client asked for: by the node itself, with every
// permission.
func (s *Store) System(ctx context.Context, res *kinds.Resource, namespace, name, verb string) *Op {
	o := NewOp(Request{
		Store: s, Context: ctx, Resource: res, Start: time.Now(), Manager: "quorate",
		User: &auth.User{Name: "system:apiserver", Groups: []string{auth.Masters, auth.Authenticated}},
		Info: request.Info{
			IsResource: true, Verb: verb, Group: res.Group, Version: res.Version, Resource: res.Plural,
			Namespace: namespace, Name: name, ObjectNamespace: namespace,
		},
		Kind: request.Kind{Verb: verb, Group: res.Group, Version: res.Version, Resource: res.Plural, Component: "apiserver"},
	})
	return &o
}

// Derived is an operation on another object on behalf of this one: as the node itself,
// and dry if this one is. Nothing is decided about it, so its entries name the rules that this
// one was decided by. If those have changed since, that one is decided again.
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
		other.behalf = &o.decision
	}
	return other, nil
}

// Listed is the same operation on one object of the collection that this one is for: an
// operation of its own, with what it may claim and warn of.
func (o *Op) Listed(namespace, name string) *Op {
	one := NewOp(o.Request)
	one.DecidedAt, one.Subresource, one.warnings = o.DecidedAt, nil, warnings{}
	one.Info.Name, one.Info.ObjectNamespace = name, namespace
	return &one
}

// NameGenerated reports whether the server has made the name of what is created.
func (o *Op) NameGenerated() bool { return o.nameGenerated }

// Warnings are the values of the header Warning, nil if there are none.
func (r *Request) Warnings() []string { return r.warnings.lines }

// Advice is a list for what Validation tells of the object; nil if nobody is told: only clients are, who
// write the object itself or its scale.
func (r *Request) Advice() *[]string {
	if !r.Client || !r.whole() {
		return nil
	}
	return new([]string)
}

// Warn keeps what the client is to be told besides the answer.
func (r *Request) Warn(texts []string) {
	if r.Client {
		r.warnings.add(texts)
	}
}

// Key of the object that the path names.
func (r *Request) Key() string { return r.Resource.Key(r.Info.ObjectNamespace, r.Info.Name) }

// Model of the resource's objects.
func (r *Request) Model() (*schema.Model, error) { return ModelOf(r.Resource) }

// ModelOf is the model of a resource's objects.
func ModelOf(res *kinds.Resource) (*schema.Model, error) {
	if v := crd.Of(res); v != nil {
		return v.Model()
	}
	return schema.Lookup(res.Model)
}
