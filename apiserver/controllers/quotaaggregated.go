package controllers

import (
	"context"
	"slices"
	"sync"

	"github.com/quorate/quorate/apiserver/backends/aggregator"
	"github.com/quorate/quorate/apiserver/types/quota"
	"github.com/quorate/quorate/apiserver/types/tree"
	"github.com/quorate/quorate/raftstore/mvcc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// outsideCounts counts the objects at aggregated API servers that quotas name. Their creation is
// not refused here: it is a request to another server, as upstream. Safe for concurrent use.
type outsideCounts struct {
	follow  aggregated
	changed chan struct{} // capacity one

	mu     sync.Mutex
	wanted map[schema.GroupResource]bool
	n      map[schema.GroupResource]map[string]int64 // by namespace
}

// newOutsideCounts returns nil if this server knows of no aggregated API servers.
func newOutsideCounts(a *aggregator.Aggregator, r *reports) (*outsideCounts, error) {
	if a == nil {
		return nil, nil
	}
	api, err := a.Metadata(asQuotaController)
	if err != nil {
		return nil, err
	}
	c := &outsideCounts{changed: make(chan struct{}, 1), n: map[schema.GroupResource]map[string]int64{}}
	c.follow = aggregated{
		api: api, serves: a.Resources, wants: c.wants, see: c.see, forget: c.forget,
		failed: func(of aggregator.Resource, err error) {
			r.failed("cannot count objects of an aggregated API server, retrying", "resource", of.GroupVersionResource.String(), "err", err)
		},
	}
	return c, nil
}

// start counts until ctx ends. The function that it returns waits for that.
func (c *outsideCounts) start(ctx context.Context) (wait func()) {
	if c == nil {
		return func() {}
	}
	return c.follow.start(ctx)
}

// woken receives when a count may have changed.
func (c *outsideCounts) woken() <-chan struct{} {
	if c == nil {
		return nil
	}
	return c.changed
}

func (c *outsideCounts) wants(r aggregator.Resource) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return r.Namespaced && c.wanted[r.GroupResource()]
}

// want says which resources quotas name.
func (c *outsideCounts) want(all map[schema.GroupResource]bool) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wanted = all
}

func (c *outsideCounts) see(of aggregator.Resource, was, is *metav1.PartialObjectMetadata) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.n[of.GroupResource()]
	if n == nil {
		n = map[string]int64{}
		c.n[of.GroupResource()] = n
	}
	if was != nil {
		if n[was.Namespace]--; n[was.Namespace] == 0 {
			delete(n, was.Namespace)
		}
	}
	if is != nil {
		n[is.Namespace]++
	}
	c.wake()
}

func (c *outsideCounts) forget(of aggregator.Resource) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.n, of.GroupResource())
	c.wake()
}

func (c *outsideCounts) wake() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// bounded are the resources of which a quota bounds the number of objects.
func bounded(spec tree.Object) (all []schema.GroupResource) {
	for _, name := range quota.Names(tree.As(spec["hard"])) {
		r, _ := quota.ResourceOf(name)
		if r.Amount != "" {
			r.Of = schema.GroupResource{}
		}
		all = append(all, r.Of)
	}
	return all
}

// add returns what is used of the bounds of a quota in a namespace, with the objects of aggregated
// API servers: of is what bounded says. It does not change used.
func (c *outsideCounts) add(namespace string, of []schema.GroupResource, used []mvcc.BoundUse) []mvcc.BoundUse {
	if c == nil || len(of) != len(used) {
		return used
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.n) == 0 {
		return used
	}
	used = slices.Clone(used)
	for i := range used {
		used[i].Used += c.n[of[i]][namespace]
	}
	return used
}
