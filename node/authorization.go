package node

import (
	"context"
	"slices"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/access/nodeauthorizer"
	"github.com/quorate/quorate/apiserver/access/rbac"
	"github.com/quorate/quorate/apiserver/observe/features"
)

// Authorizers, by upstream's names.
const (
	authorizeNode   = "Node"
	authorizeRBAC   = "RBAC"
	authorizeAlways = "AlwaysAllow"
	authorizeNever  = "AlwaysDeny"
)

// checkAuthorization checks what says who may do what.
func (c *Config) checkAuthorization(bad *mistakes) {
	if len(c.Authorization) == 0 {
		c.Authorization = []string{authorizeNode, authorizeRBAC}
	}
	for i, mode := range c.Authorization {
		switch {
		case mode != authorizeNode && mode != authorizeRBAC && mode != authorizeAlways && mode != authorizeNever:
			bad.add("authorization-mode: %q: must be %s, %s, %s or %s", mode, authorizeNode, authorizeRBAC, authorizeAlways, authorizeNever)
		case slices.Contains(c.Authorization[:i], mode):
			bad.add("authorization-mode: %s is there twice", mode)
		}
	}
	// A request without a credential would be allowed everything. Upstream does the same.
	if slices.Contains(c.Authorization, authorizeAlways) {
		c.AnonymousAuth = false
	}
}

// authorizer asks those of authorization-mode in turn. Administrators are allowed in any case.
func (n *Node) authorizer() auth.Authorizer {
	out := auth.Union{auth.AuthorizerFunc(auth.PrivilegedGroup)}
	for _, mode := range n.cfg.Authorization {
		switch mode {
		case authorizeNode:
			out = append(out, n.nodeAuthorizer())
		case authorizeRBAC:
			out = append(out, auth.AuthorizerFunc(ownTunnel), auth.Roles(n.roles, n.roles.Empty))
		case authorizeAlways:
			out = append(out, always(auth.Allow))
		case authorizeNever:
			out = append(out, always(auth.NoOpinion))
		}
	}
	return out
}

// authorizesNodes reports whether kubelets are allowed what their Pods need.
func (c *Config) authorizesNodes() bool { return slices.Contains(c.Authorization, authorizeNode) }

func (n *Node) nodeAuthorizer() auth.Authorizer {
	rules := rbac.NodeRules(n.features.Enabled(features.ClusterTrustBundle))
	return nodeauthorizer.New(nodeauthorizer.Config{Store: n.store, Pods: n.podsOfNodes, Rules: rules, Log: n.log})
}

func always(d auth.Decision) auth.Authorizer {
	return auth.AuthorizerFunc(func(context.Context, auth.Attributes) (auth.Decision, string, error) { return d, "", nil })
}
