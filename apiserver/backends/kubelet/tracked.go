package kubelet

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http/httptrace"
	"sync"
)

// tracked is a connection to a kubelet or a Pod. It closes the body of the request that is on it when it ends itself:
// net/http's transport does not return while a body is read, and that may wait for its client for ever.
type tracked struct {
	net.Conn

	mu     sync.Mutex
	closed bool
	body   io.Closer // of the request that is on it; nil: none, or it has no body
}

// tracking dials connections that are tracked.
func tracking(dial Dial) Dial {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &tracked{Conn: conn}, nil
	}
}

// Close implements net.Conn.
func (t *tracked) Close() error {
	err := t.Conn.Close()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed = true; t.body != nil {
		go t.body.Close() // the transport closes connections under its lock
	}
	return err
}

// carry says whose body the connection carries until ctx ends.
func (t *tracked) carry(ctx context.Context, body io.Closer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.body = body; t.closed {
		go body.Close()
	}
	context.AfterFunc(ctx, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.body == body {
			t.body = nil // the connection is kept, what the body belongs to is not
		}
	})
}

type bodyKey struct{}

// WithBody says what a proxied request's body is, which ends with the connection that it is sent on. The
// library hides the body that it was given from its transport.
func WithBody(ctx context.Context, body io.Closer) context.Context {
	return context.WithValue(ctx, bodyKey{}, body)
}

// ownTrace is the context of a request for net/http's transport.
func ownTrace(ctx context.Context) context.Context {
	own := untraced{ctx}
	body, ok := ctx.Value(bodyKey{}).(io.Closer)
	if !ok {
		return own
	}
	return httptrace.WithClientTrace(own, &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
		conn := i.Conn
		if over, ok := conn.(*tls.Conn); ok {
			conn = over.NetConn()
		}
		if t, ok := conn.(*tracked); ok {
			t.carry(ctx, body)
		}
	}})
}
