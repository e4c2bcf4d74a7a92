package controllers

import (
	"log/slog"
	"net/netip"
	"time"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/access/fairness"
	"github.com/quorate/quorate/apiserver/backends/aggregator"
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/types/crd"
)

// Config is what a Manager needs besides the objects.
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

// Manager runs the controllers of one node. They change objects as requests do, by operations
// that decide here and are checked in the log; so a node that believes wrongly that it
// leads does no harm. Safe for concurrent use.
type Manager struct {
	objects *objects.Store
	cfg     Config
	// table are the controllers that there are.
	table []controller
}

// NewManager returns the manager of the controllers over objects. It starts nothing.
func NewManager(s *objects.Store, cfg Config) *Manager {
	if cfg.OrphanAge == 0 {
		cfg.OrphanAge = 2 * time.Minute
	}
	if cfg.Observer == nil {
		cfg.Observer = noObserver{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	return &Manager{objects: s, cfg: cfg, table: table}
}
