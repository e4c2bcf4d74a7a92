package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/proto"
)

// ErrClosed is returned after Close.
var ErrClosed = errors.New("peer port is closed")

// Layer is the raft.StreamLayer of a Host: connections of ALPN quorate-raft/1,
// both ends verified, the cluster checked.
type Layer struct {
	host  *Host
	queue *queue

	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]struct{} // open ones, in both directions
}

var _ raft.StreamLayer = (*Layer)(nil)

// Layer returns the Host's stream layer for Raft: the open one, or a new one if
// that was closed. After the Host is closed the layer is closed too.
func (h *Host) Layer() *Layer {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.layer != nil {
		return h.layer
	}
	l := &Layer{host: h, queue: newQueue(stringAddr(h.cfg.Advertise)), conns: map[net.Conn]struct{}{}}
	if h.closed {
		l.closed = true
		l.queue.Close()
		return l
	}
	h.layer = l
	return l
}

// nodeAddress is what Dial takes when the node at the address is known:
// <node-id>@<host:port>. It lets hashicorp's transport, which dials by address
// only, say whom it wants.
func nodeAddress(id proto.NodeID, addr string) raft.ServerAddress {
	return raft.ServerAddress(string(id) + "@" + addr)
}

// Dial connects to addr, host:port or <node-id>@host:port. The second form
// fails with ErrWrongNode if another node answers; the first takes any peer.
func (l *Layer) Dial(addr raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	want, to := "", string(addr)
	if i := strings.IndexByte(to, '@'); i >= 0 {
		want, to = to[:i], to[i+1:]
	}
	return l.DialNode(proto.NodeID(want), to, timeout)
}

// DialNode connects to the node want at addr; "" stands for any peer.
func (l *Layer) DialNode(want proto.NodeID, addr string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(l.host.ctx, timeout)
	defer cancel()
	conn, err := l.dial(ctx, want, addr)
	if err != nil {
		return nil, fmt.Errorf("dial node %s at %s: %w", want, addr, err)
	}
	return conn, nil
}

func (l *Layer) dial(ctx context.Context, want proto.NodeID, addr string) (net.Conn, error) {
	preface, err := appendPreface(nil, l.host.cfg.Cluster())
	if err != nil {
		return nil, err
	}
	conn, err := l.host.dialTLS(ctx, alpnRaft, want, addr)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Write(preface); err != nil {
		conn.Close()
		return nil, err
	}
	tracked := l.track(conn)
	if tracked == nil {
		conn.Close()
		return nil, ErrClosed
	}
	return tracked, nil
}

func dialTCP(ctx context.Context, addr string) (net.Conn, error) {
	d := net.Dialer{KeepAliveConfig: tcpKeepalive}
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	tuneStream(conn)
	return &metered{Conn: conn}, nil
}

// deliver hands an inbound connection to Accept.
func (l *Layer) deliver(c *inbound) bool {
	tracked := l.track(c)
	return tracked != nil && l.queue.put(tracked, l.host.cfg.HandshakeTimeout)
}

// Accept returns the next inbound connection.
func (l *Layer) Accept() (net.Conn, error) { return l.queue.Accept() }

// Addr returns the advertised address.
func (l *Layer) Addr() net.Addr { return l.queue.Addr() }

// Close closes the layer and its connections.
func (l *Layer) Close() error {
	l.host.mu.Lock()
	if l.host.layer == l {
		l.host.layer = nil
	}
	l.host.mu.Unlock()

	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.queue.Close()
	l.closeConns()
	return nil
}

// closeConns closes all open connections. The layer goes on.
func (l *Layer) closeConns() {
	l.mu.Lock()
	conns := l.conns
	l.conns = map[net.Conn]struct{}{}
	l.mu.Unlock()
	for c := range conns {
		c.Close()
	}
}

// track registers a connection, or returns nil when the layer is closed.
func (l *Layer) track(c net.Conn) net.Conn {
	t := &trackedConn{Conn: c, layer: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.conns[t] = struct{}{}
	return t
}

// trackedConn is a connection as the Layer's users see it.
type trackedConn struct {
	net.Conn
	layer *Layer
}

// peerNode returns the node that an inbound connection comes from.
func (t *trackedConn) peerNode() proto.NodeID {
	if in, ok := t.Conn.(*inbound); ok {
		return in.node
	}
	return ""
}

func (t *trackedConn) Close() error {
	t.layer.mu.Lock()
	delete(t.layer.conns, t)
	t.layer.mu.Unlock()
	return t.Conn.Close()
}
