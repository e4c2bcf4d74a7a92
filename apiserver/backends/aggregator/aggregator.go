package aggregator

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/types/state"
	"github.com/quorate/quorate/internal/decoded"
	"github.com/quorate/quorate/raftstore/view"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// Table is where APIServices are stored.
var Table = kinds.BuiltinTable(apiregistrationv1.SchemeGroupVersion.WithResource("apiservices").GroupResource())

// Config of an Aggregator. Store, Builtin, Resolve and Certificate are required.
type Config struct {
	Store view.Store
	// Builtin are the resources that this server serves whatever an APIService says.
	Builtin *kinds.Registry
	// Resolve returns the address, host:port, of a Service.
	Resolve func(ctx context.Context, namespace, name string, port int32) (string, error)
	// Dial opens connections to servers. Default: Dial of this package.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Certificate is what this server shows to others, so that they believe what it says of its
	// users.
	Certificate func() *tls.Certificate
	// ForwardRedirects hands redirects of servers on to clients.
	ForwardRedirects bool
	// Look is how often Run looks for what is due. Default: a second.
	Look time.Duration
	// Log for what no client can be told. Default: slog.Default.
	Log *slog.Logger
}

// Aggregator knows where other servers' APIs are. It is safe for concurrent use. Asking takes no
// lock, unless an APIService has changed: see package view.
type Aggregator struct {
	cfg   Config
	view  *view.View[*remotes]
	state *state.State
	local map[apischema.GroupVersion]bool

	// generation counts what servers have said.
	generation atomic.Uint64
	discovered atomic.Pointer[Discovered]
	lost       *prometheus.CounterVec
	reading    chan struct{} // whose turn it is to read a large document
	room       *decoded.Room // for other answers that are decoded
}

// New returns the Aggregator of a store. It starts nothing: see Run.
func New(cfg Config) *Aggregator {
	if cfg.Dial == nil {
		cfg.Dial = Dial
	}
	if cfg.Look == 0 {
		cfg.Look = time.Second
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	a := &Aggregator{cfg: cfg, state: state.New(cfg.Store), local: map[apischema.GroupVersion]bool{}, lost: newLost(), reading: make(chan struct{}, 1), room: decoded.NewRoom(decoded.Most)}
	for _, r := range cfg.Builtin.All() {
		a.local[r.GroupVersion()] = true
	}
	a.view = view.New(cfg.Store, []string{Table}, a.follow)
	return a
}

// builtin reports whether a version is served here whatever an APIService says: nobody could mend one
// that takes roles, or APIServices themselves, away.
func (a *Aggregator) builtin(gv apischema.GroupVersion) bool { return gv.Group == "" || a.local[gv] }

// Of returns the server of a group version, nil if that is this one.
func (a *Aggregator) Of(group, version string) *Remote {
	if a == nil {
		return nil
	}
	now := a.view.Get()
	if len(now.of) == 0 {
		return nil
	}
	return now.of[apischema.GroupVersion{Group: group, Version: version}]
}

// Remotes are all APIServices with a Service, by name, also those that nothing is routed to. The
// slice is shared.
func (a *Aggregator) Remotes() []*Remote { return a.view.Get().all }
