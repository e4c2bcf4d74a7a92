package regress

import (
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/quorate/quorate/raftstore/peer"
)

// pipes is a network for real transports that needs no sockets: each connection
// is a net.Pipe, so the whole of it runs in virtual time.
//
// raft.InmemTransport would be simpler, but it ignores the heartbeat fast path
// and knows no connections, so it cannot show the faults that come from either.
type pipes struct {
	mu     sync.Mutex
	layers map[raft.ServerAddress]*pipeLayer
}

func newPipes() *pipes { return &pipes{layers: map[raft.ServerAddress]*pipeLayer{}} }

// library joins a node with raft.NetworkTransport; its address is its id.
func (p *pipes) library(id raft.ServerID) transport {
	return raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: p.layer(id), MaxPool: 3, Timeout: 2 * time.Second, Logger: hclog.NewNullLogger(),
	})
}

// ours joins a node with peer.Transport.
func (p *pipes) ours(id raft.ServerID) transport {
	same := func(_ raft.ServerID, a raft.ServerAddress) raft.ServerAddress { return a }
	return peer.NewTransportOn(p.layer(id), same, 2*time.Second, slog.New(slog.DiscardHandler))
}

func (p *pipes) layer(id raft.ServerID) *pipeLayer {
	l := &pipeLayer{
		pipes:  p,
		addr:   raft.ServerAddress(id),
		accept: make(chan net.Conn),
		closed: make(chan struct{}),
	}
	p.mu.Lock()
	p.layers[l.addr] = l
	p.mu.Unlock()
	return l
}

// pipeLayer is a raft.StreamLayer.
type pipeLayer struct {
	pipes  *pipes
	addr   raft.ServerAddress
	accept chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *pipeLayer) Dial(to raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	l.pipes.mu.Lock()
	peer := l.pipes.layers[to]
	l.pipes.mu.Unlock()
	if peer == nil {
		return nil, fmt.Errorf("no node at %s", to)
	}
	ours, theirs := net.Pipe()
	select {
	case peer.accept <- theirs:
		return ours, nil
	case <-peer.closed:
		return nil, net.ErrClosed
	case <-time.After(timeout):
		return nil, fmt.Errorf("dial %s: timeout", to)
	}
}

func (l *pipeLayer) Accept() (net.Conn, error) {
	select {
	case c := <-l.accept:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeLayer) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeLayer) Addr() net.Addr { return pipeAddr(l.addr) }

type pipeAddr string

func (pipeAddr) Network() string  { return "pipe" }
func (a pipeAddr) String() string { return string(a) }
