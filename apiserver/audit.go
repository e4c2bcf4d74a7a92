package apiserver

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/quorate/quorate/apiserver/audit"
	"github.com/quorate/quorate/apiserver/auth"
	"github.com/quorate/quorate/apiserver/codec"
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
	if c.s.cfg.Audit == nil {
		return
	}
	i := &c.Info
	a := &audit.Attributes{User: auditUser(c.User), Verb: i.Verb, Path: i.Path}
	if i.IsResource {
		a.Namespace, a.Name, a.APIGroup, a.APIVersion = i.Namespace, cmp.Or(i.Name, i.Selected), i.Group, i.Version
		a.Resource, a.Subresource = i.Resource, i.Subresource
	}
	c.audit = c.s.cfg.Audit.Begin(c.r, c.Header().Get("Audit-Id"), c.Start, a)
	// Answers of other paths are none of the API's objects: among ours are secrets.
	c.keep = i.IsResource && c.audit.WantsResponse() && !c.Kind.LongRunning
}

func auditUser(u *auth.User) *audit.User {
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
	c.s.cfg.Observer.Deprecated(&c.Kind, d.RemovedRelease)
	c.audit.Annotate(annotationDeprecated, "true")
	if d.RemovedRelease != "" {
		c.audit.Annotate(annotationRemoved, d.RemovedRelease)
	}
}

// auditBody notes a request's body.
func (c *call) auditBody(raw []byte) {
	if c.audit == nil || len(raw) == 0 {
		return
	}
	contentType := c.r.Header.Get("Content-Type")
	patch := c.Info.Verb == "patch"
	if text, ok := c.asJSON(contentType, raw); ok {
		c.audit.Request(text, patch)
	}
}

// keepAnswer collects what is written, as long as it is not too much.
func (c *call) keepAnswer(b []byte) {
	if len(c.kept)+len(b) > maxAudited {
		c.keep, c.kept = false, nil
		c.audit.Annotate(annotationLeftOut, "too long")
		return
	}
	c.kept = append(c.kept, b...)
}

// auditEnd completes the event.
func (c *call) auditEnd() {
	if c.audit == nil {
		return
	}
	if c.keep && len(c.kept) > 0 {
		body := c.kept
		if c.Header().Get("Content-Encoding") == "gzip" {
			body = unzipped(body)
		}
		if text, ok := c.asJSON(c.Header().Get("Content-Type"), body); ok {
			c.audit.Response(text)
		}
	}
	c.audit.Completed(c.code)
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
func (c *call) asJSON(contentType string, raw []byte) (text []byte, ok bool) {
	mediaType, _, _ := strings.Cut(contentType, ";")
	switch mediaType = strings.TrimSpace(mediaType); {
	case mediaType == "" || mediaType == codec.JSON || strings.HasSuffix(mediaType, "+json"):
		return bytes.TrimSpace(raw), true
	case strings.HasSuffix(mediaType, "yaml"):
		text, _, err := codec.YAMLToJSON(raw)
		return text, err == nil
	case mediaType == codec.Protobuf:
		body, err := codec.Decode(contentType, raw, c.Resource)
		if err != nil {
			return nil, false
		}
		text, err := json.Marshal(body.Object)
		return text, err == nil
	}
	return nil, false
}
