// Package pki derives a cluster's three certificate authorities from one secret,
// and keeps the certificates of one node.
//
// The types to know:
//
//   - Secret is the cluster secret, the only thing that nodes must share.
//   - Authority is a CA derived from it: the same on every node.
//   - Node is the pki directory of one node: it makes what is missing, renews
//     what grows old while the node runs, and hands out what is current.
//
// The API CA signs what clients see (serving certificates, client
// certificates), the peer CA signs peers and nothing else, so that no client
// certificate can ever reach the peer port.
// The front proxy CA signs what this API shows to aggregated servers, which believe those who show such a
// certificate who a request's user is. It signs nothing else, and this API trusts it with nothing.
//
// Knowledge of the secret is full power over the cluster. See
// ../DESIGN.md for why it is derived, and what that costs.
package pki
