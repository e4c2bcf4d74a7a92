package apiserver

import (
	"context"
	"math/rand/v2"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/wire/request"
	"github.com/quorate/quorate/apiserver/wire/status"
	"github.com/quorate/quorate/consistency"
	"github.com/quorate/quorate/proto"
)

// door is the way of a request that the server routes, step by step. A step returns false
// if it has answered: then the request ends there.
var door = [...]func(c *call) bool{
	(*call).checkTimeoutParameter, // before anybody is asked who they are, and on every path, as upstream
	(*call).authenticate,
	(*call).impersonate,
	(*call).enterFairness, // refusals of authorization take their turn, too: they cost as much
	(*call).authorize,
	(*call).serveMounted, // what is no resource ends here
	(*call).enterInflight,
	(*call).bound,
	(*call).dispatch,
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{ResponseWriter: w, s: s, cfg: &s.cfg, r: r, Op: objects.NewOp(objects.Request{Store: s.objects, Context: r.Context(), Start: time.Now(), Client: true})}
	s.setHeaders(c)
	// Counted first: a request that Drain does not count has seen the shutdown flag.
	s.active.Add(1)
	defer s.active.Add(-1)
	if s.shutdown.Load() {
		c.refuseShutdown()
		return
	}
	if !s.cfg.ResponseCompression {
		r.Header.Del("Accept-Encoding")
	}
	if !c.Info.Parse(r) {
		c.Info = request.Info{Path: r.URL.Path, Verb: strings.ToLower(r.Method)} // it is no resource's
		c.audited()
		status.PlainNotFound(c, r)
		c.audit.end(c.code, c.Header(), nil)
		return
	}
	c.classify(s.cfg.Kinds())
	s.cfg.Observer.RequestStarted(&c.Kind)
	defer c.finish()
	for _, step := range door {
		if !step(c) {
			return
		}
	}
}

// finish gives back what the request holds, contains a panic, and tells the observer.
func (c *call) finish() {
	p := recover()
	defer c.ticket.Release()
	c.computing.turn.End()
	c.within.end()
	c.room.giveBack()
	if c.limiter != nil {
		c.limiter.leave(c.room.held)
	}
	c.pace.stop()
	if p != nil {
		c.contain(p)
	}
	c.done()
}

// contain answers for a handler that panicked. Where part of an answer is out it does not
// return: the client must see that it is cut.
func (c *call) contain(p any) {
	c.audit.Panicked(p)
	c.audit.Event = nil
	if p == http.ErrAbortHandler {
		c.done()
		panic(p)
	}
	c.cfg.Observer.Panicked(&c.Kind)
	c.cfg.Log.Error("panic in a request", "panic", p, "method", c.r.Method, "path", c.r.URL.Path, "stack", string(debug.Stack()))
	if c.code != 0 {
		c.done()
		panic(http.ErrAbortHandler)
	}
	http.Error(c, "This request caused apiserver to panic. Look in the logs for details.", http.StatusInternalServerError)
}

// refuseShutdown answers what arrives during the shutdown.
func (c *call) refuseShutdown() {
	c.Header().Set("Connection", "close")
	if c.cfg.ShutdownSendRetryAfter {
		status.PlainTooManyRequests(c, shutdownRetry)
		return
	}
	c.fail(status.ShuttingDown())
}

// checkTimeoutParameter refuses a timeout parameter that is none. Long-running requests have none.
func (c *call) checkTimeoutParameter() bool {
	if c.Kind.LongRunning {
		return true
	}
	timeout, _ := request.Parameter(c.r.URL.RawQuery, "timeout")
	if _, err := request.ParseTimeout(timeout); err != nil {
		c.audited() // as upstream: by nobody, who asks is not known yet
		c.fail(err)
		return false
	}
	return true
}

// shutdownRetry is how many seconds a client is asked to wait during a shutdown.
const shutdownRetry = 5

func (s *Server) setHeaders(c *call) {
	r, h := c.r, c.Header()
	id := r.Header.Get("Audit-Id")
	if id == "" {
		id = uuid.NewString()
	}
	h["Audit-Id"] = c.values.set(valueAudit, id)
	h["Cache-Control"] = noCache
	if chance := s.cfg.GoawayChance; chance > 0 && r.ProtoMajor == 2 && rand.Float64() < chance {
		h["Connection"] = []string{"close"} // package h2 makes a GOAWAY of it
	}
}

// setNodeHeaders says which node answers, and whether it leads. Who is nobody does not need
// to know which node to attack.
func (c *call) setNodeHeaders() {
	h := c.Header()
	h[HeaderNode] = c.s.nodeName
	role := c.cfg.Store.Role()
	if h[HeaderRole] = roles[role]; h[HeaderRole] == nil {
		h[HeaderRole] = []string{role}
	}
}

// Values of headers that all answers share. Nobody writes to them.
var (
	noCache = []string{"no-cache, private"}
	roles   = map[string][]string{"leader": {"leader"}, "follower": {"follower"}, "nonvoter": {"nonvoter"}}
)

// classify finds the resource and what the request is counted under. Names that
// the server does not know are left out there.
func (c *call) classify(registry *kinds.Registry) {
	i := &c.Info
	if c.remote = remoteOf(c.cfg.Aggregator, i); c.remote != nil {
		c.Kind = remoteKind(i, c.r)
		return
	}
	c.Kind = request.Kind{Verb: i.Verb, Component: "apiserver"}
	if !i.IsResource {
		c.Kind.Subresource = request.FirstSegment(i.Path)
		c.Kind.LongRunning = c.cfg.LongRunning != nil && c.cfg.LongRunning(i.Path)
		return
	}
	c.Resource = registry.Lookup(i.GVR())
	if c.Resource == nil {
		return
	}
	if i.Subresource != "" {
		c.Subresource = c.Resource.Subresource(i.Subresource)
	}
	c.Kind.Group, c.Kind.Version, c.Kind.Resource = i.Group, i.Version, i.Resource
	if c.Subresource != nil {
		c.Kind.Subresource = c.Subresource.Name
	}
	switch {
	case i.Name != "", i.Verb == "create":
		c.Kind.Scope = "resource"
	case i.Namespace != "":
		c.Kind.Scope = "namespace"
	default:
		c.Kind.Scope = "cluster"
	}
	c.Kind.LongRunning = i.Verb == "watch"
	if i.Verb == "patch" && c.isApply() {
		c.Kind.Verb = "apply"
	}
	if connectionOf(&c.Op) != nil {
		c.Kind.Verb, c.Kind.LongRunning = "connect", true
	}
}

func (c *call) done() {
	if c.code == 0 {
		c.leaveBody() // net/http answers for a handler that said nothing
	}
	c.audit.end(c.code, c.Header(), c.Resource)
	c.cfg.Observer.RequestDone(&c.Kind, request.End{
		Code: c.code, Duration: time.Since(c.Start), RequestBytes: c.bodySize, ResponseBytes: c.written,
	})
}

// enterInflight admits a request among those in flight. What takes as long as it takes is not counted:
// watches, and streams to nodes, Pods and aggregated API servers, which streamSet bounds. This
// server's own long-running paths are not among them: they have ended at serveMounted.
func (c *call) enterInflight() bool {
	if err := c.Context.Err(); err != nil {
		c.fail(err) // streams that are reset as soon as they are opened cost little
		return false
	}
	if c.Kind.LongRunning {
		return true
	}
	limiter := &c.s.reads
	if request.Mutates(c.Info.Verb) {
		limiter = &c.s.writes
	}
	urgent := urgent(&c.Op)
	held, ok := limiter.enter(c.r, urgent)
	if !ok {
		status.PlainTooManyRequests(c, retryRefused)
		return false
	}
	c.limiter, c.room = limiter, bodyRoom{s: c.s, user: c.User.Name, urgent: urgent, held: held}
	return true
}

// bound sets the request's deadline. What the request has waited counts. Long-running requests have none.
func (c *call) bound() bool {
	if c.Kind.LongRunning {
		return true
	}
	limit := c.cfg.Limits.Request
	if request.Mutates(c.Info.Verb) && c.Info.Verb != "deletecollection" && c.remote == nil {
		limit = c.cfg.Limits.Write
	}
	c.within.stream, c.within.at = c.Context, c.Start.Add(limit)
	c.within.turn = &c.computing.turn
	c.Context = &c.within
	return true
}

// urgentResources keep clusters alive: without renewed leases, nodes and leaders
// are given up.
var urgentResources = map[string]bool{"leases.coordination.k8s.io": true}

// urgent requests are still admitted when others are refused: deletes, which
// make room, and leases.
func urgent(o *objects.Op) bool {
	return o.Info.Verb == "delete" || o.Resource != nil && urgentResources[o.Resource.Table()]
}

// serveMounted serves the paths that are no resources, nor another server's.
func (c *call) serveMounted() bool {
	if c.Info.IsResource || c.remote != nil {
		return true
	}
	c.mounted()
	return false
}

func (c *call) mounted() {
	if c.Info.Path == "/" || c.Info.Path == "/index.html" {
		c.s.index(c, c.r)
		return
	}
	var h http.Handler
	switch request.FirstSegment(c.Info.Path) {
	case "/api", "/apis":
		h = c.cfg.Discovery
	case "/openapi":
		h = c.cfg.OpenAPI
	case "/version":
		h = c.cfg.Version
	case "/livez", "/readyz", "/healthz":
		h = c.cfg.Health
	case "/metrics":
		h = c.cfg.Metrics
	case "/flagz", "/statusz":
		h = c.cfg.ZPages
	case "/.well-known", "/openid":
		h = c.cfg.OpenID
	case "/quorate", "/debug":
		if c.cfg.Own != nil {
			c.own()
			return
		}
	}
	if h == nil {
		status.PlainNotFound(c, c.r)
		return
	}
	h.ServeHTTP(c, c.r.WithContext(auth.WithUser(c.Context, c.User)))
}

// own serves our own paths. Their handlers read bodies by themselves.
func (c *call) own() {
	if c.Kind.LongRunning {
		c.ticket.Release()
	}
	ctx := auth.WithUser(c.Context, c.User)
	if c.masked != nil {
		ctx = auth.WithImpersonator(ctx, c.masked.on, c.masked.as)
	}
	ctx = context.WithValue(ctx, againKey{}, func(ctx context.Context) (proto.Revision, error) {
		return c.await(ctx, consistency.Plan{Mode: consistency.MostRecent})
	})
	ctx = context.WithValue(ctx, laterKey{}, c.audit.later)
	r := c.r.WithContext(ctx)
	if r.ContentLength != 0 {
		p := c.pacedBody(c.deadline())
		defer p.stop()
		r.Body = pacedReader{r.Body, p}
	}
	c.cfg.Own.ServeHTTP(c, r)
}
