package peer

import (
	"strings"

	"github.com/quorate/quorate/proto"
)

// moved is where a node was found that is not where the Raft configuration says.
type moved struct{ from, to string }

// Found notes that the node which Raft's configuration has at configured was found
// at addr. As long as a caller has it at configured, Raft's messages and Conn go to
// addr; with another address the configuration is newer than the finding, which
// then counts no more. The same address twice takes the note back. To be told
// something wrong costs connections, never safety: anyone who answers at addr must
// prove to be the node.
//
// There is one note per node, and only the caller's members are nodes: it bounds
// what is kept.
func (h *Host) Found(id proto.NodeID, configured, addr string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if configured == addr {
		delete(h.moved, id)
		return
	}
	h.moved[id] = moved{configured, addr}
}

// ForgetAddress closes the connection that Conn made to an address without a node
// id, if there is one.
func (h *Host) ForgetAddress(addr string) { h.forget(anyoneAt(addr)) }

// anyoneAt is the key of connections to an address; no node id contains an @.
func anyoneAt(addr string) proto.NodeID { return proto.NodeID("@" + addr) }

// whereabouts returns the address to dial for a node.
func (h *Host) whereabouts(id proto.NodeID, configured string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.whereaboutsLocked(id, configured)
}

func (h *Host) whereaboutsLocked(id proto.NodeID, configured string) string {
	if m, ok := h.moved[id]; ok && m.from == configured {
		return spelled(m.to)
	}
	return spelled(configured)
}

// spelled returns the one spelling of an address. Configurations may have another one, with
// zeros before the port (see package membership), and the node itself says this one: a
// node that is asked for by both would get a new connection each time, and all calls on
// the other one would fail.
func spelled(addr string) string {
	port := strings.LastIndexByte(addr, ':') + 1
	if port == 0 || port == len(addr) || addr[port] != '0' {
		return addr
	}
	return addr[:port] + strings.TrimLeft(addr[port:len(addr)-1], "0") + addr[len(addr)-1:]
}
