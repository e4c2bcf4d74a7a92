// Package rbac decides by the Roles, ClusterRoles and their bindings that are
// stored.
//
// The types to know:
//
//   - Authorizer answers from this node's state. It reads an Index, and renews it
//     when one of the four tables has changed.
//   - Index is the tables compiled: who has which role where. It is immutable; a
//     change makes a new one that shares nearly everything with the one before.
//   - Policy is what a cluster has in the beginning, upstream's own; Ensure brings
//     the stored objects up to it.
//
// A ClusterRole with an aggregationRule has the rules that are written in it. The
// leader's node writes them (Aggregate): clients see them, backups carry them, and
// a user that changes such a role is checked against them.
//
// DESIGN.md says where the decisions differ from upstream's.
package rbac
