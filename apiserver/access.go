package apiserver

import (
	"fmt"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/wire/status"
)

// authenticate finds out who asks.
func (c *call) authenticate() bool {
	// What is found out from here on is as of this state, or of a newer one.
	c.User, c.DecidedAt, c.Requester = auth.AnonymousUser(), c.cfg.Store.State().Applied(), c
	if a := c.cfg.Authenticator; a != nil {
		u, err := a.Authenticate(c.r)
		if err != nil {
			c.notWho(err)
			c.closeAnonymous()
			c.audited()
			c.fail(status.Unauthorized())
			return false
		}
		c.Credential = u.Credential
		if c.User = u; u.Name == auth.Anonymous {
			c.closeAnonymous()
		} else {
			c.setNodeHeaders()
		}
	}
	c.Info.ReadSelector(c.r.URL.RawQuery)
	c.audited()
	if c.cfg.Roles != nil {
		c.allowedBy = c.cfg.Roles.Mark()
	}
	return true
}

// notWho tells the log why a credential does not hold. Certificates have a line of their own per
// second: a client with an old token would hide them, since it tries again all the time.
func (c *call) notWho(err error) {
	about := "certificate"
	if c.r.Header.Get("Authorization") != "" {
		about = "token"
	}
	c.s.unauthenticated.WarnAbout(c.cfg.Log, about, "a credential does not hold", "from", c.r.RemoteAddr, "err", fmt.Sprintf("%.500s", err.Error()))
}

// impersonate finds out as whom the request is to be served.
func (c *call) impersonate() bool {
	as := auth.Impersonation(c.r.Header)
	if as == nil {
		return true
	}
	on := c.Attributes()
	u, constraint, err := auth.Impersonate(c.Context, c.cfg.Authorizer, on, c.r.Header)
	if err != nil {
		c.fail(err)
		return false
	}
	if c.audit.Event != nil {
		c.audit.Impersonated(auditUser(u), constraint)
	}
	c.masked, c.User, c.Impersonated = &masked{on, as}, u, true
	return true
}

// closeAnonymous ends the connection of a client that is nobody, after its answer.
func (c *call) closeAnonymous() {
	if c.r.ProtoMajor == 2 && c.cfg.UnauthenticatedHTTP2DOSMitigation {
		c.Header()["Connection"] = []string{"close"}
	}
}

// authorize refuses what the user may not do.
func (c *call) authorize() bool {
	if err := c.decide(); err != nil {
		c.Header().Set("X-Content-Type-Options", "nosniff")
		c.fail(err)
		return false
	}
	return true
}

// decide asks whether the user may do what is asked. The error is the refusal. Safe for
// concurrent use: the deletion of a collection decides on several objects at once, so the
// headers of the answer are not its own.
func (c *call) decide() error {
	attributes := c.Attributes()
	from := followed(&attributes)
	decision, reason, err := c.cfg.Authorizer.Authorize(c.Context, attributes)
	c.audit.Annotate(annotationReason, reason)
	switch {
	case decision == auth.Allow:
		c.grounds.of.Store((*[]auth.Object)(from))
		c.audit.Annotate(annotationDecision, "allow")
		return nil
	case err != nil && decision == auth.NoOpinion:
		c.cfg.Log.Error("authorization is incomplete", "err", err, "user", c.User.Name)
	}
	c.audit.Annotate(annotationDecision, "forbid")
	return auth.Forbidden(attributes, reason)
}
