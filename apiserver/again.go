package apiserver

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"sync/atomic"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/access/rbac"
	"github.com/quorate/quorate/apiserver/objects/builtin"
	"github.com/quorate/quorate/apiserver/wire/status"
	"github.com/quorate/quorate/consistency"
	"github.com/quorate/quorate/proto"
)

// masked is who has sent a request that is served as another's, and how that was asked for.
type masked struct {
	on auth.Attributes // by whom, and for what
	as http.Header
}

// stillAllowed decides again if roles, bindings or what the client's credential follows from have
// changed while a read waited for its state.
// A node that lags allows by what it had before; what it answers with may be newer than the write
// that took the right away. It is called once the state is there, and before it is read. Reads
// that take any state do not wait. The error is the refusal.
func (c *call) stillAllowed(plan consistency.Plan) error {
	roles, before := c.cfg.Roles, c.allowedBy
	c.allowedBy = rbac.Mark{}
	if plan.Mode == consistency.Any {
		return nil
	}
	changed := c.CredentialStale()
	if _, kubelet := c.User.Node(); kubelet {
		// It is allowed by Pods and volumes, which change all the time, and is decided on quickly.
		changed = changed || c.cfg.Store.State().Applied() > c.DecidedAt
	}
	if roles != nil {
		c.allowedBy = markWhile(roles, c.Kind.LongRunning)
		changed = changed || roles.Changed(before)
	}
	if !changed {
		return nil
	}
	return c.AuthorizeAgain()
}

type againKey struct{}

// Again decides again whether a request to Config.Own is allowed, by all that the cluster had acknowledged when Again was
// called. at is the revision as of which that holds, for writes that follow from it (proto.Write.decided_at). It is for the
// request's own goroutine. Errors: the refusal, a Status; *consistency.UnavailableError and the context's if this node
// cannot know.
func Again(ctx context.Context) (at proto.Revision, err error) {
	again, ok := ctx.Value(againKey{}).(func(context.Context) (proto.Revision, error))
	if !ok {
		return 0, errors.New("the request cannot be decided again")
	}
	return again(ctx)
}

// markWhile is what a request is allowed by while it goes on: a collection is read in pages. A mark keeps a
// state, which a node that takes a snapshot would hold beside the new one until the last long-running request
// ends: these have none.
func markWhile(roles builtin.Roles, longRunning bool) rbac.Mark {
	if longRunning {
		return rbac.Mark{}
	}
	return roles.Mark()
}

// grounds are the objects that a request was allowed by, beside roles.
type grounds struct {
	of atomic.Pointer[[]auth.Object] // nil: none
}

// Basis implements objects.Requester.
func (g *grounds) Basis() []auth.Object {
	if from := g.of.Load(); from != nil {
		return *from
	}
	return nil
}

// basis collects what a decision follows from.
type basis []auth.Object

// Follows implements auth.Basis.
func (b *basis) Follows(from auth.Object) { *b = append(*b, from) }

// followed has a decision about a kubelet say what it follows from. Others are allowed by roles alone.
func followed(a *auth.Attributes) *basis {
	if _, kubelet := a.User.Node(); !kubelet {
		return nil
	}
	from := &basis{}
	a.Basis = from
	return from
}

// AuthorizeAgain implements objects.Requester.
func (c *call) AuthorizeAgain() error {
	if c.Credential != nil {
		if err := c.Credential.Holds(c.Context); err != nil {
			c.notWho(err)
			c.audit.Correct(annotationDecision, "forbid")
			c.audit.Correct(annotationReason, "")
			return status.Unauthorized()
		}
	}
	if c.masked != nil {
		if _, _, err := auth.Impersonate(c.Context, c.cfg.Authorizer, c.masked.on, maps.Clone(c.masked.as)); err != nil {
			c.audit.Correct(annotationDecision, "forbid")
			return err
		}
	}
	err := c.decide()
	if err != nil {
		c.audit.Correct(annotationDecision, "forbid")
		c.audit.Correct(annotationReason, "")
	}
	return err
}
