package peer

import (
	"net"
	"sync/atomic"

	"github.com/quorate/quorate/proto"
)

// Traffic is told what goes over the connections with one other node, in both
// protocols: bytes as TLS sends them. Methods are called concurrently and for each
// system call: they must be fast.
type Traffic interface {
	Sent(bytes int)
	Received(bytes int)
	// Failed is told of a message for the node that had no answer.
	Failed()
}

// metered is a TCP connection whose bytes are counted from the moment on that the
// other end is known.
type metered struct {
	net.Conn
	traffic atomic.Pointer[Traffic]
}

func (m *metered) Read(b []byte) (int, error) {
	n, err := m.Conn.Read(b)
	if t := m.traffic.Load(); t != nil && n > 0 {
		(*t).Received(n)
	}
	return n, err
}

func (m *metered) Write(b []byte) (int, error) {
	n, err := m.Conn.Write(b)
	if t := m.traffic.Load(); t != nil && n > 0 {
		(*t).Sent(n)
	}
	return n, err
}

// meter begins to count what goes over a connection that is with a node.
func (h *Host) meter(conn net.Conn, node proto.NodeID) {
	m, ok := conn.(*metered)
	if !ok || h.cfg.Traffic == nil {
		return
	}
	t := h.cfg.Traffic(node)
	m.traffic.Store(&t)
}
