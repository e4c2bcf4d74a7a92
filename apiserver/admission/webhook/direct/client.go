package direct

import (
	"context"
	"crypto/tls"
	"errors"
	"math"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/apiserver/admission/answers"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

const (
	// maxIdle is how many connections of a webhook are kept that nobody uses, and maxIdleTime how
	// long. The time is that of upstream's client.
	maxIdle     = 100
	maxIdleTime = 90 * time.Second
	// sweepTime is how often they are looked at: nobody reads on them, who would see their end.
	sweepTime = 5 * time.Second
	// handshakeTime is that of upstream's client.
	handshakeTime = 10 * time.Second
	// shunTime is how long upstream's client alone is used after a connection could not be made
	// here: it may speak with those who have only HTTP/2.
	shunTime = time.Minute
)

// errHandshake has net/http's words.
var errHandshake = errors.New("net/http: TLS handshake timeout")

// Client sends reviews to one webhook. Safe for concurrent use. Nothing runs but a timer, as long
// as there are connections.
type Client struct {
	next   http.RoundTripper
	limits *answers.Limits
	route  atomic.Pointer[route]
	shun   atomic.Int64 // the time until then, in nanoseconds

	mu    sync.Mutex
	idle  []*conn // the one that was used last is the last one
	sweep *time.Timer
}

// route is how a webhook is reached.
type route struct {
	address    string
	tls        *tls.Config
	dial       func(ctx context.Context, network, address string) (net.Conn, error)
	path       string // of the request line
	host, rest string // header lines before and after that of the length
	// doubted says that the webhook has agreed on HTTP/2 with upstream's client, and has not answered in HTTP/1.1 yet. If it
	// does not agree on that either, it may know HTTP/2 alone. Most that do not agree know both: crypto/tls has such an
	// exception for servers that name h2 only, as those of controller-runtime.
	doubted atomic.Bool
}

// Transport puts a Client in front of the transport that upstream has made for a webhook, and
// bounds its answers.
func Transport(next http.RoundTripper, limits *answers.Limits) http.RoundTripper {
	return limits.Transport(&Client{next: next, limits: limits})
}

// Of is the Client in a chain of transports, nil if there is none.
func Of(t http.RoundTripper) *Client {
	for {
		switch of := t.(type) {
		case *Client:
			return of
		case utilnet.RoundTripperWrapper:
			t = of.WrappedRoundTripper()
		default:
			return nil
		}
	}
}

// RoundTrip implements http.RoundTripper: the answer to a review that was sent before is handed
// on, all else is sent by upstream's transport.
func (c *Client) RoundTrip(r *http.Request) (*http.Response, error) {
	if x, ok := r.Context().Value(exchangeKey{}).(*Exchange); ok && x.client == c && !x.replayed {
		x.replayed = true // what it asks again is another request
		if !x.unread {
			if r.Body != nil {
				_ = r.Body.Close() // a RoundTripper closes it
			}
			return x.response(r)
		}
		x.release(false)
		c.leave()
	}
	w, err := c.next.RoundTrip(r)
	if err == nil && w.StatusCode == http.StatusOK && c.route.Load() == nil && time.Now().UnixNano() > c.shun.Load() {
		made := learn(c.next, r)
		if made != nil {
			made.doubted.Store(w.ProtoMajor == 2)
		}
		c.route.Store(made)
	}
	return w, err
}

// WrappedRoundTripper implements upstream's RoundTripperWrapper.
func (c *Client) WrappedRoundTripper() http.RoundTripper { return c.next }

// learn is the way that a request of upstream's client has taken, nil if it has more to it than is
// done here: a proxy, credentials that may change, no check of the certificate, which upstream
// counts.
func learn(t http.RoundTripper, r *http.Request) *route {
	for {
		inner, ok := t.(utilnet.RoundTripperWrapper)
		if !ok {
			break
		}
		t = inner.WrappedRoundTripper()
	}
	base, ok := t.(*http.Transport)
	if !ok || base.TLSClientConfig == nil || base.TLSClientConfig.InsecureSkipVerify || base.DialContext == nil ||
		base.DialTLSContext != nil || base.DisableKeepAlives {
		return nil
	}
	if r.Method != http.MethodPost || r.URL.Scheme != "https" || r.URL.User != nil || r.Host != "" && r.Host != r.URL.Host {
		return nil
	}
	if base.Proxy != nil {
		if proxy, err := base.Proxy(r); err != nil || proxy != nil {
			return nil
		}
	}
	if r.URL.RawQuery != "" && !strings.HasPrefix(r.URL.RawQuery, "timeout=") {
		return nil
	}
	port := r.URL.Port()
	if port == "" {
		port = "443"
	}
	var lines strings.Builder
	for name, values := range r.Header {
		switch name {
		case "Accept", "Content-Type", "User-Agent":
		default:
			return nil
		}
		for _, v := range values {
			lines.WriteString(name + ": " + v + "\r\n")
		}
	}
	made := &route{
		address: net.JoinHostPort(r.URL.Hostname(), port), dial: base.DialContext, tls: base.TLSClientConfig.Clone(),
		path: r.URL.EscapedPath(), host: "Host: " + r.URL.Host + "\r\n", rest: lines.String(),
	}
	if made.path == "" {
		made.path = "/"
	}
	if !plain(made.path) || !plain(strings.TrimSuffix(made.host, "\r\n")) || !plain(strings.ReplaceAll(made.rest, "\r\n", "")) {
		return nil
	}
	made.tls.NextProtos = []string{"http/1.1"}
	made.tls.DynamicRecordSizingDisabled = true // a review is read as a whole
	if made.tls.ServerName == "" {
		made.tls.ServerName = r.URL.Hostname()
	}
	return made
}

// plain reports whether a text is printable ASCII, which needs no care in a head.
func plain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// take returns a connection that nobody uses and that its server has not ended, nil if there is
// none.
func (c *Client) take() *conn {
	for {
		c.mu.Lock()
		n := len(c.idle)
		if n == 0 {
			c.mu.Unlock()
			return nil
		}
		taken := c.idle[n-1]
		c.idle[n-1] = nil
		c.idle = c.idle[:n-1]
		c.mu.Unlock()
		if taken.quiet() {
			return taken
		}
		taken.end()
	}
}

// put keeps a connection for the next review.
func (c *Client) put(used *conn) {
	used.since = time.Now()
	c.mu.Lock()
	if len(c.idle) >= maxIdle {
		c.mu.Unlock()
		used.end()
		return
	}
	c.idle = append(c.idle, used)
	if c.sweep == nil {
		c.sweep = time.AfterFunc(sweepTime, c.endIdle)
	}
	c.mu.Unlock()
}

// endIdle ends the connections that were not used for a time, or that their server has ended.
func (c *Client) endIdle() {
	var ended []*conn
	c.mu.Lock()
	kept := c.idle[:0]
	for _, i := range c.idle {
		if time.Since(i.since) < maxIdleTime && i.quiet() {
			kept = append(kept, i)
		} else {
			ended = append(ended, i)
		}
	}
	clear(c.idle[len(kept):])
	if c.idle = kept; len(kept) == 0 {
		c.sweep = nil
	} else {
		c.sweep.Reset(sweepTime)
	}
	c.mu.Unlock()
	for _, e := range ended {
		e.end()
	}
}

// connect makes a connection. nil without an error: upstream's client is to try. Errors: the time is
// over.
func (c *Client) connect(ctx context.Context, r *route) (*conn, error) {
	raw, err := r.dial(ctx, "tcp", r.address)
	if err == nil {
		secured := tls.Client(raw, r.tls)
		limited, cancel := context.WithTimeout(ctx, handshakeTime)
		err = secured.HandshakeContext(limited)
		cancel()
		if err == nil {
			if made := newConn(secured); made != nil {
				if r.doubted.Load() && secured.ConnectionState().NegotiatedProtocol == "" {
					made.doubted = r
				}
				return made, nil
			}
			// Its dialer leads through a proxy or a tunnel, and will again: each try would be a
			// connection for nothing.
			_ = raw.Close() // nothing was said on it
			c.shun.Store(math.MaxInt64)
			c.route.Store(nil)
			return nil, nil
		}
		_ = raw.Close() // nothing was said on it
		if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
			return nil, errHandshake
		}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	c.leave()
	return nil, nil
}

// leave leaves the webhook to upstream's client for a time.
func (c *Client) leave() {
	c.shun.Store(time.Now().Add(shunTime).UnixNano())
	c.route.Store(nil)
}
