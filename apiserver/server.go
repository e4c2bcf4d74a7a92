package apiserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/apiserver/access/audit"
	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/access/fairness"
	"github.com/quorate/quorate/apiserver/admission"
	"github.com/quorate/quorate/apiserver/backends/aggregator"
	"github.com/quorate/quorate/apiserver/backends/kubelet"
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/objects/builtin"
	"github.com/quorate/quorate/apiserver/objects/builtin/service"
	"github.com/quorate/quorate/apiserver/transport/delivery"
	"github.com/quorate/quorate/apiserver/transport/listener"
	"github.com/quorate/quorate/apiserver/types/conversion"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/wire/codec"
	"github.com/quorate/quorate/internal/collector"
	"github.com/quorate/quorate/internal/loglimit"
	"github.com/quorate/quorate/internal/slots"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
	"github.com/quorate/quorate/raftstore/view"
)

// Authenticator says who asks. *auth.Authentication satisfies it.
type Authenticator interface {
	// Authenticate returns the user, or an error that becomes 401.
	Authenticate(r *http.Request) (*auth.User, error)
}

// Config of a Server. Store, Reads and Kinds are required.
type Config struct {
	Store Store
	Reads objects.Reads
	// Kinds returns the resources that are served now. Called once per request.
	Kinds func() *kinds.Registry

	// Authenticator and Authorizer are the door. Without an authenticator
	// everybody is anonymous; without an authorizer auth.Default decides.
	Authenticator Authenticator
	Authorizer    auth.Authorizer
	// Roles says what may be granted by whom. Without it, writes of roles and
	// bindings are not checked for escalation.
	Roles builtin.Roles
	// PodsOfNodes has the Pods by the field spec.nodeName; without it the server makes its own.
	PodsOfNodes *view.FieldIndex
	// NodeAuthorizer says that the Authorizer lets kubelets do what their Pods need: what that is
	// cannot be listed (SelfSubjectRulesReview).
	NodeAuthorizer bool
	// Reviewer answers TokenReviews; without it none authenticates anybody. Tokens
	// issues the tokens of service accounts; without it that is refused (501).
	Reviewer builtin.TokenReviewer
	Tokens   builtin.Tokens

	// Handlers mounted behind the door. A nil one answers 404.
	Discovery http.Handler // /api, /apis and below, as far as they are no resources
	OpenAPI   http.Handler // /openapi
	Version   http.Handler // /version
	Health    http.Handler // /livez, /readyz, /healthz
	Metrics   http.Handler // /metrics
	OpenID    http.Handler // /.well-known/openid-configuration, /openid
	ZPages    http.Handler // /flagz, /statusz
	// Own serves what is not Kubernetes', below /quorate/ and /debug/. Its requests
	// have a user in their context, a deadline on their body, and no other bound in time.
	Own http.Handler
	// LongRunning says which of Own's paths take as long as they take: they give their
	// seats back when they begin. May be nil.
	LongRunning func(path string) bool

	// Aggregator knows which group versions other servers answer for. Nil: none. Its owner runs it.
	Aggregator *aggregator.Aggregator

	// ServiceBlocks are the addresses of Services, one block of a family or one of
	// each; the first is the default family's. Default: 10.0.0.0/24.
	ServiceBlocks []netip.Prefix
	// ServicePorts are the node ports of Services. Default: service.DefaultPorts.
	ServicePorts service.PortRange

	// Resolve returns the address, host:port, of a Service of the cluster, such as that of a
	// conversion webhook. Nil: no webhook can be named by its Service.
	Resolve func(ctx context.Context, namespace, name string, port int32) (string, error)
	// Dial connects to Services, and DialURL to conversion webhooks that a URL names. Nil: the network
	// of this host.
	Dial, DialURL func(ctx context.Context, network, address string) (net.Conn, error)

	// Kubelets is the way to nodes and Pods; its owner closes it. Nil: logs, exec and the like are not
	// served (501).
	Kubelets *kubelet.Client

	// ResponseCompression compresses long answers for clients that accept gzip.
	ResponseCompression bool
	// UnauthenticatedHTTP2DOSMitigation closes an HTTP/2 connection after a request that
	// nobody has authenticated. HTTP/2 makes it cheap to abuse a connection, and
	// connections are expensive to open.
	UnauthenticatedHTTP2DOSMitigation bool
	// GoawayChance is the fraction of HTTP/2 requests after which the client is asked
	// to connect again.
	GoawayChance float64
	// WatchList serves watches that begin with the state (sendInitialEvents). Without it
	// they are refused.
	WatchList bool
	// ShutdownSendRetryAfter answers what arrives during the shutdown with 429 instead of
	// 503; both say when to try again.
	ShutdownSendRetryAfter bool

	// Admission may change or refuse writes. Nil: nothing does, unless it is given to Objects before anything is
	// served, as by a node, whose plugins use these objects.
	Admission admission.Interface
	// NoQuorum is asked when a request has found no leader, and returns which voters are missing for a
	// quorum, or ""; it may wait a little to find out, if it is told so. Default: nothing.
	NoQuorum func(ctx context.Context, wait bool) string
	// StaticAdmission says that rules of admission may come from files: names with the suffix
	// of those cannot be written.
	StaticAdmission bool

	// Audit records requests. Nil: nothing is recorded. Its owner closes it.
	Audit *audit.Log

	// GarbageCollector says that something acts on the finalizers orphan and
	// foregroundDeletion. Without it, no deletion adds them: nobody would ever take
	// them off, and the object would stay terminating for good.
	GarbageCollector bool
	// EventTTL is how long objects of kinds that expire (Events) stay after their
	// last write. Default 1 h.
	EventTTL time.Duration

	// Fairness decides when requests may run. Its owner runs it. Without it, Limits.Reads and Limits.Writes bound the
	// requests in flight.
	Fairness *fairness.Controller

	// Delivery measures how long watches wait for their events; the server runs its canary,
	// and it is this server's alone. Default: one that nobody reads.
	Delivery *delivery.Delivery

	// Observer is told what happens. Default: nobody.
	Observer Observer
	// Log for panics and what no client can be told. Default: slog.Default.
	Log *slog.Logger
	// Now is the clock of creationTimestamp and the like. Default: time.Now.
	Now func() time.Time

	Limits Limits
}

// Limits bound what clients can make the server do. Zero values stand for the
// defaults.
type Limits struct {
	// Reads and Writes in flight; more get 429. Watches are not counted.
	// Default 400 and 200; negative: no bound. With Config.Fairness they count for
	// nothing.
	Reads, Writes int
	// WriteBytes bounds the bytes of the bodies of admitted requests. Default 256 MiB.
	WriteBytes int64
	// DecodedBytes bounds what requests take of memory for decoded bodies, by estimate; one user's
	// an eighth of it. What does not fit waits for up to 5 s. Default 256 MiB.
	DecodedBytes int64
	// Body of a request in bytes. Default 3 MiB.
	Body int64
	// BodyPause is how long a client may send nothing of a body that it has announced,
	// and how long the answer waits for the rest of a body that nobody needs. Default 10 s.
	BodyPause time.Duration
	// Object as it is stored, in bytes. Default 1.5 MiB, less what the log entry
	// needs around it.
	Object int
	// Request bounds requests that are not long-running, Write those that
	// change something. Default 60 s and 34 s.
	Request, Write time.Duration
	// Token bounds how long tokens of service accounts are valid. Default: not
	// bounded.
	Token time.Duration
	// WatchMin is the least that a watch without timeoutSeconds lives; at most
	// it is twice that. Default 30 min.
	WatchMin time.Duration
	// Bookmark is the time between bookmarks. Default 60 s.
	Bookmark time.Duration
	// Conversion bounds one call of a conversion webhook. Default 30 s.
	Conversion time.Duration
	// StalledWatch is how long one flush of a watch may take before its
	// connection is given up. Default 45 s.
	StalledWatch time.Duration
	// Streams bounds the requests that lead to nodes and Pods at a time: logs, exec, attach,
	// port-forward and proxies, and the same to aggregated API servers. One user may have half of what others leave, and the
	// service accounts of a namespace are one; administrators and kubelets have as many beside them. Default 2048.
	Streams int
	// Watches bounds the watches at a time. One user may have half of what others leave; those of administrators and of
	// the cluster's own components are not counted, and each kubelet has a sixteenth beside them, or 250. Default: as many as an
	// eighth of the memory holds that this process may take, and at least 1,000.
	Watches int
	// AggregatedWatches bounds the watches at aggregated API servers, each of which may take a connection, in the same way.
	// Default: as many as watches, and at most a quarter of the descriptors that this process may have.
	AggregatedWatches int
}

func (l *Limits) defaults() {
	set(&l.Reads, 400)
	set(&l.Writes, 200)
	set(&l.WriteBytes, 256<<20)
	set(&l.DecodedBytes, 8*codec.MaxCost)
	set(&l.Body, 3<<20)
	set(&l.BodyPause, 10*time.Second)
	set(&l.Object, proto.MaxEntryBytes-16<<10)
	set(&l.Request, 60*time.Second)
	set(&l.Write, 34*time.Second)
	set(&l.WatchMin, 30*time.Minute)
	set(&l.Bookmark, 60*time.Second)
	set(&l.Conversion, 30*time.Second)
	set(&l.StalledWatch, 45*time.Second)
	set(&l.Streams, 2048)
	set(&l.Watches, watchesWith(collector.Memory()))
	set(&l.AggregatedWatches, min(l.Watches, listener.Limit(l.Watches*3)/3))
}

const (
	// watchBytes is about what a watch holds.
	watchBytes = 64 << 10
	// minWatches are needed however little memory there is.
	minWatches = 1000
)

// watchesWith is how many watches there may be in a process that may take so many bytes.
func watchesWith(memory int64) int { return int(max(minWatches, memory/8/watchBytes)) }

func set[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

// Server is the API as an http.Handler. Safe for concurrent use.
type Server struct {
	cfg      Config
	nodeName []string // as a header's value
	reads    inflightLimiter
	writes   inflightLimiter
	decoding decoding
	watches  watchSet
	gone     goneResources
	// Places of watches, and of those at aggregated API servers.
	watchShares, aggregatedWatchShares shares
	elsewhere                          shares // of requests that other servers take long for
	streams                            streamSet
	slots                              *slots.Slots  // for what requests compute
	writers                            slots.Writers // of each object

	slowAnswers slowClients
	slowBodies  slowClients
	// objects decides and writes, for requests and for the node's own loops.
	objects  *objects.Store
	webhooks *conversion.Caller
	// watchers counts the watches that a write is sent to, by which writes are estimated.
	watchers fairness.Watchers

	// unauthenticated are the log lines about credentials that do not hold.
	unauthenticated *loglimit.Limiter

	// closing ends watches; closed once, by Shutdown.
	closing chan struct{}
	// abandoned ends watches without another word; closed once, by AbandonWatches.
	abandoned chan struct{}
	abandon   sync.Once
	// life ends with closing, for what takes a context.
	life     context.Context
	end      context.CancelFunc
	shutdown atomic.Bool
	active   atomic.Int64 // requests that are served
	once     sync.Once
	wg       sync.WaitGroup
}

// New returns a Server. Its Shutdown must be called.
func New(cfg Config) (*Server, error) {
	if cfg.Store == nil || cfg.Reads == nil || cfg.Kinds == nil {
		return nil, errors.New("apiserver: Store, Reads and Kinds are required")
	}
	cfg.Limits.defaults()
	if cfg.Observer == nil {
		cfg.Observer = noObserver{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Delivery == nil {
		cfg.Delivery = delivery.New(delivery.Config{Log: cfg.Log})
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if len(cfg.ServiceBlocks) == 0 {
		cfg.ServiceBlocks = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}
	}
	set(&cfg.ServicePorts, service.DefaultPorts)
	set(&cfg.EventTTL, time.Hour)
	if cfg.Authorizer == nil {
		cfg.Authorizer = auth.Default()
	}
	s := &Server{nodeName: []string{cfg.Store.NodeName()}, closing: make(chan struct{}), abandoned: make(chan struct{}), unauthenticated: loglimit.New(time.Second)}
	served := cfg.Kinds
	cfg.Kinds = func() *kinds.Registry {
		now := served()
		s.gone.see(now)
		return now
	}
	s.cfg = cfg
	s.life, s.end = context.WithCancel(context.Background())
	s.webhooks = conversion.NewCaller(conversion.Config{
		Resolve: cfg.Resolve, Dial: cfg.Dial, DialURL: cfg.DialURL, Timeout: cfg.Limits.Conversion,
		Observe: func(e conversion.Call) { cfg.Observer.Converted(&e) },
	})
	s.objects = objects.NewStore(objects.Config{
		Storage: cfg.Store, Reads: cfg.Reads, Kinds: cfg.Kinds, Authorizer: cfg.Authorizer, PodsOfNodes: cfg.PodsOfNodes,
		Strategies: builtin.Strategies(builtin.Config{
			Roles: cfg.Roles, NodeAuthorizer: cfg.NodeAuthorizer, Reviewer: cfg.Reviewer, Tokens: cfg.Tokens, MaxToken: cfg.Limits.Token,
			ServiceBlocks: cfg.ServiceBlocks, ServicePorts: cfg.ServicePorts, StaticAdmission: cfg.StaticAdmission,
		}), Custom: &builtin.Custom, Admission: cfg.Admission, Audit: cfg.Audit, WatchTable: s.watchTable,
		Webhooks: s.webhooks, Life: s.life,
		GarbageCollector: cfg.GarbageCollector, EventTTL: cfg.EventTTL,
		MaxObject: cfg.Limits.Object, MaxWrite: cfg.Limits.Write,
		Retried: cfg.Observer.WriteRetried, Panicked: cfg.Observer.Panicked, Log: cfg.Log, Now: cfg.Now,
	})
	if cfg.Fairness != nil {
		cfg.Limits.Reads, cfg.Limits.Writes = -1, -1
	}
	s.reads.init(false, cfg.Limits.Reads, 0, cfg.Observer)
	s.slowAnswers.limit, s.slowBodies.limit = slowAnswerBytes, cfg.Limits.WriteBytes/2
	s.writes.init(true, cfg.Limits.Writes, cfg.Limits.WriteBytes, cfg.Observer)
	s.slots = slots.NewSlots(cfg.Observer.WaitedForSlot)
	s.decoding.init(cfg.Limits.DecodedBytes, func() { cfg.Observer.RequestRefused(true, "decoding") })
	s.streams.shares = newShares(cfg.Limits.Streams, 1, max(1, cfg.Limits.Streams/2), 0)
	// Large clusters have thousands of kubelets with a dozen watches each, all at one node when the others are away.
	s.watchShares = newWatchShares(cfg.Limits.Watches)
	s.aggregatedWatchShares = newShares(cfg.Limits.AggregatedWatches, 1, cfg.Limits.AggregatedWatches, 0)
	s.elsewhere = newShares(min(maxElsewhere, cfg.Limits.AggregatedWatches), 1, 0, 0)
	s.wg.Go(func() { s.streams.watch(s.closing) })
	s.wg.Go(func() { s.watches.janitor(s.closing, cfg.Limits.StalledWatch) })
	s.wg.Go(func() { cfg.Delivery.Run(s.closing, s.watches.deliveries, s.forgetGone()) })
	return s, nil
}

// forgetGone returns what has the resources forgotten, in measures, that are not served any more.
func (s *Server) forgetGone() func() {
	return func() {
		now := s.cfg.Kinds()
		s.cfg.Delivery.Forget(now != s.gone.before, func(group, resource string) bool { return serves(now, group, resource) })
		s.gone.look(now, s.cfg.Observer)
	}
}

// Shutdown makes the server refuse new requests with 503 and ends all watches,
// each with a last bookmark if it asked for bookmarks, and what leads to nodes and Pods. It returns
// when they have ended or ctx has. Requests that are not long-running are the HTTP server's to
// wait for.
func (s *Server) Shutdown(ctx context.Context) error {
	s.once.Do(func() {
		s.shutdown.Store(true)
		close(s.closing)
		s.watches.poke()
		s.streams.close()
		s.end()
		s.webhooks.Close()
	})
	done := make(chan struct{})
	go func() {
		s.wg.Wait()
		s.watches.wait()
		s.streams.ended.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// AbandonWatches ends all watches without another event or bookmark: the state that they
// are told from is not the cluster's. A watch that begins later ends behind its initial
// events: the caller refuses requests first. It does not wait, and may be called at any
// time; Shutdown still must be called. Other requests go on.
func (s *Server) AbandonWatches() {
	s.abandon.Do(func() {
		close(s.abandoned)
		s.watches.poke()
	})
}

// isAbandoned reports whether AbandonWatches was called.
func (s *Server) isAbandoned() bool { return closed(s.abandoned) }

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// drainPoll is how often Drain looks.
const drainPoll = 10 * time.Millisecond

// Drain waits, after Shutdown, until no request is served any more or ctx ends.
func (s *Server) Drain(ctx context.Context) error {
	tick := time.NewTicker(drainPoll)
	defer tick.Stop()
	for s.active.Load() > 0 {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
	return nil
}

// Objects returns the objects without HTTP, for the node itself.
func (s *Server) Objects() *objects.Store { return s.objects }

// watchTable returns a channel that is sent to when a table may have changed, and a
// function that ends it.
func (s *Server) watchTable(table string) (<-chan struct{}, func(), error) {
	w, err := s.cfg.Store.Watch(table, s.cfg.Store.State().Applied(), mvcc.Interest{})
	if err != nil {
		return nil, nil, fmt.Errorf("watch %s: %w", table, err)
	}
	return w.Wake(), w.Close, nil
}
