// Package client is the cheap HTTP client of the load programs: raw HTTP/2 over one
// connection per Conn, no pools, no retries, no compression. A program that
// measures a server on its own machine takes processor time from it; this one
// takes little. An error of the connection is an error of the request: who
// measures wants to see it.
package client

//lint:file-ignore SA1019 net/http's ClientConn dials by itself, and what was measured with this one could not be compared

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
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http2"
)

// Conn is one HTTP/2 connection to one server. It is safe for concurrent use.
type Conn struct {
	base url.URL
	// token, if there is one, is in each request.
	token string
	h2    *http2.ClientConn
}

// Dial connects to the host of u, with TLS if its scheme is https: then config must offer
// "h2". The path of u stands before those of all requests.
func Dial(ctx context.Context, u *url.URL, config *tls.Config) (*Conn, error) {
	c, err := dial(ctx, u, config)
	if err != nil {
		return nil, err
	}
	// No compression: what is compared is the cost of the bytes themselves.
	t := &http2.Transport{DisableCompression: true, AllowHTTP: true}
	h2, err := t.NewClientConn(c)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &Conn{base: url.URL{Scheme: u.Scheme, Host: u.Host, Path: strings.TrimSuffix(u.Path, "/")}, h2: h2}, nil
}

func dial(ctx context.Context, u *url.URL, config *tls.Config) (net.Conn, error) {
	port := u.Port()
	switch {
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("%s is not the address of a server: want https://HOST:PORT", u)
	case port == "":
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	at := net.JoinHostPort(u.Hostname(), port)
	if u.Scheme == "http" {
		return (&net.Dialer{}).DialContext(ctx, "tcp", at)
	}
	d := tls.Dialer{NetDialer: &net.Dialer{}, Config: config}
	c, err := d.DialContext(ctx, "tcp", at)
	if err != nil {
		return nil, err
	}
	if p := c.(*tls.Conn).ConnectionState().NegotiatedProtocol; p != "h2" {
		return nil, errors.Join(fmt.Errorf("%s speaks %q, not HTTP/2", u.Host, p), c.Close())
	}
	return c, nil
}

// Authorize sends a bearer token with each request from now on.
func (c *Conn) Authorize(token string) { c.token = token }

// Usable reports whether the connection takes requests: it is open, and the server has not
// said that it is about to close it.
func (c *Conn) Usable() bool {
	s := c.h2.State()
	return !s.Closed && !s.Closing
}

// Close closes the connection; requests under way fail.
func (c *Conn) Close() error { return c.h2.Close() }

// CloseAll closes all of them.
func CloseAll(conns []*Conn) error {
	var errs []error
	for _, c := range conns {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// Request is one call. Its fields may be shared between calls.
type Request struct {
	Method, Path, Query string
	Header              http.Header
	Body                []byte
}

// Headers of the usual requests. They are shared and must not be changed.
var (
	Plain     = http.Header{"Accept": {"application/json"}}
	JSONBody  = http.Header{"Accept": {"application/json"}, "Content-Type": {"application/json"}}
	MergeBody = http.Header{"Accept": {"application/json"}, "Content-Type": {"application/merge-patch+json"}}
	ApplyBody = http.Header{"Accept": {"application/json"}, "Content-Type": {"application/apply-patch+yaml"}}
)

// Open sends the request and returns the answer, whose body is unread. An answer
// other than 2xx is an error, a *Refusal.
func (c *Conn) Open(ctx context.Context, r Request) (*http.Response, error) {
	u := c.base
	u.Path, u.RawQuery = u.Path+r.Path, r.Query
	if c.token != "" {
		r.Header = r.Header.Clone()
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	req := (&http.Request{Method: r.Method, URL: &u, Host: u.Host, Header: r.Header}).WithContext(ctx)
	if r.Body != nil {
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(r.Body)), int64(len(r.Body))
	}
	resp, err := c.h2.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 != 2 {
		msg, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		resp.Body.Close()
		after, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		return nil, &Refusal{Code: resp.StatusCode, RetryAfter: time.Duration(after) * time.Second, message: fmt.Sprintf("%s %s: %s: %s", r.Method, r.Path, resp.Status, msg)}
	}
	return resp, nil
}

// Do sends the request, reads the whole answer into buf and returns its header.
func (c *Conn) Do(ctx context.Context, r Request, buf *bytes.Buffer) (http.Header, error) {
	resp, err := c.Open(ctx, r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	buf.Reset()
	_, err = buf.ReadFrom(resp.Body)
	return resp.Header, err
}

// Refusal is an answer other than success.
type Refusal struct {
	Code int
	// RetryAfter is what the server asks the client to wait; zero if it does not.
	RetryAfter time.Duration
	message    string
}

func (r *Refusal) Error() string { return r.message }
