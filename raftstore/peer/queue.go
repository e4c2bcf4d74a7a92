package peer

import (
	"net"
	"sync"
	"time"
)

// queue is a net.Listener fed with connections that are already authenticated.
type queue struct {
	addr   net.Addr
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newQueue(addr net.Addr) *queue {
	return &queue{addr: addr, conns: make(chan net.Conn), closed: make(chan struct{})}
}

// put hands over a connection and reports whether someone took it in time.
func (q *queue) put(c net.Conn, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-q.closed:
		return false
	default:
	}
	select {
	case q.conns <- c:
		return true
	case <-q.closed:
		return false
	case <-timer.C:
		return false
	}
}

func (q *queue) Accept() (net.Conn, error) {
	select {
	case c := <-q.conns:
		return c, nil
	case <-q.closed:
		return nil, net.ErrClosed
	}
}

func (q *queue) Close() error {
	q.once.Do(func() { close(q.closed) })
	return nil
}

func (q *queue) Addr() net.Addr { return q.addr }

// stringAddr is the advertised address as a net.Addr.
type stringAddr string

func (stringAddr) Network() string  { return "tcp" }
func (a stringAddr) String() string { return string(a) }
