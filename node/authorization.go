package node

import (
	"context"
	"slices"

	"github.com/quorate/quorate/apiserver/auth"
)

// Authorizers, by upstream's names.
const (
	authorizeRBAC   = "RBAC"
	authorizeAlways = "AlwaysAllow"
	authorizeNever  = "AlwaysDeny"
)

// checkAuthorization checks what says who may do what.
func (c *Config) checkAuthorization(bad *mistakes) {
	if len(c.Authorization) == 0 {
		c.Authorization = []string{authorizeRBAC}
	}
	for i, mode := range c.Authorization {
		switch {
		case mode != authorizeRBAC && mode != authorizeAlways && mode != authorizeNever:
			bad.add("authorization-mode: %q: must be %s, %s or %s", mode, authorizeRBAC, authorizeAlways, authorizeNever)
		case slices.Contains(c.Authorization[:i], mode):
			bad.add("authorization-mode: %s is there twice", mode)
		}
	}
	// A request without a credential would be allowed everything. Upstream does the same.
	if slices.Contains(c.Authorization, authorizeAlways) {
		c.AnonymousAuth = false
	}
}

// authorizer asks those of authorization-mode in turn. Administrators and health checks are
// allowed in any case.
func (n *Node) authorizer() auth.Authorizer {
	out := auth.Union{auth.AuthorizerFunc(auth.PrivilegedGroup), auth.AuthorizerFunc(auth.Health)}
	for _, mode := range n.cfg.Authorization {
		switch mode {
		case authorizeRBAC:
			out = append(out, auth.Roles(n.roles, n.roles.Empty))
		case authorizeAlways:
			out = append(out, always(auth.Allow))
		case authorizeNever:
			out = append(out, always(auth.NoOpinion))
		}
	}
	return out
}

func always(d auth.Decision) auth.Authorizer {
	return auth.AuthorizerFunc(func(context.Context, auth.Attributes) (auth.Decision, string, error) { return d, "", nil })
}
