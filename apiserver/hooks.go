package apiserver

import (
	"net/http"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// What is really code. Everything that is not in this table is the same for
// every kind, and handlers never look at a kind's name.

// strategies are what kinds have as code, keyed by Resource.CodeName.
func strategies(cfg *Config) map[string]*objects.Strategy {
	grants := &escalation{roles: cfg.Roles}
	role, binding := &objects.Strategy{ForUser: grants.storeRole}, &objects.Strategy{ForUser: grants.storeBinding}
	ranges := &serviceRanges{blocks: cfg.ServiceBlocks, ports: cfg.ServicePorts}
	ask := &reviews{roles: cfg.Roles, reviewer: cfg.Reviewer, tokens: cfg.Tokens}
	bind := objects.CreaterOf(bindingKind, bindPod)
	account := &objects.Strategy{}
	if cfg.Tokens != nil {
		tokens := &tokenRequests{tokens: cfg.Tokens, most: cfg.Limits.Token}
		account.Posts = map[string]*objects.Creater{"token": objects.CreaterOf(tokenRequestKind, tokens.create)}
	}
	return map[string]*objects.Strategy{
		"namespaces":      &namespaceStrategy,
		"secrets":         &secretStrategy,
		"services":        {Allocate: ranges.allocate, Held: heldByService},
		"serviceaccounts": account,
		"pods": {
			Parts: map[string]objects.Part{"ephemeralcontainers": takeEphemeralContainers, "resize": takeResources},
			Posts: map[string]*objects.Creater{"binding": bind, "eviction": objects.CreaterOf(evictionKind, evictPod, "policy/v1beta1")},
		},
		"bindings": {Post: bind},

		"certificatesigningrequests.certificates.k8s.io": &signingRequestStrategy,

		"customresourcedefinitions.apiextensions.k8s.io": &definitionStrategy,

		"clusterroles.rbac.authorization.k8s.io":        role,
		"roles.rbac.authorization.k8s.io":               role,
		"clusterrolebindings.rbac.authorization.k8s.io": binding,
		"rolebindings.rbac.authorization.k8s.io":        binding,

		"subjectaccessreviews.authorization.k8s.io":      {Post: objects.CreaterOf(nil, ask.subject)},
		"localsubjectaccessreviews.authorization.k8s.io": {Post: objects.CreaterOf(nil, ask.localSubject)},
		"selfsubjectaccessreviews.authorization.k8s.io":  {Post: objects.CreaterOf(nil, ask.self)},
		"selfsubjectrulesreviews.authorization.k8s.io":   {Post: objects.CreaterOf(nil, ask.rulesOfSelf)},
		"selfsubjectreviews.authentication.k8s.io":       {Post: objects.CreaterOf(nil, ask.myself)},
		"tokenreviews.authentication.k8s.io":             {Post: objects.CreaterOf(nil, ask.token)},
	}
}

// needKubelet are the subresources of upstream that only a kubelet can answer. This
// server connects to none.
var needKubelet = map[string]bool{
	"pods/attach": true, "pods/exec": true, "pods/log": true, "pods/portforward": true, "pods/proxy": true,
	"nodes/proxy": true, "services/proxy": true,
}

func (c *call) virtual() error {
	if p := c.Strategy().Post; p != nil {
		return c.post(p)
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
