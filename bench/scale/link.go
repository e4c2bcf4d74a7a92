package scale

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"sync"

	"github.com/quorate/quorate/bench/client"
)

// link is a connection to a node, which is opened again when it is gone: servers close
// connections that are idle for a time, as most are while one client lists a hundred thousand
// objects. It is safe for concurrent use.
type link struct {
	node client.Node
	tls  *tls.Config

	mu   sync.Mutex // whoever needs the connection waits while another one opens it
	conn *client.Conn
}

func openLink(ctx context.Context, node client.Node, config *tls.Config) (*link, error) {
	l := &link{node: node, tls: config}
	_, err := l.usable(ctx)
	return l, err
}

// usable is the connection, or a new one.
func (l *link) usable(ctx context.Context) (*client.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil && l.conn.Usable() {
		return l.conn, nil
	}
	conn, err := l.node.Dial(ctx, l.tls)
	if err != nil {
		return nil, err
	}
	l.conn = conn // the old one ends with the requests that are under way on it
	return conn, nil
}

// Open is that of the connection.
func (l *link) Open(ctx context.Context, req client.Request) (*http.Response, error) {
	conn, err := l.usable(ctx)
	if err != nil {
		return nil, err
	}
	return conn.Open(ctx, req)
}

// Do is that of the connection.
func (l *link) Do(ctx context.Context, req client.Request, buf *bytes.Buffer) (http.Header, error) {
	conn, err := l.usable(ctx)
	if err != nil {
		return nil, err
	}
	return conn.Do(ctx, req, buf)
}

// closeLinks closes all of them.
func closeLinks(links []*link) error {
	var errs []error
	for _, l := range links {
		l.mu.Lock()
		errs = append(errs, l.conn.Close())
		l.mu.Unlock()
	}
	return errors.Join(errs...)
}
