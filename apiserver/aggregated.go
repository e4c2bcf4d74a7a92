package apiserver

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/apiserver/aggregator"
	"github.com/quorate/quorate/apiserver/rbac"
	"github.com/quorate/quorate/apiserver/request"
	"github.com/quorate/quorate/apiserver/status"
)

// discoveryTimeout bounds what an aggregated API server takes to say what it serves, as upstream.
const discoveryTimeout = 5 * time.Second

// remoteOf finds the aggregated API server that a request goes to; nil: none.
func remoteOf(a *aggregator.Aggregator, i *request.Info) *aggregator.Remote {
	switch {
	case a == nil:
		return nil
	case i.IsResource:
		return a.Of(i.Group, i.Version)
	default:
		return remoteOfPath(a, i.Path)
	}
}

// remoteKind is what a request to an aggregated API server is counted under. What such a server calls
// its resources is left out: nobody bounds these names.
func remoteKind(i *request.Info, r *http.Request) request.Kind {
	long := i.IsResource && (i.Verb == "watch" || i.Verb == "proxy" || longRunning[i.Subresource]) || wantsUpgrade(r)
	return request.Kind{Verb: i.Verb, Component: "aggregator", LongRunning: long}
}

// longRunning are subresources of requests that take as long as they take, as upstream.
var longRunning = map[string]bool{"attach": true, "exec": true, "log": true, "portforward": true, "proxy": true}

// remoteOfPath is the server that a path other than a resource's belongs to: that of what a group
// version is, and of its OpenAPI document.
func remoteOfPath(a *aggregator.Aggregator, path string) *aggregator.Remote {
	rest, ok := strings.CutPrefix(strings.TrimPrefix(path, "/openapi/v3"), "/apis/")
	if !ok {
		return nil
	}
	group, version, ok := strings.Cut(strings.TrimSuffix(rest, "/"), "/")
	if !ok || strings.Contains(version, "/") {
		return nil
	}
	return a.Of(group, version)
}

// wantsUpgrade reports whether the request is to change the protocol of its connection, which HTTP/2 does
// not know.
func wantsUpgrade(r *http.Request) bool {
	if r.ProtoMajor != 1 {
		return false
	}
	for _, v := range r.Header["Connection"] {
		if strings.Contains(strings.ToLower(v), "upgrade") {
			return true
		}
	}
	return false
}

// aggregated has the request answered by another server. Who asks, and whether they may, was
// decided here.
func (c *call) aggregated() {
	ctx, cancel := context.WithCancel(c.Context)
	defer cancel()
	until := c.deadline()
	switch {
	case c.Kind.LongRunning:
		// Its seat was for the beginning. The end of this server is the end of it.
		defer context.AfterFunc(c.s.life, cancel)()
		c.ticket.Release()
		c.allowedBy = rbac.Mark{}                                                      // it keeps a state
		_ = http.NewResponseController(c.ResponseWriter).SetWriteDeadline(time.Time{}) // only connections have deadlines
		until = time.Time{}
	case !c.Info.IsResource:
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, discoveryTimeout)
		defer stop()
	}
	c.audit.keep = false // as upstream: what others' objects are is not known here
	r := c.r.WithContext(ctx)
	answer := &remoteAnswer{hijacked: hijacked{c}}
	if r.Body != nil && r.ContentLength != 0 {
		p := c.pacedBody(until)
		defer p.stop()
		r.Body = remoteBody{pacedReader{r.Body, p}, &answer.sent}
	}
	c.s.cfg.Aggregator.Serve(answer, r, c.remote, aggregator.Request{User: c.User, TimedOut: func() { c.fail(status.Timeout()) }})
}

// remoteAnswer takes the answer of another server.
type remoteAnswer struct {
	hijacked
	sent atomic.Bool // all of the body
}

// WriteHeader implements http.ResponseWriter.
func (a *remoteAnswer) WriteHeader(code int) {
	a.bodyRead = a.bodyRead || a.sent.Load()
	a.call.WriteHeader(code)
}

// remoteBody notes that the body has been sent to its end, by a goroutine of the transport.
type remoteBody struct {
	pacedReader
	sent *atomic.Bool
}

// Read implements io.Reader.
func (b remoteBody) Read(p []byte) (int, error) {
	n, err := b.pacedReader.Read(p)
	if err == io.EOF {
		b.sent.Store(true)
	}
	return n, err
}
