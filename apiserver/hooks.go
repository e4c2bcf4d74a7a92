package apiserver

import (
	"net/http"

	"github.com/quorate/quorate/apiserver/status"
	"github.com/quorate/quorate/apiserver/tree"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// What is really code. Everything that is not in these tables is the same for
// every kind, and handlers never look at a kind's name.

// objectHooks are the few kinds whose objects need code of their own. Functions
// that are nil do nothing.
type objectHooks struct {
	// complete fills in what clients leave out, after the model's defaults and before
	// anybody owns the fields. old is nil for a create. Values of obj may be shared and
	// are replaced, not changed.
	complete func(c *call, obj, old tree.Object) error
	// validate adds to what the model says of an object that is complete, or says it all.
	validate     func(c *call, obj, old tree.Object) (field.ErrorList, error)
	validatesAll bool
	// prepare completes an object before it is validated. old is nil for a
	// create. Values of obj may be shared and are replaced, not changed.
	prepare func(obj, old tree.Object)
	// forUser completes or refuses an object for the user, once it is prepared and
	// before it is validated. old is nil for a create.
	forUser func(c *call, obj, old tree.Object) error
	// allocate completes an object with what only one object of the cluster may
	// have, after it was prepared. It may run several times for one request. errs are
	// for the client.
	allocate func(c *call, obj, old tree.Object) (errs field.ErrorList, err error)
	// held are the rows of what allocate has given to a stored object.
	held func(obj tree.Object) []claimKey
	// mayDelete refuses the deletion of some objects.
	mayDelete func(c *call, name string) error
	// startDelete prepares the first phase of a deletion; it reports whether
	// something other than metadata.finalizers still holds the object.
	startDelete func(c *call, obj tree.Object) (held bool)
	// holds reports whether a deleting object must stay although it has no
	// finalizers in its metadata.
	holds func(obj tree.Object) bool
}

// byResource is keyed by Resource.CodeName.
var byResource = map[string]*objectHooks{
	"namespaces": &namespaceHooks,
	"secrets":    &secretHooks,
	"services":   &serviceHooks,

	"certificatesigningrequests.certificates.k8s.io": &signingRequestHooks,

	"customresourcedefinitions.apiextensions.k8s.io": &definitionHooks,

	"clusterroles.rbac.authorization.k8s.io":        &roleHooks,
	"roles.rbac.authorization.k8s.io":               &roleHooks,
	"clusterrolebindings.rbac.authorization.k8s.io": &bindingHooks,
	"rolebindings.rbac.authorization.k8s.io":        &bindingHooks,
}

// subresourceHooks is keyed by resource.group/subresource.
var subresourceHooks = map[string]func(*call) error{}

// partHooks are the subresources that show the whole object and change a part of it,
// beside status. Keyed like subresourceHooks.
var partHooks = map[string]part{
	"pods/ephemeralcontainers": takeEphemeralContainers,
	"pods/resize":              takeResources,
	"certificatesigningrequests.certificates.k8s.io/approval": takeApproval,
	"certificatesigningrequests.certificates.k8s.io/status":   takeRequestStatus,
}

// virtualHooks answer resources that are not stored, keyed like byResource.
var virtualHooks = map[string]func(*call) error{}

func init() {
	// Filled here because the functions reach the tables again.
	subresourceHooks["namespaces/finalize"] = (*call).finalizeNamespace
	subresourceHooks["serviceaccounts/token"] = (*call).createToken
	subresourceHooks["pods/binding"] = (*call).bindPod
	subresourceHooks["pods/eviction"] = (*call).evictPod
	virtualHooks["bindings"] = (*call).bindPod

	virtualHooks["subjectaccessreviews.authorization.k8s.io"] = (*call).reviewSubject
	virtualHooks["localsubjectaccessreviews.authorization.k8s.io"] = (*call).reviewLocalSubject
	virtualHooks["selfsubjectaccessreviews.authorization.k8s.io"] = (*call).reviewSelf
	virtualHooks["selfsubjectrulesreviews.authorization.k8s.io"] = (*call).reviewRules
	virtualHooks["selfsubjectreviews.authentication.k8s.io"] = (*call).reviewMyself
	virtualHooks["tokenreviews.authentication.k8s.io"] = (*call).reviewToken
}

// needKubelet are the subresources of upstream that only a kubelet can answer. This
// server connects to none.
var needKubelet = map[string]bool{
	"pods/attach": true, "pods/exec": true, "pods/log": true, "pods/portforward": true, "pods/proxy": true,
	"nodes/proxy": true, "services/proxy": true,
}

var noHooks objectHooks

func (c *call) hooks() *objectHooks {
	if c.res.Custom {
		return &customHooks
	}
	if h := byResource[c.res.CodeName()]; h != nil {
		return h
	}
	return &noHooks
}

func (c *call) virtual() error {
	if f := virtualHooks[c.res.CodeName()]; f != nil {
		return f(c)
	}
	return notImplemented(c.res.GroupResource(), "")
}

// withoutKubelet refuses what needs a connection to a node.
func withoutKubelet(resource schema.GroupResource, sub string) error {
	s := status.From(status.BadRequest("%s/%s needs a connection to the node, and this server makes none", resource, sub))
	s.Code, s.Reason = http.StatusNotImplemented, metav1.StatusReason("NotImplemented")
	return &apierrors.StatusError{ErrStatus: *s}
}

// notImplemented refuses by name what discovery lists and this version cannot
// do yet.
func notImplemented(resource schema.GroupResource, sub string) error {
	what := resource.String()
	if sub != "" {
		what += "/" + sub
	}
	s := status.From(status.BadRequest("%s is not implemented by this version of the server", what))
	s.Code, s.Reason = http.StatusNotImplemented, metav1.StatusReason("NotImplemented")
	return &apierrors.StatusError{ErrStatus: *s}
}
