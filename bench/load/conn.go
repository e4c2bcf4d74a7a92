package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"

	"golang.org/x/net/http2"
)

// connections is how many connections the load comes over.
const connections = 8

// conn is one HTTP/2 connection to one server, used by several workers at once.
type conn struct {
	base url.URL
	h2   *http2.ClientConn
}

func dial(ctx context.Context, u *url.URL, config *tls.Config) (*conn, error) {
	d := tls.Dialer{NetDialer: &net.Dialer{}, Config: config}
	c, err := d.DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return nil, err
	}
	if p := c.(*tls.Conn).ConnectionState().NegotiatedProtocol; p != "h2" {
		return nil, errors.Join(fmt.Errorf("%s speaks %q, not HTTP/2", u.Host, p), c.Close())
	}
	// No compression: what is compared is the cost of the bytes themselves.
	t := &http2.Transport{DisableCompression: true}
	h2, err := t.NewClientConn(c)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &conn{base: url.URL{Scheme: u.Scheme, Host: u.Host}, h2: h2}, nil
}

func closeAll(conns []*conn) error {
	var errs []error
	for _, c := range conns {
		errs = append(errs, c.h2.Close())
	}
	return errors.Join(errs...)
}

// request is one call. Its fields may be shared between calls.
type request struct {
	method, path, query string
	header              http.Header
	body                []byte
}

var (
	plain     = http.Header{"Accept": {"application/json"}}
	jsonBody  = http.Header{"Accept": {"application/json"}, "Content-Type": {"application/json"}}
	mergeBody = http.Header{"Accept": {"application/json"}, "Content-Type": {"application/merge-patch+json"}}
)

// open sends the request and returns the answer's unread body.
func (c *conn) open(ctx context.Context, r request) (io.ReadCloser, error) {
	u := c.base
	u.Path, u.RawQuery = r.path, r.query
	req := (&http.Request{Method: r.method, URL: &u, Host: u.Host, Header: r.header}).WithContext(ctx)
	if r.body != nil {
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(r.body)), int64(len(r.body))
	}
	resp, err := c.h2.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 != 2 {
		msg, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		resp.Body.Close()
		return nil, &refusal{code: resp.StatusCode, message: fmt.Sprintf("%s %s: %s: %s", r.method, r.path, resp.Status, msg)}
	}
	return resp.Body, nil
}

// do sends the request and reads the whole answer into buf.
func (c *conn) do(ctx context.Context, r request, buf *bytes.Buffer) error {
	body, err := c.open(ctx, r)
	if err != nil {
		return err
	}
	defer body.Close()
	buf.Reset()
	_, err = buf.ReadFrom(body)
	return err
}

// refusal is an answer other than success.
type refusal struct {
	code    int
	message string
}

func (r *refusal) Error() string { return r.message }
