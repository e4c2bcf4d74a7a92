// Package controllers is what the leader's node does because a cluster without a
// controller manager would be stuck without it.
//
// The types to know:
//
//   - Loops are the steps: to empty a namespace, to delete what has no owner, to take back
//     an address. They change objects as everybody does, by operations of package objects.
//   - Make, SettleDefinitions and TendServices are the loops around them. Each declares
//     which steps it needs.
//
// Each loop is idempotent and does no harm if two nodes run it for a moment.
//
// DESIGN.md says how garbage is found.
package controllers
