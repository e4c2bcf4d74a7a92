// Package pipes is for tests: a network for Raft transports that needs no sockets. Each
// connection is a net.Pipe, so that all of it runs in virtual time (testing/synctest).
//
// raft.InmemTransport would be simpler, but it ignores the heartbeat fast path and knows
// no connections, so it cannot show the faults that come from either.
package pipes

import (
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// Network connects the layers that join it.
type Network struct {
	mu     sync.Mutex
	layers map[raft.ServerAddress]*Layer
}

// New returns a network without layers.
func New() *Network { return &Network{layers: map[raft.ServerAddress]*Layer{}} }

// Join returns the layer of an address; one that had it before is not dialled any more.
func (n *Network) Join(addr raft.ServerAddress) *Layer {
	l := &Layer{network: n, addr: addr, accept: make(chan net.Conn), closed: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.layers[addr] = l
	return l
}

// Layer is a raft.StreamLayer. Its methods may be called at once.
type Layer struct {
	network *Network
	addr    raft.ServerAddress
	accept  chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

// Dial connects with the layer of an address, once it accepts.
func (l *Layer) Dial(to raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	l.network.mu.Lock()
	peer := l.network.layers[to]
	l.network.mu.Unlock()
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

// Accept returns the next connection; net.ErrClosed after Close.
func (l *Layer) Accept() (net.Conn, error) {
	select {
	case c := <-l.accept:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept. Connections stay.
func (l *Layer) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr is the address, as it was given to Join.
func (l *Layer) Addr() net.Addr { return address(l.addr) }

type address string

func (address) Network() string  { return "pipe" }
func (a address) String() string { return string(a) }
