// Package membership decides who takes part in a cluster, and is the only
// writer of the Raft configuration: bootstrap, join, promote, demote, remove,
// leadership transfer, join tokens and autopilot.
//
// The types to know:
//
//   - Identity is node.json: the id that this data directory has for ever.
//   - Manager is one node's part, the sum of the types that do the work: joinTokens,
//     changes (of members), quorumWatch, stateCheck, and what Run runs: forming, then
//     search, announcer, autopilot and others. All of them share base. It also is the
//     gRPC service proto.Membership.
//   - Manager.AdminHandler and Manager.JoinHandler are its HTTP side;
//     AdminClient and JoinWithToken speak to them.
//   - a TokenKey is one by which service account tokens are verified;
//     ReadTokenKeys finds them in a state. A removal ends those of the node.
//   - Consensus, KV and Peers (interfaces.go) are all it needs from other
//     packages.
//
// Package membership/pki makes the certificates that all of this rests on.
//
// Read DESIGN.md beside this file before changing bootstrap: that two nodes
// can never start two clusters is an argument, not a test.
package membership
