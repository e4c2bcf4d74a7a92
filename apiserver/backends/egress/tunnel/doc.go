// Package tunnel has connections to workers that cannot be dialled, through one that the worker opens.
//
// Types to know: [Agent], which runs on the worker in `quorate proxy`, and [Server], which is a part of
// each node. An agent opens a tunnel to every node, since any of them may have to call a kubelet or a
// webhook.
//
// A tunnel is a GET of the API with `Upgrade: quorate-tunnel-1`, on HTTP/1.1, authenticated and
// authorized as every request. What is behind the answer 101 is multiplexed by
// github.com/hashicorp/yamux, with the node as its client: streams are opened by the node alone. One
// begins with the length of an address in two bytes, big-endian, and the address, host:port; the agent
// dials it and answers with a byte, 0 for done, else followed by a text with its length; then come the
// bytes of the connection.
//
// A second tunnel of the same name ends the first. If another process has opened it, which a word in a header
// of the request tells, the first one's agent is told why, by a stream with a text instead of an address, and
// waits for longer: it would end the other's.
//
// Who may open what is said by paths:
//
//   - /quorate/tunnels/nodes/NAME: dials of that node's kubelet. The user system:node:NAME may open it.
//   - /quorate/tunnels/networks: dials of addresses in the CIDRs that the agent offers. Nobody may by
//     default: the one who opens it is between the cluster's servers and their callers.
//
// Callers name the node that they mean ([github.com/quorate/quorate/apiserver/backends/egress.WithNode]). It is not found by its
// address: a Node's addresses are its kubelet's claim, and one that lies would get what is for another.
//
// An agent trusts no node: it dials the kubelet's port on addresses of its own host, and what its
// networks contain; never names, loopback (but for the kubelet) and link-local addresses, such as those
// where clouds hand out credentials.
package tunnel
