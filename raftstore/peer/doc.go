// Package peer is the port on which the nodes of a cluster talk to each other:
// one TCP port, mutual TLS 1.3, and ALPN to tell Raft streams from gRPC.
//
// The types to know:
//
//   - Host owns the port. It admits connections, checks who is calling, and
//     hands them to the Raft transport or to the gRPC server. It also makes the
//     outgoing gRPC connections, one per peer.
//   - Credentials is where a Host takes its certificate and its peer CAs from,
//     at each handshake, so both can rotate while connections go on.
//   - Transport is the raft.Transport on top.
//
// Who may connect: a certificate that a peer CA has signed, for both client and
// server use, with exactly one URI name quorate://peer/<node-id>. The CA alone
// is not enough, because it may sign other certificates as well
// (CVE-2021-37219). A dialer that knows which node it wants accepts no other.
//
// Every gRPC call carries the cluster and the node in its metadata, every Raft
// stream begins with the cluster; a node of another cluster is refused. So a
// member of a cluster from before a restore cannot disturb the restored one. A node
// that was removed is refused all but Hello and Join, and loses the connections that
// it has: see removal.go.
//
// A leader keeps one connection open to each member on which that member may ask
// it: Host.Offer. It is used where the member's own dial fails. See reverse.go.
//
// Before TLS is complete nobody has proved anything, so connections in that
// state are few, short-lived, counted per address, and the oldest gives way to
// the newest: one that holds connections half open pushes out only its own.
package peer
