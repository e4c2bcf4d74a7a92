package main

import (
	"container/list"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
)

// connections is the API's listener. It bounds how many connections there are: each
// costs a descriptor, which the log and the other nodes need too, and memory (some
// 90 kB on HTTP/2). Above the bound the one goes that has been idle for longest, which
// its client notices least; if all are at work, the newest.
type connections struct {
	net.Listener
	limit int

	mu   sync.Mutex
	open int
	idle list.List // of *connection, the longest idle one first; those in a handshake are idle
}

func newConnections(l net.Listener, limit int) *connections {
	return &connections{Listener: l, limit: limit}
}

// connectionLimit is how many connections the API may have of those that are asked for:
// a quarter of the descriptors stays with everything else.
func connectionLimit(asked int) int {
	var files syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files) != nil {
		return asked
	}
	return int(min(uint64(asked), max(1, files.Cur/4*3)))
}

// Accept implements net.Listener.
func (l *connections) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &connection{Conn: raw, in: l}
		victim, ok := l.add(c)
		if victim != nil {
			_ = victim.Close()
		}
		if ok {
			return c, nil
		}
		_ = raw.Close()
	}
}

// add counts a connection. victim is one that has to go for it.
func (l *connections) add(c *connection) (victim *connection, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open >= l.limit {
		first := l.idle.Front()
		if first == nil {
			return nil, false
		}
		victim = first.Value.(*connection)
		l.forget(victim)
	}
	l.open++
	c.idle = l.idle.PushBack(c)
	return victim, true
}

// forget no longer counts a connection; it may be called again.
func (l *connections) forget(c *connection) {
	if c.idle != nil {
		l.idle.Remove(c.idle)
		c.idle = nil
	}
	if !c.gone {
		c.gone = true
		l.open--
	}
}

// state is the server's ConnState.
func (l *connections) state(conn net.Conn, s http.ConnState) {
	outer, ok := conn.(*tls.Conn)
	if !ok {
		return
	}
	c, ok := outer.NetConn().(*connection)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case c.gone:
	case s == http.StateIdle && c.idle == nil:
		c.idle = l.idle.PushBack(c)
	case s != http.StateIdle && s != http.StateNew && c.idle != nil:
		l.idle.Remove(c.idle)
		c.idle = nil
	}
}

// connection is one of them.
type connection struct {
	net.Conn
	in *connections
	// broken: a write has failed, and perhaps half of it is out.
	broken atomic.Bool

	idle *list.Element // guarded by in.mu
	gone bool          // guarded by in.mu
}

// Write implements net.Conn. After a write that failed there is no other: crypto/tls
// says goodbye on a connection whose deadline cut a record, and the client would read that
// as the record's rest and complain of a forgery instead of an end.
func (c *connection) Write(b []byte) (int, error) {
	if c.broken.Load() {
		return 0, net.ErrClosed
	}
	n, err := c.Conn.Write(b)
	if err != nil {
		c.broken.Store(true)
	}
	return n, err
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.in.mu.Lock()
	c.in.forget(c)
	c.in.mu.Unlock()
	return c.Conn.Close()
}
