package delivery

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/quorate/quorate/internal/loglimit"
	"github.com/quorate/quorate/raftstore/watch"
)

// Config of a Delivery. Zero values stand for the defaults.
type Config struct {
	// Behind reports whether watchers have not been told of everything that was applied, and
	// since when the oldest of that waits. Nil: nobody knows.
	Behind func() (since watch.Moment, behind bool)
	// Period is how often the canary looks. Default 2 s.
	Period time.Duration
	// Stall is how long an event may wait for this node before it counts as not delivered.
	// Default 10 s: within it those who hold a lease must renew it, as client-go has it.
	Stall time.Duration
	// Log is told of stalls. Default: slog.Default.
	Log *slog.Logger
}

// maxResources is how many resources are told apart; the others are one, "other".
const maxResources = 1024

// Delivery is how long events take on one node. Safe for concurrent use.
type Delivery struct {
	cfg   Config
	limit *loglimit.Limiter

	mu        sync.Mutex
	resources map[name]*Resource
	other     *Resource
	unwatched bool // there may be resources without watches
	stripe    atomic.Uint64

	found found
}

type name struct{ group, resource string }

// Resource is the histograms of one resource.
type Resource struct {
	group, resource string
	watches         int // guarded by Delivery.mu
	stripes         [stripes]stripe
}

// New returns a Delivery. Run is its canary.
func New(cfg Config) *Delivery {
	if cfg.Period <= 0 {
		cfg.Period = 2 * time.Second
	}
	if cfg.Stall <= 0 {
		cfg.Stall = 10 * time.Second
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	return &Delivery{cfg: cfg, limit: loglimit.New(time.Minute), resources: map[name]*Resource{}, other: &Resource{resource: "other"}}
}

// Add makes the stopwatch of a watch of a resource, which is served: clients must not
// invent names. Remove must be called.
func (d *Delivery) Add(group, resource string) *Watch {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := name{group, resource}
	r := d.resources[key]
	switch {
	case r != nil:
	case len(d.resources) < maxResources:
		r = &Resource{group: group, resource: resource}
		d.resources[key] = r
	default:
		r = d.other
	}
	r.watches++
	return &Watch{resource: r, stripe: &r.stripes[d.stripe.Add(1)%stripes]}
}

// Remove ends a stopwatch.
func (d *Delivery) Remove(w *Watch) {
	d.mu.Lock()
	defer d.mu.Unlock()
	w.resource.watches--
	d.unwatched = d.unwatched || w.resource.watches == 0
}

// Forget drops the histograms of resources that are served no more, once nobody watches
// them. changed says that served may have another answer than before.
func (d *Delivery) Forget(changed bool, served func(group, resource string) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !changed && !d.unwatched {
		return
	}
	d.unwatched = false
	for key, r := range d.resources {
		if r.watches == 0 && !served(r.group, r.resource) {
			delete(d.resources, key)
		}
	}
}

var (
	delayDesc = prometheus.NewDesc("quorate_watch_delivery_seconds",
		"Time of watch events since their log entry was handed to this node's state machine, until they were encoded, without waits for the client, and until the connection had taken them.",
		[]string{"stage", "group", "resource"}, nil)
	oldestDesc = prometheus.NewDesc("quorate_watch_oldest_undelivered_seconds",
		"How long the oldest watch event has waited that this node has not delivered, as of its last check, by what it waits for.",
		[]string{"waits_for"}, nil)
	stallsDesc = prometheus.NewDesc("quorate_watch_delivery_stalls_total",
		"Times that watch events began to wait too long, by what they waited for. Clients that do not take their events are not counted.",
		[]string{"waits_for"}, nil)
)

// Describe implements prometheus.Collector.
func (d *Delivery) Describe(ch chan<- *prometheus.Desc) {
	ch <- delayDesc
	ch <- oldestDesc
	ch <- stallsDesc
}

// Collect implements prometheus.Collector.
func (d *Delivery) Collect(ch chan<- prometheus.Metric) {
	d.mu.Lock()
	resources := make([]*Resource, 0, len(d.resources)+1)
	for _, r := range d.resources {
		resources = append(resources, r)
	}
	d.mu.Unlock()
	if d.other.used() {
		resources = append(resources, d.other)
	}
	for _, r := range resources {
		ch <- r.collect(delayDesc, "encoded", func(s *stripe) *counts { return &s.encoded })
		ch <- r.collect(delayDesc, "flushed", func(s *stripe) *counts { return &s.flushed })
	}
	d.found.collect(ch, d.cfg.Period)
}

// used reports whether anything was counted.
func (r *Resource) used() bool {
	for i := range r.stripes {
		if r.stripes[i].flushed.sum.Load() > 0 {
			return true
		}
	}
	return false
}
