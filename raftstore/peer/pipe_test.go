package peer

import (
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// pipes is a network for Transports that needs no sockets: each connection is
// a net.Pipe, so the whole of it runs in virtual time.
type pipes struct {
	mu     sync.Mutex
	layers map[raft.ServerAddress]*pipeLayer
}

func newPipes() *pipes { return &pipes{layers: map[raft.ServerAddress]*pipeLayer{}} }

// join returns the transport of a new node whose address is its id.
func (p *pipes) join(tb testing.TB, id raft.ServerID) *Transport {
	l := &pipeLayer{pipes: p, addr: raft.ServerAddress(id), accept: make(chan net.Conn), closed: make(chan struct{})}
	p.mu.Lock()
	p.layers[l.addr] = l
	p.mu.Unlock()
	same := func(_ raft.ServerID, a raft.ServerAddress) raft.ServerAddress { return a }
	return NewTransportOn(l, same, 2*time.Second, slog.New(slog.DiscardHandler))
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

func (l *pipeLayer) Addr() net.Addr { return stringAddr(l.addr) }
