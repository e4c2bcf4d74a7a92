package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// Link is a way to a node: a connection, and another one when that is gone. Servers close
// connections that are idle for a time, and nodes end. Requests wait for a connection that is being
// opened; a failure is that of all who wait for it, and the next request tries again.
// It is safe for concurrent use; Close comes behind the last of the others.
type Link struct {
	node   Node
	config *tls.Config
	token  string        // of all connections
	within time.Duration // for opening a connection

	mu      sync.Mutex // guards what follows
	conn    *Conn
	old     []*Conn // those that are gone, but for requests under way
	opening *opening
}

// opening is a connection that is being opened.
type opening struct {
	done chan struct{} // closed when conn or err is there
	conn *Conn
	err  error
}

// NewLink is a link that opens its first connection for its first request. Opening one may take as
// long as within says.
func NewLink(node Node, config *tls.Config, within time.Duration) *Link {
	return &Link{node: node, config: config, within: within}
}

// Authorize sends a bearer token with each request. It comes before the first one.
func (l *Link) Authorize(token string) { l.token = token }

// Conn returns a connection that takes requests.
func (l *Link) Conn(ctx context.Context) (*Conn, error) {
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
func (l *Link) open(o *opening) {
	ctx, cancel := context.WithTimeout(context.Background(), l.within)
	defer cancel()
	if o.conn, o.err = l.node.Dial(ctx, l.config); o.err == nil {
		o.conn.Authorize(l.token)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil {
		l.old = append(l.old, l.conn)
	}
	l.conn, l.opening = o.conn, nil
	close(o.done)
}

// Open is that of the connection.
func (l *Link) Open(ctx context.Context, r Request) (*http.Response, error) {
	conn, err := l.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return conn.Open(ctx, r)
}

// Do is that of the connection.
func (l *Link) Do(ctx context.Context, r Request, buf *bytes.Buffer) (http.Header, error) {
	conn, err := l.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return conn.Do(ctx, r, buf)
}

// Close closes all connections. Its error is that of the last one: those before it were gone.
func (l *Link) Close() error {
	l.mu.Lock()
	o := l.opening
	l.mu.Unlock()
	if o != nil {
		<-o.done
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = CloseAll(l.old)
	if l.conn == nil {
		return nil
	}
	return l.conn.Close()
}

// CloseLinks closes all of them.
func CloseLinks(links []*Link) error {
	var errs []error
	for _, l := range links {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// Admin sends requests that are no part of what is measured, over links of its own.
type Admin struct {
	Links  []*Link // one to each server
	Within time.Duration
}

// Admin is one of the cluster.
func (c Cluster) Admin(within time.Duration) *Admin {
	a := &Admin{Within: within}
	for _, n := range c.Servers() {
		a.Links = append(a.Links, c.Link(n, within))
	}
	return a
}

// Link is a way to a node, which sends the cluster's token.
func (c Cluster) Link(n Node, within time.Duration) *Link {
	l := NewLink(n, c.TLS, within)
	l.Authorize(c.Token)
	return l
}

// Do sends a request to a server.
func (a *Admin) Do(ctx context.Context, server int, method, path string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, a.Within)
	defer cancel()
	header := JSONBody
	if method == http.MethodPatch {
		header = MergeBody
	}
	var answer bytes.Buffer
	_, err := a.Links[server].Do(ctx, Request{Method: method, Path: path, Header: header, Body: body}, &answer)
	return answer.Bytes(), err
}

// Any sends a request to the first server that answers it with success.
func (a *Admin) Any(ctx context.Context, method, path string, body []byte) (answer []byte, err error) {
	err = errors.New("no server")
	for i := 0; i < len(a.Links) && err != nil; i++ {
		answer, err = a.Do(ctx, i, method, path, body)
	}
	return answer, err
}

// Remove deletes what is at paths, one after the other, through any server. What is not there is no error. A deletion of
// more than the history lasts for ends with 410 and has deleted what it has come to: it goes on.
func (a *Admin) Remove(ctx context.Context, paths ...string) error {
	var errs []error
	for _, path := range paths {
		_, err := a.Any(ctx, http.MethodDelete, path, nil)
		for Refused(err, http.StatusGone) {
			_, err = a.Any(ctx, http.MethodDelete, path, nil)
		}
		if err != nil && !Refused(err, http.StatusNotFound) {
			errs = append(errs, fmt.Errorf("%s is left behind: %w", path, err))
		}
	}
	return errors.Join(errs...)
}

// Close closes the links.
func (a *Admin) Close() { _ = CloseLinks(a.Links) } // nothing is sent any more
