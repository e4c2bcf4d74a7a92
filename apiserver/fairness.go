package apiserver

import (
	"strings"
	"time"

	"github.com/quorate/quorate/apiserver/access/fairness"
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/apiserver/wire/request"
	"github.com/quorate/quorate/apiserver/wire/status"
)

// Headers that name the FlowSchema and the PriorityLevelConfiguration of a request,
// by their uids, in the form that net/http looks headers up by.
const (
	headerFlowSchema    = "X-Kubernetes-Pf-Flowschema-Uid"
	headerPriorityLevel = "X-Kubernetes-Pf-Prioritylevel-Uid"
)

// retryRefused is when a client that was refused tries again, in seconds.
const retryRefused = 1

// enterFairness waits until it is the request's turn, by priority and fairness. It
// reports whether the request may run; if not, it has answered. A watch gives its
// place up when it has begun, all others when they end.
func (c *call) enterFairness() bool {
	if c.admitted() {
		return true
	}
	status.PlainTooManyRequests(c, retryRefused)
	return false
}

// admitted waits for the request's turn, without an answer.
func (c *call) admitted() bool {
	f := c.cfg.Fairness
	if f == nil {
		return true
	}
	i := &c.Info
	class := f.Classify(&fairness.Request{
		User: c.User.Name, Groups: c.User.Groups, IsResource: i.IsResource, Verb: i.Verb, Path: i.Path,
		Group: i.Group, Resource: i.Resource, Subresource: i.Subresource, Namespace: i.Namespace,
	})
	h := c.Header()
	h[headerFlowSchema], h[headerPriorityLevel] = class.Headers()
	if class.Enter(c.Context, &c.ticket, c.s.estimate(&class, &c.Op, c.r.URL.RawQuery), c.longestWait(), c.Kind.LongRunning) == fairness.Admitted {
		return true
	}
	c.cfg.Observer.RequestRefused(request.Mutates(i.Verb), "fairness")
	return false
}

// longestWait is a quarter of the time that the request has.
func (c *call) longestWait() time.Duration {
	limit := c.cfg.Limits.Request
	if !c.Kind.LongRunning {
		timeout, _ := request.Parameter(c.r.URL.RawQuery, "timeout")
		if d, err := request.ParseTimeout(timeout); err == nil && d > 0 {
			limit = min(limit, d)
		}
	}
	return limit / 4
}

// estimate is what the request is expected to cost.
func (s *Server) estimate(class *fairness.Class, o *objects.Op, query string) fairness.Work {
	if o.Resource == nil || o.Resource.Virtual {
		return fairness.One
	}
	switch o.Info.Verb {
	case "list":
		return class.List(s.collection(o, query))
	case "watch":
		if beginsWithState(query) {
			return class.List(s.collection(o, query))
		}
	case "get", "deletecollection", "":
	default: // a write of one object
		w := fairness.Watched{Table: o.Resource.Table(), Name: o.Info.Name}
		if o.Resource.Namespaced {
			w.Namespace = o.Info.Namespace
		}
		return class.Write(s.watchers.Interested(w))
	}
	return fairness.One
}

// beginsWithState reports whether a watch sends what there is before it sends
// changes. The query is looked at as it came: what cannot be parsed is refused
// later, and costs little.
func beginsWithState(query string) bool {
	if initial, _ := request.Parameter(query, "sendInitialEvents"); initial != "" {
		return *request.Truth(initial)
	}
	rv, _ := request.Parameter(query, "resourceVersion")
	return rv == "" || rv == "0"
}

// collection is how large the table of the request is.
func (s *Server) collection(o *objects.Op, query string) (of fairness.Collection) {
	if t := s.cfg.Store.State().Table(o.Resource.Table()); t != nil {
		of.Objects, of.Bytes = t.Live()
	}
	// In all namespaces a name is one key of each, and all are looked at.
	of.Single = (o.Info.Name != "" || o.Info.Selected != "") && (!o.Resource.Namespaced || o.Info.Namespace != "")
	limit, _ := request.Parameter(query, "limit")
	if n, err := request.Int(limit); err == nil {
		of.Limit = max(0, *n)
	}
	return of
}

// watched is what a watch is sent, in the words of package fairness. ok is false
// for one that is found by a field: writes to other objects do not wake it.
func watched(sel *objects.Selection, table string) (w fairness.Watched, ok bool) {
	only := sel.Interest().Canonical()
	if only.Field.Name != "" {
		return w, false
	}
	w.Table = table
	switch namespace, name, both := strings.Cut(only.Key, "/"); {
	case only.Key == "":
		w.Namespace = strings.TrimSuffix(only.Prefix, "/")
	case both:
		w.Namespace, w.Name = namespace, name
	default:
		w.Name = only.Key
	}
	return w, true
}
