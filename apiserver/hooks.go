package apiserver

import (
	"net/http"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// What is really code. Everything that is not in these tables is the same for
// every kind, and handlers never look at a kind's name.

// strategies are what kinds have as code, keyed by Resource.CodeName.
func strategies(cfg *Config) map[string]*objects.Strategy {
	grants := &escalation{roles: cfg.Roles}
	role, binding := &objects.Strategy{ForUser: grants.storeRole}, &objects.Strategy{ForUser: grants.storeBinding}
	ranges := &serviceRanges{blocks: cfg.ServiceBlocks, ports: cfg.ServicePorts}
	return map[string]*objects.Strategy{
		"namespaces": &namespaceStrategy,
		"secrets":    &secretStrategy,
		"services":   {Allocate: ranges.allocate, Held: heldByService},

		"certificatesigningrequests.certificates.k8s.io": &signingRequestStrategy,

		"customresourcedefinitions.apiextensions.k8s.io": &definitionStrategy,

		"clusterroles.rbac.authorization.k8s.io":        role,
		"roles.rbac.authorization.k8s.io":               role,
		"clusterrolebindings.rbac.authorization.k8s.io": binding,
		"rolebindings.rbac.authorization.k8s.io":        binding,
	}
}

// subresourceHooks is keyed by resource.group/subresource.
var subresourceHooks = map[string]func(*call) error{}

// partHooks are the subresources that show the whole object and change a part of it,
// beside status. Keyed like subresourceHooks.
var partHooks = map[string]objects.Part{
	"pods/ephemeralcontainers": takeEphemeralContainers,
	"pods/resize":              takeResources,
	"certificatesigningrequests.certificates.k8s.io/approval": takeApproval,
	"certificatesigningrequests.certificates.k8s.io/status":   takeRequestStatus,
}

// virtualHooks answer resources that are not stored, keyed like strategies.
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

func (c *call) virtual() error {
	if f := virtualHooks[c.Resource.CodeName()]; f != nil {
		return f(c)
	}
	return notImplemented(c.Resource.GroupResource(), "")
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
