// Package token issues the tokens of service accounts and recognizes them: JWTs
// that are signed with a key of the node and bound to a service account and perhaps
// to a pod, a secret or a node.
//
// The types to know:
//
//   - Keys are those that sign and verify at one moment. Anyone who makes them knows which
//     nodes they are of, and for how long they count.
//   - Accounts is both: Issue signs Claims, AuthenticateToken verifies them. A
//     signature is verified once and remembered; whether what the token is bound to
//     still exists is looked up in this node's state on every request, so that a
//     token ends with its object.
//   - OpenID serves the documents by which others verify the tokens.
package token
