package faults

import (
	"context"
	"crypto/tls"
	"sync"
	"time"

	"github.com/quorate/quorate/bench/client"
)

// link is a client's way to a node: a connection, and another one when that is gone.
// Requests wait for a connection that is being opened; a failure is that of all who
// wait for it, and the next request tries again.
type link struct {
	node   client.Node
	config *tls.Config
	within time.Duration // for opening a connection

	mu      sync.Mutex // guards what follows
	conn    *client.Conn
	old     []*client.Conn // those that are gone, but for requests under way
	opening *opening
}

// opening is a connection that is being opened.
type opening struct {
	done chan struct{} // closed when conn or err is there
	conn *client.Conn
	err  error
}

// get returns a connection that takes requests.
func (l *link) get(ctx context.Context) (*client.Conn, error) {
	l.mu.Lock()
	if l.conn != nil && l.conn.Usable() {
		defer l.mu.Unlock()
		return l.conn, nil
	}
	if l.opening == nil {
		l.opening = &opening{done: make(chan struct{})}
		go l.open(l.opening)
	}
	o := l.opening
	l.mu.Unlock()
	select {
	case <-o.done:
		return o.conn, o.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// open is a goroutine's work, which ends within l.within: the connection is not only for
// the request that asked for it first.
func (l *link) open(o *opening) {
	ctx, cancel := context.WithTimeout(context.Background(), l.within)
	defer cancel()
	o.conn, o.err = l.node.Dial(ctx, l.config)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil {
		l.old = append(l.old, l.conn)
	}
	l.conn, l.opening = o.conn, nil
	close(o.done)
}

// close closes all connections, after the last get.
func (l *link) close() {
	l.mu.Lock()
	o := l.opening
	l.mu.Unlock()
	if o != nil {
		<-o.done
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = client.CloseAll(l.old)
	if l.conn != nil {
		_ = l.conn.Close()
	}
}
