package aggregator

import (
	"bufio"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/quorate/quorate/apiserver/access/auth"
	utilproxy "k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/client-go/transport"
	"k8s.io/streaming/pkg/httpstream"
)

// hopHeader marks a request that has come through this package. One that comes in with it and would go
// to an aggregated server again is in a circle: an APIService that names this API as its server.
const hopHeader = "X-Quorate-Aggregated"

const (
	// upgradeTimeout bounds how long a server may take to answer that it changes the protocol.
	upgradeTimeout = 30 * time.Second
	// maxUpgradeAnswer bounds that answer, in bytes of the connection.
	maxUpgradeAnswer = 1 << 20
)

// Request is one that goes to another server.
type Request struct {
	User *auth.User
	// Ended answers a request whose context has ended before the server has said anything, and not by its client.
	// cause is the context's.
	Ended func(cause error)
}

// Serve has a request answered by the server of an APIService. w takes the answer; it must be an
// http.Hijacker for requests that change the protocol. The request's context bounds all of it.
// It panics with http.ErrAbortHandler if the answer breaks.
func (a *Aggregator) Serve(w http.ResponseWriter, r *http.Request, to *Remote, about Request) {
	switch {
	case r.Header.Get(hopHeader) != "":
		a.cfg.Log.Warn("a request for an aggregated API server has come back to this API", "apiservice", to.Name)
		http.Error(w, "service unavailable: the APIService leads back to this API", http.StatusServiceUnavailable)
		return
	case !to.usable():
		http.Error(w, "service unavailable", http.StatusServiceUnavailable)
		return
	case to.server.err != nil:
		http.Error(w, to.server.err.Error(), http.StatusInternalServerError)
		return
	case strange(r.URL.Path):
		http.NotFound(w, r)
		return
	}
	host, err := a.cfg.Resolve(r.Context(), to.server.namespace, to.server.name, to.server.port)
	if err != nil {
		a.cfg.Log.Debug("cannot resolve the Service of an APIService", "apiservice", to.Name, "err", err)
		http.Error(w, "service unavailable", http.StatusServiceUnavailable)
		return
	}
	location := &url.URL{Scheme: "https", Host: host, Path: r.URL.Path, RawQuery: r.URL.Query().Encode()}
	out := r.Clone(r.Context())
	out.URL, out.Host = location, host
	upgrades := httpstream.IsUpgradeRequest(r) // as the library sees it
	auth.Forward(out.Header, upgrades)
	if id := w.Header().Get("Audit-Id"); id != "" {
		out.Header.Set("Audit-Id", id)
	}
	forward(out.Header, r)
	setUser(out, about.User)
	answer := &answering{ResponseWriter: w, log: a.cfg.Log}
	var by http.RoundTripper = &roundTripper{Transport: to.server.transport, w: w}
	if upgrades {
		by = answer.dialing(to.server)
	}
	h := utilproxy.NewUpgradeAwareHandler(location, by, false, upgrades, responder{about.Ended})
	h.RejectForwardingRedirects = !a.cfg.ForwardRedirects
	h.ServeHTTP(answer, out)
}

// strange reports whether a server could take a path for another one than was authorized here.
func strange(path string) bool {
	for part := range strings.SplitSeq(strings.TrimSuffix(path[1:], "/"), "/") {
		if part == "" || part == "." || part == ".." {
			return true
		}
	}
	return false
}

// forward says what was asked of this server.
func forward(h http.Header, r *http.Request) {
	h.Set("X-Forwarded-Uri", r.URL.Path)
	if r.Host != "" {
		h.Set("X-Forwarded-Host", r.Host)
	}
	h.Set("X-Forwarded-Proto", "https")
	h.Set(hopHeader, "1")
}

// setUser says who asks, in the place of what a client says.
func setUser(r *http.Request, u *auth.User) {
	for name := range r.Header {
		if strings.HasPrefix(strings.ToLower(name), "x-remote-") {
			delete(r.Header, name)
		}
	}
	transport.SetAuthProxyHeaders(r, u.Name, u.UID, u.Groups, u.Extra)
}

// roundTripper sends requests, and takes from answers what this server has said itself.
type roundTripper struct {
	*http.Transport
	w http.ResponseWriter
}

// untraced is a context that tells nobody of a server's informational answers: they are none of
// this server's, and the library would clear the headers of the answer for each.
type untraced struct{ context.Context }

// Value implements context.Context.
func (untraced) Value(any) any { return nil }

// RoundTrip implements http.RoundTripper.
func (t *roundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := t.Transport.RoundTrip(r.WithContext(untraced{r.Context()}))
	if err != nil {
		return nil, err
	}
	if cause := context.Cause(r.Context()); cause != nil {
		// Some servers answer when they see that their connection ends. This request has ended before.
		res.Body.Close()
		return nil, cause
	}
	res = auth.Backward(res)
	ours := t.w.Header()
	for name := range res.Header {
		if name != "Warning" {
			delete(ours, name)
		}
	}
	return res, nil
}

// responder answers for a server that has not.
type responder struct{ ended func(cause error) }

// Error implements proxy.ErrorResponder.
func (s responder) Error(w http.ResponseWriter, r *http.Request, err error) {
	if cause := context.Cause(r.Context()); cause != nil && !errors.Is(cause, context.Canceled) && s.ended != nil {
		s.ended(cause)
		return
	}
	http.Error(w, "error trying to reach service: "+err.Error(), http.StatusServiceUnavailable)
}

// answering is the client as the library sees it.
type answering struct {
	http.ResponseWriter
	log *slog.Logger

	mu   sync.Mutex
	conn *upgraded // to the server, of a request that changes the protocol; guarded by mu
}

// Flush implements http.Flusher.
func (a *answering) Flush() { _ = http.NewResponseController(a.ResponseWriter).Flush() }

// Unwrap lets http.ResponseController find the connection.
func (a *answering) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// Hijack implements http.Hijacker: the server has answered, and both ends may take their time now.
func (a *answering) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	hijacker, ok := a.ResponseWriter.(http.Hijacker)
	if !ok {
		return nil, nil, errors.New("the connection cannot change its protocol")
	}
	a.mu.Lock()
	conn := a.conn
	a.mu.Unlock()
	if conn != nil {
		conn.answered()
	}
	return hijacker.Hijack()
}

// dialing is a transport for one request that changes the protocol. Its connection ends with the
// request's context, and the answer to the change is bounded.
func (a *answering) dialing(s *server) http.RoundTripper {
	t := &http.Transport{TLSClientConfig: s.tls}
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := s.transport.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		if err := conn.SetDeadline(time.Now().Add(upgradeTimeout)); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		u := &upgraded{Conn: conn, left: maxUpgradeAnswer}
		u.stop = context.AfterFunc(ctx, func() { _ = conn.Close() })
		a.mu.Lock()
		a.conn = u
		a.mu.Unlock()
		return u, nil
	}
	return t
}

// upgraded is a connection to a server that changes the protocol.
type upgraded struct {
	net.Conn
	stop func() bool

	mu    sync.Mutex
	left  int // bytes that it may still send; guarded by mu
	freed bool
}

var errUpgradeAnswer = errors.New("the server's answer to the change of the protocol is too long")

// Read implements io.Reader.
func (u *upgraded) Read(b []byte) (int, error) {
	n, err := u.Conn.Read(b)
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.freed {
		if u.left -= n; u.left < 0 {
			return 0, errUpgradeAnswer
		}
	}
	return n, err
}

// answered lifts the bounds.
func (u *upgraded) answered() {
	u.mu.Lock()
	u.freed = true
	u.mu.Unlock()
	_ = u.Conn.SetDeadline(time.Time{}) // it is a network connection
}

// Close implements io.Closer.
func (u *upgraded) Close() error {
	u.stop()
	return u.Conn.Close()
}
