// Package relay carries the connections between processes on loopback, so that a node can be
// cut off from the others without a privilege.
//
// A Network has a listener for each node, which hands connections on to the node's own port. Nodes
// are told to advertise the listener's address, so all that others send to them goes through here.
// Who opens a connection is known from the kernel: the socket at its other end is one of a process
// that was named by Runs. So each direction of a connection is a way from one node to another, and
// Cut closes ways.
//
// What is sent on a way that is cut arrives when it is open again, in order, as after TCP's
// retransmissions; the end of a connection is such news too. What differs from a network that drops
// packets: the kernel acknowledges what the relay has not read, so keepalives and TCP's timeouts do
// not fire; a new connection is opened and then silent, where a packet would be lost; and after the
// end all arrives at once, where TCP would wait for its next retransmission. Each byte is copied
// once more.
package relay
