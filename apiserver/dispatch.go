package apiserver

import (
	"context"
	"net/http"

	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/wire/codec"
	"github.com/quorate/quorate/apiserver/wire/status"
)

// dispatch finds what serves the request and answers, also with errors. It is the last step.
func (c *call) dispatch() bool {
	err := c.route()
	switch {
	case err == nil:
	case c.code != 0:
		// Part of an answer is out: the client must see that it is cut, not
		// a Status at the end of a list.
		panic(http.ErrAbortHandler)
	default:
		c.fail(err)
	}
	return false
}

func (c *call) route() error {
	if c.remote != nil {
		return c.aggregated()
	}
	if c.Resource == nil {
		if c.cfg.Kinds().HasGroup(c.Info.Group) {
			return status.NoSuchResource()
		}
		status.PlainNotFound(c, c.r)
		return nil
	}
	if strangeScope(&c.Op) {
		status.PlainNotFound(c, c.r)
		return nil
	}
	if !c.scopeMatches() {
		return status.NoSuchResource()
	}
	if to := connectionOf(&c.Op); to != nil {
		return verbs{c}.connect(to)
	}
	if c.Info.Trailing() != "" && !c.Resource.Custom {
		// Upstream has no routes for it, and for custom resources it has none at all.
		return status.NoSuchResource()
	}
	if c.r.Method == http.MethodHead {
		// Upstream has no routes for it.
		return status.NoSuchMethod()
	}
	c.deprecated()
	q := &c.Options
	if err := q.Parse(c.r.URL.RawQuery, c.Info.Verb); err != nil {
		return err
	}
	if q.Timeout > 0 && !c.Kind.LongRunning {
		// Only ever shortens what the filters have set.
		ctx, cancel := context.WithTimeout(c.Context, q.Timeout)
		defer cancel()
		c.Context = ctx
	}
	if c.Info.Subresource != "" {
		return verbs{c}.subresource()
	}
	return verbs{c}.verb()
}

// strangeScope reports whether the path is one at which upstream looks for no custom resource: in a
// namespace if those have none, and elsewhere, but to list them.
func strangeScope(o *objects.Op) bool {
	i := &o.Info
	switch {
	case !o.Resource.Custom:
		return false
	case o.Resource.Namespaced:
		return i.Namespace == "" && i.Verb != "list" && i.Verb != "watch"
	}
	return i.Namespace != ""
}

// scopeMatches reports whether the path's scope is the resource's.
func (c *call) scopeMatches() bool {
	i := &c.Info
	if c.Info.Subresource != "" && c.Subresource == nil {
		return false
	}
	if !c.Resource.Namespaced {
		// A namespace's own path carries its name as the namespace, for RBAC.
		if i.OwnNamespace {
			i.ObjectNamespace = ""
			return true
		}
		return i.Namespace == ""
	}
	i.ObjectNamespace = i.Namespace
	return i.Namespace != "" || i.Name == ""
}

func (c verbs) verb() error {
	i := &c.Info
	if c.Resource.Namespaced && i.Namespace == "" && i.Verb != "list" && i.Verb != "watch" {
		return status.NoSuchMethod()
	}
	if !i.InPlace() || !c.Resource.HasVerb(i.Verb) {
		return status.NoSuchMethod()
	}
	if c.Resource.Virtual {
		return c.virtual()
	}
	switch i.Verb {
	case "get":
		return c.get()
	case "list":
		return c.list()
	case "watch":
		return c.watch()
	case "create":
		return c.create()
	case "update", "patch":
		return c.modify(objects.Whole)
	case "delete":
		return c.delete()
	case "deletecollection":
		return c.deleteCollection()
	}
	return status.NoSuchMethod()
}

// subresource serves what lies below an object. Status and scale are the same
// for every kind; the rest is in the kinds' strategies.
func (c verbs) subresource() error {
	if c.Info.Name == "" || c.Resource.Namespaced && c.Info.Namespace == "" {
		return status.NoSuchResource()
	}
	if !hasVerb(c.Subresource.Verbs, c.Info.Verb) {
		return status.NoSuchMethod()
	}
	own, name := c.Strategy(), c.Subresource.Name
	if p := own.Posts[name]; p != nil {
		return c.post(p)
	}
	take := own.Parts[name]
	switch {
	case take != nil:
	case name == "status":
		take = objects.CopyStatus
	case name == "scale":
		return c.scale()
	default:
		return notImplemented(c.Resource.GroupResource(), name)
	}
	switch c.Info.Verb {
	case "get":
		return c.get()
	case "update", "patch":
		return c.modify(objects.PartOf(take))
	}
	return status.NoSuchMethod()
}

func hasVerb(verbs []string, verb string) bool {
	for _, v := range verbs {
		if v == verb {
			return true
		}
	}
	return false
}

// format negotiates the form of the answer, before anything is done that could
// not be taken back.
func (c *call) format(res *kinds.Resource, shape codec.Shape) (codec.Format, error) {
	return codec.Negotiate(c.r, res, shape)
}
