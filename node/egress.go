package node

import "github.com/quorate/quorate/apiserver/egress"

// openEgress makes the dialers of all that this node calls and that is no node of Quorate's.
func (n *Node) openEgress() (err error) {
	n.egress, err = egress.New(egress.Config{File: n.cfg.EgressSelectorConfig})
	return err
}

// dialer returns how connections for a purpose are made. Whoever calls something on behalf of the API
// takes it from here:
//
//   - egress.Cluster: kubelets, Pods, Services and their endpoints; so webhooks that are named by
//     their Service, and aggregated servers.
//   - egress.ControlPlane: webhooks that a URL names.
//
// The backend of ImagePolicyWebhook is dialled directly, as upstream does. It is there after
// openEgress, and nil if nothing but the network of this host is asked for: then callers keep
// what their libraries do by themselves.
func (n *Node) dialer(p egress.Purpose) egress.DialFunc {
	if !n.egress.Configured(p) {
		return nil
	}
	return n.egress.Dial(p)
}
