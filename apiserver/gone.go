package apiserver

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorate/quorate/apiserver/types/kinds"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// goneAgain is how long after a resource has gone the observer is told again: soon, when its watches have ended, and when
// all requests that began before have ended. Definitions that come and go would else be remembered by the hundred.
var goneAgain = [...]time.Duration{5 * time.Second, 5 * time.Minute}

// goneResources are those that were served until a moment ago. see is safe for concurrent use; look is for one goroutine.
type goneResources struct {
	last   atomic.Pointer[kinds.Registry]
	before *kinds.Registry // at the last look
	since  map[schema.GroupVersionResource]*gone

	mu   sync.Mutex
	seen map[schema.GroupVersionResource]struct{} // what requests were served of, and is not known to be gone
}

// see notes what a request is served of. A definition may come and go between two looks, and the requests in between were
// counted.
func (g *goneResources) see(r *kinds.Registry) {
	if g.last.Load() == r {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.seen == nil {
		g.seen = map[schema.GroupVersionResource]struct{}{}
	}
	for _, x := range r.All() {
		g.seen[x.GVR()] = struct{}{}
	}
	g.last.Store(r)
}

// left returns what was seen and is not served now.
func (g *goneResources) left(now *kinds.Registry) (all []schema.GroupVersionResource) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for gvr := range g.seen {
		if now.Lookup(gvr) == nil {
			all = append(all, gvr)
			delete(g.seen, gvr)
		}
	}
	return all
}

// gone is a resource that is not served any more.
type gone struct {
	since time.Time
	again int // how often the observer was told again
}

// look tells the observer of what is not served any more.
func (g *goneResources) look(now *kinds.Registry, observer Observer) {
	g.see(now)
	for _, gvr := range g.left(now) {
		if g.since == nil {
			g.since = map[schema.GroupVersionResource]*gone{}
		}
		g.since[gvr] = &gone{since: time.Now()}
		observer.Gone(gvr, !serves(now, gvr.Group, gvr.Resource))
	}
	g.before = now
	for gvr, x := range g.since {
		switch {
		case now.Lookup(gvr) != nil: // it is back
			delete(g.since, gvr)
		case time.Since(x.since) > goneAgain[x.again]:
			observer.Gone(gvr, !serves(now, gvr.Group, gvr.Resource))
			if x.again++; x.again == len(goneAgain) {
				delete(g.since, gvr)
			}
		}
	}
}

// serves reports whether a registry has a version of a resource.
func serves(r *kinds.Registry, group, resource string) bool {
	for _, x := range r.All() {
		if x.Group == group && x.Plural == resource {
			return true
		}
	}
	return false
}
