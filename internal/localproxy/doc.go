// Package localproxy passes the connections of one host's kubelet, kube-proxy and Pods to the nodes
// of a cluster, for `quorate proxy`.
//
// Types to know: [Balancer], which knows the nodes and how they are, and [Members], which
// keeps the list of them current.
//
// Bytes are passed as they are: TLS is between the client and the node, and so are certificates. A
// client that waits for a node which does not answer finds that out late: client-go needs up to 45 s.
// Therefore a node is asked for /readyz once a second, on a connection of the
// Balancer's own; one that has not answered for a while loses all connections, and the clients
// dial again, at once.
package localproxy
