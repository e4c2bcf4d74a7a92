package aggregator

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/apiserver/access/auth"
	v2 "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/api/validate/content"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
)

// Bounds of how the objects in a namespace are deleted at a server.
const (
	emptyTimeout  = 2 * time.Minute  // of all that is asked at a time
	listTimeout   = 20 * time.Second // of a page, or of the deletion of one object
	deleteTimeout = 60 * time.Second // of the deletion of a collection: as long as any request may take there
	pageObjects   = 500
	maxObject     = 4 << 20  // bytes of one object in a list
	maxKept       = 20_000   // objects of a page that are deleted one by one; of a longer one the rest is deleted another time
	maxToken      = 16 << 10 // bytes of the token of a page
	maxName       = 253      // bytes of the name of a resource, an object or a finalizer
	maxFinalizers = 100      // different ones that are told
	maxFailures   = 10       // after which the rest is asked another time
)

// Server is one Service with what it has in namespaces that can be deleted. It is immutable.
type Server struct {
	// Service is its namespace, name and port.
	Service string
	// About names what it has: another value means that there may be something else.
	About string

	collections []collection
}

// collection is a resource of a server whose objects lie in namespaces.
type collection struct {
	apischema.GroupVersionResource
	server                   *server
	canList, canDeleteByList bool
}

// Namespaced is what is known of what servers have in namespaces.
type Namespaced struct {
	Servers []*Server // by Service
	// Unknown are the versions of groups whose servers do not say what they serve. Nothing of them is among
	// the servers.
	Unknown []string
	// Asked is false if a server has not been asked yet.
	Asked bool
}

// Namespaced returns what servers have in namespaces, as far as that is known. It asks nobody. Each resource is
// there once, in the version of the highest priority.
func (a *Aggregator) Namespaced() *Namespaced {
	out := &Namespaced{Asked: true}
	seen := map[apischema.GroupResource]bool{}
	of := map[string]*Server{}
	for _, r := range a.routed() {
		found, ok, failed := r.server.known.version(r)
		switch {
		case failed:
			out.Unknown = append(out.Unknown, r.GroupVersion().String())
			continue
		case !ok:
			out.Asked = false
			continue
		}
		for i := range found.Resources {
			c := collectionOf(r, &found.Resources[i])
			if c == nil || seen[c.GroupResource()] {
				continue
			}
			seen[c.GroupResource()] = true
			at := fmt.Sprintf("%s/%s:%d", r.server.namespace, r.server.name, r.server.port)
			if of[at] == nil {
				of[at] = &Server{Service: at}
			}
			of[at].collections = append(of[at].collections, *c)
		}
	}
	for _, at := range slices.Sorted(maps.Keys(of)) {
		s := of[at]
		var about strings.Builder
		for i := range s.collections {
			fmt.Fprintln(&about, s.collections[i].GroupVersionResource)
		}
		s.About = about.String()
		out.Servers = append(out.Servers, s)
	}
	slices.Sort(out.Unknown)
	return out
}

// version is what a server has said of the version of an APIService. ok: it has answered the question about that; failed: it
// has not answered the last one.
func (k *known) version(r *Remote) (v v2.APIVersionDiscovery, ok, failed bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.ok {
		return v, false, k.failure != ""
	}
	v, there := k.versions[r.GroupVersion()]
	return v, there || !k.asking && k.asked.has[r], false
}

// collectionOf returns nil of what lies in no namespace or cannot be deleted.
func collectionOf(r *Remote, of *v2.APIResourceDiscovery) *collection {
	if of.Scope != v2.ScopeNamespace || !slices.Contains(of.Verbs, "delete") || !isSegment(of.Resource) {
		return nil
	}
	return &collection{
		r.GroupVersion().WithResource(of.Resource), r.server, slices.Contains(of.Verbs, "list"), slices.Contains(of.Verbs, "deletecollection"),
	}
}

// isSegment reports whether a name that a server says can be a part of a path.
func isSegment(name string) bool {
	return name != "" && len(name) <= maxName && len(content.IsPathSegmentName(name)) == 0
}

// Left is what a server still has in a namespace.
type Left struct {
	Resources  map[string]int // objects, by plural.group
	Finalizers map[string]int // objects that have them; at most maxFinalizers
	Errs       []error
}

// Nothing reports whether the namespace is empty there.
func (l *Left) Nothing() bool { return len(l.Resources) == 0 && len(l.Errs) == 0 }

// Empty deletes what a server has in a namespace, in the name of a user whom the server believes this server and
// whom it authorizes itself. still is asked before each request that deletes much: its error ends it,
// because the namespace is another one by now, or may be. Answers are bounded in time, and read
// object by object.
func (a *Aggregator) Empty(ctx context.Context, s *Server, namespace string, u *auth.User, still func(context.Context) error) *Left {
	ctx, cancel := context.WithTimeout(ctx, emptyTimeout)
	defer cancel()
	left := &Left{Resources: map[string]int{}, Finalizers: map[string]int{}}
	// In any order, so that one that hangs does not always keep the same ones waiting.
	for _, i := range rand.Perm(len(s.collections)) {
		if ctx.Err() != nil || len(left.Errs) == maxFailures {
			break
		}
		c := &s.collections[i]
		e := &emptying{a: a, c: c, at: "/apis/" + c.GroupVersion().String() + "/namespaces/" + namespace + "/" + c.Resource, user: u, still: still}
		found, err := e.empty(ctx)
		if err != nil {
			left.Errs = append(left.Errs, fmt.Errorf("delete %s: %w", c.GroupResource(), err))
			continue
		}
		if found.objects > 0 {
			left.Resources[c.Resource+"."+c.Group] = found.objects
		}
		for f, n := range found.finalizers {
			if _, ok := left.Finalizers[f]; ok || len(left.Finalizers) < maxFinalizers {
				left.Finalizers[f] += n
			}
		}
	}
	if err := ctx.Err(); err != nil && len(left.Errs) == 0 {
		left.Errs = append(left.Errs, err)
	}
	return left
}

// emptying is the deletion of one collection in one namespace.
type emptying struct {
	a     *Aggregator
	c     *collection
	at    string // its path
	user  *auth.User
	still func(context.Context) error
}

// empty deletes a collection and returns what is left of it. What is being deleted already is not deleted
// again. A server that cannot list is believed.
func (e *emptying) empty(ctx context.Context) (*listed, error) {
	found, listable, err := e.list(ctx, e.c.canList, func(o *listedObject) bool { return !o.waits() })
	if err != nil || listable && !found.stopped || !listable && !e.c.canDeleteByList {
		return found, err
	}
	if err := e.still(ctx); err != nil {
		return nil, err
	}
	done, err := e.deleteCollection(ctx)
	if err != nil || !done && !listable {
		return found, err
	}
	if !done {
		err = e.deleteEach(ctx)
	}
	if err != nil || !listable {
		return found, err
	}
	found, _, err = e.list(ctx, true, nil)
	return found, err
}

// deleteCollection reports whether the server does that at all.
func (e *emptying) deleteCollection(ctx context.Context) (done bool, _ error) {
	if !e.c.canDeleteByList {
		return false, nil
	}
	err := e.do(ctx, deleteTimeout, http.MethodDelete, e.at, "", deleteOptions(""), nil)
	if notSupported(err) {
		return false, nil
	}
	return true, err
}

// deleteEach deletes one object after the other, each only if it is the one that was listed.
func (e *emptying) deleteEach(ctx context.Context) error {
	for from := ""; ; {
		page := &listed{keep: true}
		if err := e.page(ctx, from, page); err != nil {
			return err
		}
		if err := e.still(ctx); err != nil {
			return err
		}
		for _, o := range page.kept {
			err := e.do(ctx, listTimeout, http.MethodDelete, e.at+"/"+o.name, "", deleteOptions(o.uid), nil)
			if err != nil && !notSupported(err) && !isConflict(err) {
				return err
			}
		}
		if from = page.next; from == "" {
			return nil
		}
	}
}

// list goes through all pages, until stop. listable is false if the server has no lists of it.
func (e *emptying) list(ctx context.Context, canList bool, stop func(*listedObject) bool) (found *listed, listable bool, _ error) {
	found = &listed{finalizers: map[string]int{}, stop: stop}
	if !canList {
		return found, false, nil
	}
	for from := ""; ; from = found.next {
		if err := e.page(ctx, from, found); err != nil {
			if notSupported(err) && from == "" {
				return found, false, nil
			}
			return found, true, err
		}
		if found.next == "" || found.stopped {
			return found, true, nil
		}
	}
}

// page reads a page into found.
func (e *emptying) page(ctx context.Context, from string, found *listed) error {
	query := fmt.Sprintf("limit=%d", pageObjects)
	if from != "" {
		query += "&continue=" + escape(from)
	}
	found.next = ""
	if err := e.do(ctx, listTimeout, http.MethodGet, e.at, query, "", found.read); err != nil {
		return err
	}
	if from != "" && found.next == from {
		return fmt.Errorf("GET %s: the same page again", e.at)
	}
	return nil
}
