package apiserver

import (
	"time"

	"github.com/quorate/quorate/apiserver/kinds"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// goneFor is how long after a resource has gone the observer is told again: by then all requests that began before have
// ended.
const goneFor = 5 * time.Minute

// goneResources are those that were served until a moment ago. They are for one goroutine.
type goneResources struct {
	before *kinds.Registry
	since  map[schema.GroupVersionResource]time.Time
}

// look tells the observer of what is not served any more.
func (g *goneResources) look(now *kinds.Registry, observer Observer) {
	if g.before != nil && g.before != now {
		for _, r := range g.before.All() {
			if now.Lookup(r.GVR()) == nil {
				if g.since == nil {
					g.since = map[schema.GroupVersionResource]time.Time{}
				}
				g.since[r.GVR()] = time.Now()
				observer.Gone(r.GVR(), !serves(now, r.Group, r.Plural))
			}
		}
	}
	g.before = now
	for gvr, since := range g.since {
		switch {
		case now.Lookup(gvr) != nil: // it is back
			delete(g.since, gvr)
		case time.Since(since) > goneFor:
			observer.Gone(gvr, !serves(now, gvr.Group, gvr.Resource))
			delete(g.since, gvr)
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
