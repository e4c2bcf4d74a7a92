package builtin

import (
	"net/netip"
	"time"

	"github.com/quorate/quorate/apiserver/builtin/service"
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/rules"
)

// Config is what some kinds need to know.
type Config struct {
	// Roles says what may be granted by whom. Nil: writes of roles and bindings are not
	// checked for escalation.
	Roles Roles
	// Reviewer answers TokenReviews; nil: it authenticates nobody.
	Reviewer TokenReviewer
	// Tokens issues the tokens of service accounts; nil: that is not served. MaxToken bounds
	// how long they are valid; zero: not bounded.
	Tokens   Tokens
	MaxToken time.Duration
	// ServiceBlocks and ServicePorts are the addresses and node ports of Services.
	ServiceBlocks []netip.Prefix
	ServicePorts  service.PortRange
}

// Strategies are what kinds have as code, keyed by Resource.CodeName.
func Strategies(cfg Config) map[string]*objects.Strategy {
	grants := &escalation{roles: cfg.Roles}
	role, binding := &objects.Strategy{ForUser: grants.storeRole}, &objects.Strategy{ForUser: grants.storeBinding}
	ranges := &serviceRanges{blocks: cfg.ServiceBlocks, ports: cfg.ServicePorts}
	ask := &reviews{roles: cfg.Roles, reviewer: cfg.Reviewer, tokens: cfg.Tokens}
	bind := objects.CreaterOf(bindingKind, bindPod)
	account := &objects.Strategy{}
	if cfg.Tokens != nil {
		tokens := &tokenRequests{tokens: cfg.Tokens, most: cfg.MaxToken}
		account.Posts = map[string]*objects.Creater{"token": objects.CreaterOf(tokenRequestKind, tokens.create)}
	}
	all := map[string]*objects.Strategy{
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
	for resource, r := range rules.All() {
		h := objects.Strategy{}
		if own := all[resource.String()]; own != nil {
			h = *own
		}
		if r.Prepare != nil {
			h.Prepare = r.Prepare
		}
		h.Validate, h.ValidateClients = r.Validate, r.ValidateClients
		all[resource.String()] = &h
	}
	return all
}
