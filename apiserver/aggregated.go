package apiserver

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/apiserver/access/rbac"
	"github.com/quorate/quorate/apiserver/backends/aggregator"
	"github.com/quorate/quorate/apiserver/wire/request"
	"github.com/quorate/quorate/apiserver/wire/status"
	"github.com/quorate/quorate/consistency"
	"k8s.io/streaming/pkg/httpstream"
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
	return request.Kind{Verb: i.Verb, Component: "aggregator", LongRunning: i.IsResource && i.Verb == "watch" || isStream(i, r)}
}

// isStream reports whether a request to an aggregated API server takes as long as it takes, beside watches. What
// is no resource never does.
func isStream(i *request.Info, r *http.Request) bool {
	return i.IsResource && (i.Verb == "proxy" || longRunning[i.Subresource] || wantsUpgrade(r))
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
func wantsUpgrade(r *http.Request) bool { return r.ProtoMajor == 1 && httpstream.IsUpgradeRequest(r) }

// aggregated has the request answered by another server. Who asks, and whether they may, was
// decided here.
func (c *call) aggregated() error {
	if err := request.CheckForwarded(c.r.URL.RawQuery); err != nil {
		return err
	}
	if request.Mutates(c.Info.Verb) || isStream(&c.Info, c.r) {
		// What was allowed is done by another server, which no entry of the log can refuse. Reads go on without a quorum.
		decide, cancel := context.WithTimeout(c.Context, c.cfg.Limits.Request)
		_, err := c.await(decide, consistency.Plan{Mode: consistency.MostRecent})
		cancel()
		if err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(c.Context)
	defer cancel()
	until := c.deadline()
	answer := &remoteAnswer{call: c}
	switch {
	case isStream(&c.Info, c.r):
		if wantsUpgrade(c.r) && c.r.ContentLength != 0 {
			return errUpgradeBody
		}
		s, err := c.s.streams.enter(c, ctx)
		if err != nil {
			return err
		}
		defer s.leave()
		s.begin()
		answer.stream, ctx, until = s, s.ctx, time.Time{}
	case c.Kind.LongRunning: // a watch
		leave, err := enterWatches(c, &c.s.aggregatedWatchShares)
		if err != nil {
			return err
		}
		defer leave()
		// Its seat was for the beginning. The end of this server is the end of it.
		defer context.AfterFunc(c.s.life, func() { cancel(); leaveClient(c.ResponseWriter) })()
		c.ticket.Release()
		c.allowedBy = rbac.Mark{}                                                      // it keeps a state
		_ = http.NewResponseController(c.ResponseWriter).SetWriteDeadline(time.Time{}) // only connections have deadlines
		until = time.Time{}
	default:
		var leave func()
		ctx, leave = answer.holdSeat(ctx)
		defer leave()
	}
	if !c.Info.IsResource {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, discoveryTimeout)
		defer stop()
		if wantsUpgrade(c.r) { // there is nothing to change to
			c.r.Header.Del("Connection")
			c.r.Header.Del("Upgrade")
		}
	}
	c.audit.keep = false // as upstream: what others' objects are is not known here
	r := c.r.WithContext(ctx)
	if r.Body != nil && r.ContentLength != 0 {
		p := c.pacedBody(until)
		defer p.stop()
		body := proxyBody(c, pacedReader{r.Body, p})
		defer body.Close()
		r.Body = body
	}
	c.cfg.Aggregator.Serve(answer, r, c.remote, aggregator.Request{User: c.User, Ended: func(cause error) {
		if errors.Is(cause, errAllWait) {
			c.cfg.Observer.RequestRefused(request.Mutates(c.Info.Verb), "aggregated")
			c.fail(status.TooMany(retryRefused))
			return
		}
		c.fail(status.Timeout())
	}})
	return nil
}

const (
	// seatElsewhere is how long a request that another server answers keeps its seat. Then it waits, or is copied: that takes
	// nothing of this server that seats are for.
	seatElsewhere = time.Second
	// maxElsewhere is how many requests of all users may be without a seat.
	maxElsewhere = 1024
)

// errAllWait ends a read that another server does not answer, because its user has enough of them.
var errAllWait = errors.New("too many requests wait for other servers")

// holdSeat has a request give its seat back if another server takes long for it, so that one that hangs does not keep
// everybody from this server. If its user has no place among those that wait, a read whose answer has not begun ends with
// errAllWait: its client may send it again. What the other server may have done keeps its seat.
// leave is called at its end.
func (a *remoteAnswer) holdSeat(ctx context.Context) (_ context.Context, leave func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	decided, entered := make(chan struct{}), false
	timer := time.AfterFunc(seatElsewhere, func() {
		defer close(decided)
		if entered = a.s.elsewhere.enter(a.User); entered {
			a.ticket.Release()
		} else if !request.Mutates(a.Info.Verb) && !a.begun.Load() {
			cancel(errAllWait)
		}
	})
	return ctx, func() {
		if !timer.Stop() {
			<-decided
			if entered {
				a.s.elsewhere.leave(a.User)
			}
		}
		cancel(nil)
	}
}

// remoteAnswer takes the answer of another server.
type remoteAnswer struct {
	*call
	stream *stream // of a request that may change the protocol
	begun  atomic.Bool
}

// WriteHeader implements http.ResponseWriter.
func (a *remoteAnswer) WriteHeader(code int) {
	a.begun.Store(true)
	a.call.WriteHeader(code)
}

// Hijack implements http.Hijacker.
func (a *remoteAnswer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if a.stream == nil {
		return nil, nil, errNoHijack
	}
	return a.stream.Hijack()
}
