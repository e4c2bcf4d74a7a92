package node

import (
	"context"
	"net/http"

	"github.com/quorate/quorate/apiserver"
	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/backends/egress"
	"github.com/quorate/quorate/apiserver/backends/egress/tunnel"
)

// dialers connect to all that this node calls and that is no node of Quorate's.
type dialers struct {
	egress  *egress.Dialers
	tunnels *tunnel.Server // nil: switched off
}

// openEgress makes the dialers of all that this node calls and that is no node of Quorate's.
func (n *Node) openEgress(authorizer auth.Authorizer) (err error) {
	cfg := egress.Config{File: n.cfg.EgressSelectorConfig}
	if n.cfg.EgressTunnels {
		certificates := &auth.Certificates{Roots: n.clientCAs.roots, Refuse: n.ofRemoved}
		n.dialers.tunnels = tunnel.NewServer(tunnel.Config{
			Allowed: func(r *http.Request) bool { return mayTunnel(r, certificates, authorizer) },
			Opened:  func(r *http.Request) func() { return apiserver.EndLater(r.Context()) },
			Direct:  egress.Direct, Log: n.log,
		})
		cfg.Cluster = n.dialers.tunnels.Dial
	}
	n.dialers.egress, err = egress.New(cfg)
	return err
}

// to returns how connections for a purpose are made. What calls something on behalf of the API
// takes it from here:
//
//   - egress.Cluster: kubelets, Pods, Services and their endpoints; so webhooks that are named by
//     their Service, and aggregated servers. A caller that dials the kubelet of a Node says so by egress.WithNode: then
//     the tunnel is used that this Node has opened, if there is one.
//   - egress.ControlPlane: webhooks that a URL names.
//
// The backend of ImagePolicyWebhook is dialled directly, as upstream does. It is there after
// openEgress, and nil if nothing but the network of this host is asked for: then callers keep
// what their libraries do by themselves.
func (d dialers) to(p egress.Purpose) egress.DialFunc {
	if !d.egress.Configured(p) && (p != egress.Cluster || d.tunnels == nil) {
		return nil
	}
	return d.egress.Dial(p)
}

// toCluster is to(egress.Cluster) for callers that dial directly in a way of their own: what a file
// says of the cluster, else tunnels, else direct.
func (d dialers) toCluster(direct egress.DialFunc) egress.DialFunc {
	if d.tunnels != nil && !d.egress.Configured(egress.Cluster) {
		return d.tunnels.Or(direct)
	}
	return d.egress.Or(egress.Cluster, direct)
}

// mayTunnel reports whether the user who has opened a tunnel by a request could do so now: the token or
// certificate still holds, and roles still allow it, and to be that user if it is another's.
func mayTunnel(r *http.Request, certificates auth.Authenticator, authorizer auth.Authorizer) bool {
	ctx := r.Context()
	user := auth.UserFrom(ctx)
	sender := user
	if by := auth.ImpersonatorFrom(ctx); by != nil {
		sender = by
	}
	if sender == nil {
		return false
	}
	if sender.Credential != nil && sender.Credential.Holds(ctx) != nil {
		return false
	}
	if auth.ByCertificate(sender) {
		if _, ok, err := certificates.Authenticate(r); !ok || err != nil {
			return false
		}
	}
	if auth.ImpersonateAgain(ctx, authorizer) != nil {
		return false
	}
	d, _, _ := authorizer.Authorize(ctx, auth.Attributes{User: user, Verb: "get", Path: r.URL.Path})
	return d == auth.Allow
}

// ownTunnel allows a kubelet's credential the tunnel of its own node.
func ownTunnel(_ context.Context, a auth.Attributes) (auth.Decision, string, error) {
	if _, kubelet := a.User.Node(); !kubelet || a.ResourceRequest || a.Verb != "get" || !tunnel.OwnNode(a.User.Name, a.Path) {
		return auth.NoOpinion, "", nil
	}
	return auth.Allow, "", nil
}
