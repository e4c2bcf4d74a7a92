package controllers

import (
	"context"
	"log/slog"
	"net/netip"
	"time"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/access/fairness"
	"github.com/quorate/quorate/apiserver/backends/aggregator"
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/types/crd"
)

// Config is what Loops need besides the objects.
type Config struct {
	// Controllers are the names of those that run: what Select returns.
	Controllers []Name
	// Published returns a channel that is sent to after entries were applied, whatever
	// they changed, and a function that ends it. Capacity one.
	Published func() (<-chan struct{}, func())
	// Definitions are where custom resources come from. Nil: nothing accepts their names.
	Definitions *crd.Registry
	// FlowControl is the configuration of priority and fairness in this node's state. Nil:
	// nothing makes or repairs it.
	FlowControl *fairness.View
	// Servers says where the API is served. Without a List, nothing keeps the Service
	// kubernetes.
	Servers Servers
	// Members is the cluster whose members are shown as objects. Without Ask none are.
	Members Members
	// ServiceBlocks are the addresses of Services that the command line gives.
	ServiceBlocks []netip.Prefix
	// Roots are the certificates, in PEM, that vouch for the API: what the ConfigMap
	// kube-root-ca.crt of each namespace has. Empty: nothing makes or repairs it.
	Roots []byte
	// Authorizer says whose requests for certificates are approved.
	Authorizer auth.Authorizer
	// Signing is what certificates are signed with.
	Signing Signing
	// Joining is what machines are told that join as nodes of the cluster.
	Joining Joining
	// Aggregator knows of other servers' APIs. Nil: nothing says whether they are available.
	Aggregator *aggregator.Aggregator
	// Authentication is what aggregated API servers are told about whom to believe: the data of a
	// ConfigMap. Nil: nothing makes or repairs it.
	Authentication func() map[string]string
	// OrphanAge is how long an address or port may be nobody's before it is taken back:
	// requests that are still writing its object have ended long before. Default 2 min.
	OrphanAge time.Duration
	// Observer is told what becomes of the controllers. Default: nobody.
	Observer Observer
	// Log for what fails. Default: slog.Default.
	Log *slog.Logger
}

// Loops are the controllers of one node. They change objects as requests do, by operations
// that decide here and are checked in the log; so a node that believes wrongly that it
// leads does no harm. Safe for concurrent use.
type Loops struct {
	objects *objects.Store
	cfg     Config
	repair  claimRepair
	// table are the controllers that there are.
	table []controller
}

// NewLoops returns the controllers over objects. It starts nothing.
func NewLoops(s *objects.Store, cfg Config) *Loops {
	if cfg.OrphanAge == 0 {
		cfg.OrphanAge = 2 * time.Minute
	}
	if cfg.Observer == nil {
		cfg.Observer = noObserver{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	return &Loops{objects: s, cfg: cfg, table: table}
}

func (l *Loops) client() objects.Client { return objects.NewClient(l.objects) }

const (
	// coalesceDelay lets several changes be one.
	coalesceDelay = 50 * time.Millisecond
	// retryDelay is the pause after what failed.
	retryDelay = time.Second
)

// onChange calls step at once and whenever one of at most two tables may have changed,
// until ctx ends: coalesceDelay after the call before, however fast they change. Without a
// change it is called after retryDelay if the call before asked for another, and after
// period otherwise; zero is never. What cannot be done so keeps nothing else waiting. An
// error of step ends it.
func (l *Loops) onChange(ctx context.Context, tables []string, period time.Duration, step func() (again bool, err error)) error {
	var changed [2]<-chan struct{}
	for i, table := range tables {
		wake, stop, err := l.objects.WatchTable(table)
		if err != nil {
			return err
		}
		defer stop()
		changed[i] = wake
	}
	for {
		again, err := step()
		if err != nil {
			return err
		}
		if !pause(ctx, coalesceDelay) {
			return context.Cause(ctx)
		}
		var due <-chan time.Time
		switch {
		case again:
			due = time.After(retryDelay)
		case period > 0:
			due = time.After(period)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed[0]:
		case <-changed[1]:
		case <-due:
		}
	}
}

// pause waits, and reports whether ctx has not ended meanwhile.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// Users in whose name the node's own loops delete, or read at aggregated API servers: whom admission and aggregated API servers
// are told, and the audit log. Upstream's controllers are clients with these accounts.
var (
	asGarbageCollector    = ownUser("system:serviceaccount:kube-system:generic-garbage-collector", auth.ServiceAccountGroups("kube-system")...)
	asQuotaController     = ownUser("system:serviceaccount:kube-system:resourcequota-controller", auth.ServiceAccountGroups("kube-system")...)
	asNamespaceController = ownUser("system:serviceaccount:kube-system:namespace-controller", auth.ServiceAccountGroups("kube-system")...)
)

func ownUser(name string, groups ...string) *auth.User {
	return &auth.User{Name: name, Groups: append(groups, auth.Authenticated)}
}
