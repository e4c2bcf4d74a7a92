package apiserver

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/quorate/quorate/apiserver/access/audit"
	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/apiserver/wire/codec"
)

// maxAudited bounds what is kept of an answer for the audit log, in bytes. Longer
// ones are left out of their event, which says so.
const maxAudited = 4 << 20

// Annotations of audit events, upstream's names but for the last.
const (
	annotationDeprecated = "k8s.io/deprecated"
	annotationRemoved    = "k8s.io/removed-release"
	annotationDecision   = "authorization.k8s.io/decision"
	annotationReason     = "authorization.k8s.io/reason"
	annotationLeftOut    = "quorate.io/response-left-out"
)

// audited begins the audit event of a request whose user is known.
func (c *call) audited() {
	if c.cfg.Audit == nil {
		return
	}
	i := &c.Info
	a := &audit.Attributes{User: auditUser(c.User), Verb: i.Verb, Path: i.Path}
	if i.IsResource {
		a.Namespace, a.Name, a.APIGroup, a.APIVersion = i.Namespace, cmp.Or(i.Name, i.Selected), i.Group, i.Version
		a.Resource, a.Subresource = i.Resource, i.Subresource
	}
	event := c.cfg.Audit.Begin(c.r, c.Header().Get("Audit-Id"), c.Start, a)
	// Answers of other paths are none of the API's objects: among ours are secrets.
	c.Event = event
	c.audit = auditing{Event: event, keep: i.IsResource && event.WantsResponse() && !c.Kind.LongRunning}
}

func auditUser(u *auth.User) *audit.User {
	if u == nil {
		return nil
	}
	return &audit.User{Name: u.Name, UID: u.UID, Groups: u.Groups, Extra: u.Extra}
}

// deprecated tells everybody that a version is on its way out: the client, the
// metrics and the audit log.
func (c *call) deprecated() {
	d := c.Resource.Deprecation
	if d == nil {
		return
	}
	c.Warn([]string{d.Warning})
	c.cfg.Observer.Deprecated(&c.Kind, d.RemovedRelease)
	c.audit.Annotate(annotationDeprecated, "true")
	if d.RemovedRelease != "" {
		c.audit.Annotate(annotationRemoved, d.RemovedRelease)
	}
}

// auditing is the audit of one request: its event, and what is kept for that of the answer. Its
// zero value is that of a request that is not audited.
type auditing struct {
	*audit.Event // nil: not audited
	keep         bool
	kept         []byte
}

type laterKey struct{}

// EndLater is for a handler of Config.Own that takes the connection of its request and returns: the audit event of the
// request is completed when end is called. It is for the request's own goroutine, end for any, once.
func EndLater(ctx context.Context) (end func()) {
	later, ok := ctx.Value(laterKey{}).(func() func())
	if !ok {
		return func() {}
	}
	return later()
}

// later leaves the event to the function that it returns.
func (a *auditing) later() func() {
	event := a.Event
	a.Event = nil
	return func() { event.Completed(http.StatusSwitchingProtocols) }
}

// body notes a request's body. res is what it is an object of.
func (a *auditing) body(raw []byte, contentType string, res *kinds.Resource, patch bool) {
	if a.Event == nil || len(raw) == 0 {
		return
	}
	if text, ok := asJSON(raw, contentType, res); ok {
		a.Request(text, patch)
	}
}

// answer collects what is written, as long as it is not too much.
func (a *auditing) answer(b []byte) {
	switch {
	case !a.keep:
	case len(a.kept)+len(b) > maxAudited:
		a.keep, a.kept = false, nil
		a.Annotate(annotationLeftOut, "too long")
	default:
		a.kept = append(a.kept, b...)
	}
}

// end completes the event. h is the answer's header.
func (a *auditing) end(code int, h http.Header, res *kinds.Resource) {
	if a.Event == nil {
		return
	}
	if a.keep && len(a.kept) > 0 {
		body := a.kept
		if h.Get("Content-Encoding") == "gzip" {
			body = unzipped(body)
		}
		if text, ok := asJSON(body, h.Get("Content-Type"), res); ok {
			a.Response(text)
		}
	}
	a.Completed(code)
}

func unzipped(b []byte) []byte {
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil
	}
	out, err := io.ReadAll(io.LimitReader(z, 4*maxAudited))
	if err != nil {
		return nil
	}
	return out
}

// asJSON turns a body of any type that the API has into JSON.
func asJSON(raw []byte, contentType string, res *kinds.Resource) (text []byte, ok bool) {
	mediaType, _, _ := strings.Cut(contentType, ";")
	switch mediaType = strings.TrimSpace(mediaType); {
	case mediaType == "" || mediaType == codec.JSON || strings.HasSuffix(mediaType, "+json"):
		return bytes.TrimSpace(raw), true
	case strings.HasSuffix(mediaType, "yaml"):
		text, _, err := codec.YAMLToJSON(raw)
		return text, err == nil
	case mediaType == codec.Protobuf:
		body, err := codec.Decode(contentType, raw, res)
		if err != nil {
			return nil, false
		}
		text, err := json.Marshal(body.Object)
		return text, err == nil
	}
	return nil, false
}
