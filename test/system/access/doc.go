// Package access proves who may do what on every node of a cluster, and whose
// credentials hold: roles, client certificates, the tokens of service accounts and what
// the administration asks for.
package access
