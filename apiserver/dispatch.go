package apiserver

import (
	"context"
	"net/http"

	"github.com/quorate/quorate/apiserver/codec"
	"github.com/quorate/quorate/apiserver/crd"
	"github.com/quorate/quorate/apiserver/kinds"
	"github.com/quorate/quorate/apiserver/schema"
	"github.com/quorate/quorate/apiserver/status"
)

// dispatch finds what serves the request and answers, also with errors.
func (c *call) dispatch() {
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
}

func (c *call) route() error {
	if c.res == nil {
		if c.s.cfg.Kinds().HasGroup(c.info.Group) {
			return status.NoSuchResource()
		}
		status.PlainNotFound(c, c.r)
		return nil
	}
	if c.sub == nil && needKubelet[c.res.CodeName()+"/"+c.info.Subresource] {
		return withoutKubelet(c.res.GroupResource(), c.info.Subresource)
	}
	if !c.placed() {
		return status.NoSuchResource()
	}
	if c.r.Method == http.MethodHead {
		// Upstream has no routes for it.
		return status.NoSuchMethod()
	}
	c.deprecated()
	q := &c.q
	if err := q.Parse(c.r.URL.RawQuery, c.info.Verb); err != nil {
		return err
	}
	if q.Timeout > 0 && !c.kind.LongRunning {
		// Only ever shortens what the filters have set.
		ctx, cancel := context.WithTimeout(c.ctx, q.Timeout)
		defer cancel()
		c.ctx = ctx
	}
	if c.info.Subresource != "" {
		return c.subresource()
	}
	return c.verb()
}

// placed reports whether the path's scope is the resource's.
func (c *call) placed() bool {
	i := &c.info
	if c.info.Subresource != "" && c.sub == nil {
		return false
	}
	if !c.res.Namespaced {
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

func (c *call) verb() error {
	i := &c.info
	if c.res.Namespaced && i.Namespace == "" && i.Verb != "list" && i.Verb != "watch" {
		return status.NoSuchMethod()
	}
	// POST goes to a collection, PUT and PATCH to an object.
	if i.Verb == "create" && i.Name != "" || (i.Verb == "update" || i.Verb == "patch") && i.Name == "" {
		return status.NoSuchMethod()
	}
	if !c.res.HasVerb(i.Verb) {
		return status.NoSuchMethod()
	}
	if c.res.Virtual {
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
	case "update":
		return c.update()
	case "patch":
		return c.patch()
	case "delete":
		return c.delete()
	case "deletecollection":
		return c.deleteCollection()
	}
	return status.NoSuchMethod()
}

// subresource serves what lies below an object. Status and scale are the same
// for every kind; the rest is in the table of hooks.
func (c *call) subresource() error {
	if c.info.Name == "" || c.res.Namespaced && c.info.Namespace == "" {
		return status.NoSuchResource()
	}
	if !hasVerb(c.sub.Verbs, c.info.Verb) {
		return status.NoSuchMethod()
	}
	if f := subresourceHooks[c.res.CodeName()+"/"+c.sub.Name]; f != nil {
		return f(c)
	}
	if take := partHooks[c.res.CodeName()+"/"+c.sub.Name]; take != nil {
		return c.partOf(take)
	}
	switch c.sub.Name {
	case "status":
		return c.partOf(takeStatus)
	case "scale":
		return c.scale()
	}
	return notImplemented(c.res.GroupResource(), c.sub.Name)
}

func hasVerb(verbs []string, verb string) bool {
	for _, v := range verbs {
		if v == verb {
			return true
		}
	}
	return false
}

// key of the object that the path names.
func (o *op) key() string { return o.res.Key(o.info.ObjectNamespace, o.info.Name) }

// model of the resource's objects.
func (o *op) model() (*schema.Model, error) { return modelOf(o.res) }

// modelOf is the model of a resource's objects.
func modelOf(res *kinds.Resource) (*schema.Model, error) {
	if v := crd.Of(res); v != nil {
		return v.Model()
	}
	return schema.Lookup(res.Model)
}

// format negotiates the form of the answer, before anything is done that could
// not be taken back.
func (c *call) format(res *kinds.Resource, shape codec.Shape) (codec.Format, error) {
	return codec.Negotiate(c.r, res, shape)
}
