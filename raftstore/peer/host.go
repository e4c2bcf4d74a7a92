package peer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/quorate/quorate/internal/loglimit"
	"github.com/quorate/quorate/proto"
)

// Host is the peer port of one node. Its methods may be called concurrently.
type Host struct {
	cfg      Config
	tls      *tls.Config // of the server side
	conns    *connLimiter
	refusals *loglimit.Limiter // log lines about refused connections
	calls    *queue            // connections for gRPC
	grpc     *grpc.Server

	ctx  context.Context // ends with Close
	stop context.CancelFunc
	wg   sync.WaitGroup // every goroutine of the Host

	serveOnce, closeOnce sync.Once

	mu      sync.Mutex
	closed  bool
	layer   *Layer                       // the open one, if any
	clients map[proto.NodeID]*grpcClient // see client.go
	moved   map[proto.NodeID]moved       // see moved.go
	parked  map[proto.NodeID]*parked     // see reverse.go
	offered map[*inbound]struct{}        // in use by the node that they were offered to
}

// New starts to accept connections on cfg.Listener. Raft streams are refused
// until the first Layer, calls wait for Serve.
func New(cfg Config) (*Host, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	h := &Host{
		cfg:      cfg,
		conns:    newConnLimiter(cfg),
		refusals: loglimit.New(time.Second),
		calls:    newQueue(cfg.Listener.Addr()),
		clients:  map[proto.NodeID]*grpcClient{},
		moved:    map[proto.NodeID]moved{},
		parked:   map[proto.NodeID]*parked{},
		offered:  map[*inbound]struct{}{},
	}
	h.ctx, h.stop = context.WithCancel(context.Background())
	h.tls = h.serverTLS()
	h.grpc = h.newServer()
	h.wg.Go(h.accept)
	return h, nil
}

// Close closes the port, every connection in both directions and the gRPC
// server, and waits for the Host's goroutines. Calls in flight fail.
func (h *Host) Close() error {
	var err error
	h.closeOnce.Do(func() {
		h.mu.Lock()
		h.closed = true
		layer, clients := h.layer, h.clients
		h.layer, h.clients = nil, nil
		h.mu.Unlock()

		h.stop()
		if err = h.cfg.Listener.Close(); errors.Is(err, net.ErrClosed) {
			err = nil
		}
		if layer != nil {
			layer.Close()
		}
		h.calls.Close()
		h.conns.close() // before Stop, which waits for handlers that may wait for their peer
		h.grpc.Stop()
		for _, c := range clients {
			c.conn.Close()
		}
		h.wg.Wait()
	})
	return err
}

// accept is the loop of the port. It does no I/O on a connection itself.
func (h *Host) accept() {
	const maxDelay = time.Second
	var delay time.Duration
	for {
		raw, err := h.cfg.Listener.Accept()
		if err == nil {
			delay = 0
			if t := h.conns.enter(raw); t != nil {
				h.wg.Go(func() { h.welcome(t) })
			} else {
				raw.Close()
			}
			continue
		}
		if h.ctx.Err() != nil {
			return
		}
		if errors.Is(err, net.ErrClosed) {
			h.cfg.Fatal(fmt.Errorf("peer port: accept: %w", err))
			return
		}
		// Out of file descriptors, mostly: that passes.
		h.refusals.Warn(h.cfg.Logger, "cannot accept on the peer port", "err", err)
		delay = min(max(2*delay, 5*time.Millisecond), maxDelay)
		select {
		case <-time.After(delay):
		case <-h.ctx.Done():
			return
		}
	}
}

// welcome finds out who is calling and what for, and hands the connection on.
func (h *Host) welcome(t *ticket) {
	tuneStream(t.conn)
	// The deadline covers everything until the caller is known: a handshake
	// that trickles in byte by byte ends with it too.
	t.conn.SetDeadline(time.Now().Add(h.cfg.HandshakeTimeout))
	raw := &metered{Conn: t.conn}
	conn := &inbound{Conn: tls.Server(raw, h.tls), release: func() { h.conns.release(t) }}
	if err := h.handshake(conn); err != nil {
		h.refuse(conn, err)
		return
	}
	if !h.conns.establish(t, conn.node) {
		h.refuse(conn, errTooMany)
		return
	}
	// After establish: a connection that is not refused here is there for Expel to close.
	// Calls are checked one by one, as Hello and Join stay open to everybody.
	if conn.protocol != alpnGRPC {
		if err := h.checkRemoved(conn.node); err != nil {
			h.refuse(conn, err)
			return
		}
	}
	t.conn.SetDeadline(time.Time{})
	h.meter(raw, conn.node)
	switch conn.protocol {
	case alpnReverse:
		h.park(conn)
		return
	case alpnGRPC:
		if !h.calls.put(conn, h.cfg.HandshakeTimeout) {
			h.refuse(conn, errNotServed)
		}
		return
	}
	if layer := h.openLayer(); layer == nil || !layer.deliver(conn) {
		h.refuse(conn, errNotServed)
	}
}

var (
	errTooMany   = errors.New("too many connections, or the handshake took too long")
	errNotServed = errors.New("this node does not serve the protocol now")
)

func (h *Host) handshake(c *inbound) error {
	if err := c.Conn.HandshakeContext(h.ctx); err != nil {
		return err
	}
	state := c.Conn.ConnectionState()
	id, err := nodeIDOf(state.PeerCertificates[0])
	if err != nil {
		return err
	}
	c.node, c.protocol = id, state.NegotiatedProtocol
	if c.protocol == alpnRaft || c.protocol == alpnReverse {
		theirs, err := readPreface(c.Conn)
		if err != nil {
			return err
		}
		return sameCluster(h.cfg.Cluster(), theirs)
	}
	return nil
}

func (h *Host) refuse(c *inbound, err error) {
	c.Close()
	if h.ctx.Err() == nil {
		h.refusals.Warn(h.cfg.Logger, "refused a connection on the peer port",
			"remote", c.RemoteAddr(), "node", c.node, "err", explained(err))
	}
}

// explained adds to the error of a handshake what it most often means.
func explained(err error) error {
	var authority x509.UnknownAuthorityError
	text := err.Error()
	if errors.As(err, &authority) || strings.Contains(text, "tls: bad certificate") ||
		strings.Contains(text, "tls: unknown certificate authority") {
		return fmt.Errorf("%w: that node has another cluster secret, or is of another cluster", err)
	}
	return err
}

func (h *Host) openLayer() *Layer {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.layer
}

// inbound is a connection whose caller is known.
type inbound struct {
	*tls.Conn
	node     proto.NodeID
	protocol string
	release  func() // idempotent
}

func (c *inbound) Close() error {
	defer c.release()
	return c.Conn.Close()
}
