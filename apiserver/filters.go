package apiserver

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/quorate/quorate/apiserver/audit"
	"github.com/quorate/quorate/apiserver/auth"
	"github.com/quorate/quorate/apiserver/codec"
	"github.com/quorate/quorate/apiserver/fairness"
	"github.com/quorate/quorate/apiserver/kinds"
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/rbac"
	"github.com/quorate/quorate/apiserver/request"
	"github.com/quorate/quorate/apiserver/status"
	"github.com/quorate/quorate/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Names of our own response headers.
const (
	HeaderNode      = "X-Quorate-Node"
	HeaderRole      = "X-Quorate-Role"
	HeaderIndex     = "X-Quorate-Index"
	HeaderStaleness = "X-Quorate-Staleness" // milliseconds
)

// call is one request on its way from the filters to a verb. It is its own
// ResponseWriter, so that a request costs one allocation here.
type call struct {
	http.ResponseWriter
	objects.Op // what it does with objects; not a pointer, which would be a second allocation
	s          *Server
	r          *http.Request
	// allowedBy is what the request was allowed by, until the state that it reads is there.
	allowedBy rbac.Mark
	masked    *masked // nil: user has sent the request

	code      int
	written   int64
	bodySize  int64
	ticket    fairness.Ticket
	pace      *pace        // of the answer; nil until it is long
	held      int64        // bytes that the body is charged with
	bodyRead  bool         // nothing of the body is left on the connection
	counted   int64        // those of them that its user is charged with
	decoded   int64        // what it is charged with for the decoded body
	audit     *audit.Event // nil: not audited
	keep      bool         // the answer is kept for the audit log
	kept      []byte
	following bool // a watch that has begun: stalled.go looks after it
}

// begun notes the code of the answer when it begins.
func (c *call) begun(code int) {
	if c.code != 0 {
		return
	}
	c.code = code
	c.setWarnings()
	c.giveBack()
	c.leaveBody()
	if c.Kind.LongRunning {
		c.audit.Started(code)
	}
}

// setWarnings tells the client what is to be told besides the answer.
func (c *call) setWarnings() {
	if lines := c.Warnings(); lines != nil {
		c.Header()["Warning"] = lines
	}
}

// WriteHeader notes the code.
func (c *call) WriteHeader(code int) {
	c.begun(code)
	c.ResponseWriter.WriteHeader(code)
}

// Write counts.
func (c *call) Write(b []byte) (int, error) {
	c.begun(http.StatusOK)
	if c.keep {
		c.keepAnswer(b)
	}
	write := c.ResponseWriter.Write
	if c.written+int64(len(b)) > promptBytes && !c.following {
		write = c.pacedWrite
	}
	n, err := write(b)
	c.written += int64(n)
	return n, err
}

// Flush implements http.Flusher.
func (c *call) Flush() {
	c.begun(http.StatusOK)
	if f, ok := c.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// Unwrap lets http.ResponseController find the connection.
func (c *call) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{ResponseWriter: w, s: s, r: r, Op: objects.Op{Store: s.objects, Context: r.Context(), Start: time.Now(), Client: true}}
	s.setHeaders(w.Header(), r)
	// Counted first: who is not seen by Drain has seen the shutdown.
	s.active.Add(1)
	defer s.active.Add(-1)
	if s.shutdown.Load() {
		w.Header().Set("Connection", "close")
		if s.cfg.ShutdownTooMany {
			status.PlainTooManyRequests(c, shutdownRetry)
			return
		}
		c.fail(status.ShuttingDown())
		return
	}
	if s.cfg.NoCompression {
		r.Header.Del("Accept-Encoding")
	}
	if !c.Info.Parse(r) {
		status.PlainNotFound(c, r)
		return
	}
	c.classify(s.cfg.Kinds())
	s.cfg.Observer.RequestStarted(&c.Kind)
	defer c.ticket.Release()
	defer c.end()
	defer c.unpace()
	if err := c.askedTimeout(); err != nil {
		c.fail(err)
		return
	}
	if c.identify() && c.takeTurn() && c.authorize() {
		c.serve()
	}
}

// askedTimeout refuses a timeout parameter that is none, before anybody is asked who
// they are, and on every path, as upstream. Watches have none.
func (c *call) askedTimeout() error {
	if c.Kind.LongRunning || !strings.Contains(c.r.URL.RawQuery, "timeout=") {
		return nil
	}
	_, err := request.ParseTimeout(c.r.URL.Query().Get("timeout"))
	return err
}

// shutdownRetry is how many seconds a client is asked to wait during a shutdown.
const shutdownRetry = 5

func (s *Server) setHeaders(h http.Header, r *http.Request) {
	id := r.Header.Get("Audit-Id")
	if id == "" || len(id) > 128 {
		id = uuid.NewString()
	}
	h["Audit-Id"] = []string{id}
	h["Cache-Control"] = noCache
	if chance := s.cfg.GoawayChance; chance > 0 && r.ProtoMajor == 2 && rand.Float64() < chance {
		h["Connection"] = []string{"close"} // net/http makes a GOAWAY of it
	}
}

// introduce says which node answers, and whether it leads. Who is nobody does not need
// to know which node to attack.
func (c *call) introduce() {
	h := c.Header()
	h[HeaderNode] = []string{c.s.cfg.Store.NodeName()}
	h[HeaderRole] = []string{c.s.cfg.Store.Role()}
}

// noCache is shared by all responses; nobody writes to it.
var noCache = []string{"no-cache, private"}

// classify finds the resource and what the request is counted under. Names that
// the server does not know are left out there.
func (c *call) classify(registry *kinds.Registry) {
	i := &c.Info
	c.Kind = request.Kind{Verb: i.Verb, Component: "apiserver"}
	if !i.IsResource {
		c.Kind.Subresource = request.FirstSegment(i.Path)
		c.Kind.LongRunning = c.s.cfg.LongRunning != nil && c.s.cfg.LongRunning(i.Path)
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
	case i.Name != "":
		c.Kind.Scope = "resource"
	case i.Namespace != "":
		c.Kind.Scope = "namespace"
	default:
		c.Kind.Scope = "cluster"
	}
	c.Kind.LongRunning = i.Verb == "watch"
}

// end contains a panic and tells the observer.
func (c *call) end() {
	if p := recover(); p != nil {
		c.audit.Panicked(p)
		c.audit = nil
		if p == http.ErrAbortHandler {
			c.done()
			panic(p)
		}
		c.s.cfg.Observer.Panicked(&c.Kind)
		c.s.cfg.Log.Error("panic in a request", "panic", p, "method", c.r.Method, "path", c.r.URL.Path, "stack", string(debug.Stack()))
		if c.code != 0 {
			// Part of an answer is out: the client must see that it is cut.
			c.done()
			panic(http.ErrAbortHandler)
		}
		http.Error(c, "This request caused apiserver to panic. Look in the logs for details.", http.StatusInternalServerError)
	}
	c.done()
}

func (c *call) done() {
	if c.code == 0 {
		c.leaveBody() // net/http answers for a handler that said nothing
	}
	c.auditEnd()
	c.s.cfg.Observer.RequestDone(&c.Kind, request.End{
		Code: c.code, Duration: time.Since(c.Start), RequestBytes: c.bodySize, ResponseBytes: c.written,
	})
}

// identify finds out who asks, and as whom the request is to be served.
func (c *call) identify() bool {
	c.User = auth.AnonymousUser()
	if a := c.s.cfg.Authenticator; a != nil {
		u, err := a.Authenticate(c.r)
		if err != nil {
			c.s.unauthenticated.Warn(c.s.cfg.Log, "a credential does not hold", "from", c.r.RemoteAddr, "err", fmt.Sprintf("%.500s", err.Error()))
			c.partFrom()
			c.audited()
			c.fail(status.Unauthorized())
			return false
		}
		if c.User = u; u.Name == auth.Anonymous {
			c.partFrom()
		} else {
			c.introduce()
		}
	}
	c.Info.Selected = c.Info.SelectedName(c.r.URL.RawQuery)
	c.audited()
	if c.s.cfg.Roles != nil {
		c.allowedBy = c.s.cfg.Roles.Mark()
	}
	as := auth.Impersonation(c.r.Header)
	if as == nil {
		return true
	}
	u, err := auth.Impersonate(c.Context, c.s.cfg.Authorizer, c.User, c.r.Header)
	if err != nil {
		c.fail(err)
		return false
	}
	if c.audit != nil {
		c.audit.Impersonated(auditUser(u))
	}
	c.masked, c.User = &masked{c.User, as}, u
	return true
}

// partFrom ends the connection of a client that is nobody, after its answer.
func (c *call) partFrom() {
	if c.r.ProtoMajor == 2 && !c.s.cfg.KeepAnonymous {
		c.Header()["Connection"] = []string{"close"}
	}
}

// authorize comes after takeTurn, as upstream has it: refusals cost too.
func (c *call) authorize() bool {
	if err := c.decide(); err != nil {
		c.fail(err)
		return false
	}
	return true
}

// decide asks whether the user may do what is asked. The error is the refusal.
func (c *call) decide() error {
	attributes := c.Attributes()
	decision, reason, err := c.s.cfg.Authorizer.Authorize(c.Context, attributes)
	c.audit.Annotate(annotationReason, reason)
	switch {
	case decision == auth.Allow:
		c.audit.Annotate(annotationDecision, "allow")
		return nil
	case err != nil && decision == auth.NoOpinion:
		c.s.cfg.Log.Error("authorization is incomplete", "err", err, "user", c.User.Name)
	}
	c.audit.Annotate(annotationDecision, "forbid")
	c.Header().Set("X-Content-Type-Options", "nosniff")
	return auth.Forbidden(attributes, reason)
}

// serve admits, bounds in time, and hands over to the verb or a mounted handler.
func (c *call) serve() {
	if !c.Info.IsResource {
		c.mounted()
		return
	}
	if err := c.Context.Err(); err != nil {
		c.fail(err) // streams that are reset as soon as they are opened cost little
		return
	}
	if c.Info.Verb == "watch" {
		c.dispatch()
		return
	}
	limit, admit := c.s.cfg.Limits.Request, &c.s.reads
	if request.Mutates(c.Info.Verb) {
		admit = &c.s.writes
		if c.Info.Verb != "deletecollection" {
			limit = c.s.cfg.Limits.Write
		}
	}
	var ok bool
	if c.held, ok = admit.enter(c.r, c.urgent()); !ok {
		status.PlainTooManyRequests(c, retryRefused)
		return
	}
	defer func() { admit.leave(c.held) }()
	defer c.giveBack()
	// What the request has waited counts.
	ctx, cancel := context.WithDeadline(c.Context, c.Start.Add(limit))
	defer cancel()
	c.Context = ctx
	c.dispatch()
}

// urgentResources keep clusters alive: without renewed leases, nodes and leaders
// are given up.
var urgentResources = map[string]bool{"leases.coordination.k8s.io": true}

// urgent requests are still admitted when others are refused: deletes, which
// make room, and leases.
func (c *call) urgent() bool {
	return c.Info.Verb == "delete" || c.Resource != nil && urgentResources[c.Resource.Table()]
}

// mounted serves the paths that are no resources.
func (c *call) mounted() {
	if c.Info.Path == "/" || c.Info.Path == "/index.html" {
		c.index()
		return
	}
	var h http.Handler
	switch request.FirstSegment(c.Info.Path) {
	case "/api", "/apis":
		h = c.s.cfg.Discovery
	case "/openapi":
		h = c.s.cfg.OpenAPI
	case "/version":
		h = c.s.cfg.Version
	case "/livez", "/readyz", "/healthz":
		h = c.s.cfg.Health
	case "/metrics":
		h = c.s.cfg.Metrics
	case "/flagz", "/statusz":
		h = c.s.cfg.ZPages
	case "/.well-known", "/openid":
		h = c.s.cfg.OpenID
	case "/quorate", "/debug":
		if c.s.cfg.Own != nil {
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
	r := c.r.WithContext(auth.WithUser(c.Context, c.User))
	if r.ContentLength != 0 {
		p := c.pacedBody(c.deadline())
		defer p.stop()
		r.Body = pacedReader{r.Body, p}
	}
	c.s.cfg.Own.ServeHTTP(c, r)
}

// fail answers with an error's Status.
func (c *call) fail(err error) {
	var answer *metav1.Status
	if c.Resource != nil {
		answer = status.ForRequest(err, c.Info.Verb, c.Resource.GroupResource())
	} else {
		answer = status.From(err)
	}
	c.audit.Refused(answer)
	codec.WriteStatus(c, c.r, answer)
}

// read says which state an answer comes from.
func (c *call) read(at proto.Revision) {
	c.Header()[HeaderIndex] = []string{strconv.FormatUint(uint64(at), 10)}
}

// maxStaleness is beyond any bound that a node knows: it was not found current
// since it was started.
const maxStaleness = 100 * 365 * 24 * time.Hour

// stale says how old an Any answer may be, in milliseconds rounded up, since it is
// a bound, or that nothing is known about it.
func (c *call) stale() {
	text := "unknown"
	if d := c.s.cfg.Store.Staleness(); d < maxStaleness {
		text = strconv.FormatInt((d + time.Millisecond - 1).Milliseconds(), 10)
	}
	c.Header()[HeaderStaleness] = []string{text}
}
