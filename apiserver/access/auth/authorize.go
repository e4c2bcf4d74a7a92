package auth

import (
	"context"
	"errors"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
)

// Attributes are what a decision is made on.
type Attributes struct {
	User *User
	// Verb is get, list, watch, create, update, patch, delete, deletecollection
	// and the like for resources, the HTTP method in lower case for paths.
	Verb        string
	Namespace   string
	APIGroup    string
	APIVersion  string
	Resource    string
	Subresource string
	Name        string
	// Path is the URL's path.
	Path string
	// ResourceRequest tells resources from other paths.
	ResourceRequest bool
	// FieldSelector are the requirements of the field selector of a list, a watch or a deletion
	// of a collection, as far as they can be read: nothing that one of them leaves out is
	// answered.
	FieldSelector fields.Requirements
	// Basis is told what an Allow follows from beside roles. Nil: nobody is.
	Basis Basis
}

// Basis is told of objects that a permission follows from.
type Basis interface{ Follows(Object) }

// Decision is an authorizer's answer.
type Decision int

const (
	// NoOpinion leaves the decision to the next authorizer; if none is left,
	// the request is refused.
	NoOpinion Decision = iota
	// Allow allows the request.
	Allow
	// Deny refuses it, whatever others say.
	Deny
)

// Authorizer decides on requests. Implementations are safe for concurrent use and
// quick: they are asked once for every request.
type Authorizer interface {
	// Authorize decides. reason is for the client and the audit log; it may be
	// empty. An error says that the decision may be incomplete; Allow counts
	// all the same.
	Authorize(ctx context.Context, a Attributes) (d Decision, reason string, err error)
}

// AuthorizerFunc is a function as an Authorizer.
type AuthorizerFunc func(ctx context.Context, a Attributes) (Decision, string, error)

// Authorize implements Authorizer.
func (f AuthorizerFunc) Authorize(ctx context.Context, a Attributes) (Decision, string, error) {
	return f(ctx, a)
}

// Union asks authorizers in turn; the first Allow or Deny counts.
type Union []Authorizer

// Authorize implements Authorizer. The reasons and errors of those that had no
// opinion are joined.
func (u Union) Authorize(ctx context.Context, a Attributes) (Decision, string, error) {
	var reasons []string
	var failed error
	for _, x := range u {
		d, reason, err := x.Authorize(ctx, a)
		if d != NoOpinion {
			return d, reason, err
		}
		if reason != "" {
			reasons = append(reasons, reason)
		}
		if err != nil {
			failed = errors.Join(failed, err)
		}
	}
	return NoOpinion, strings.Join(reasons, "\n"), failed
}

// Observed tells observe the result of each decision of a: allowed, denied,
// no-opinion or error.
func Observed(a Authorizer, observe func(result string)) Authorizer {
	return AuthorizerFunc(func(ctx context.Context, attributes Attributes) (Decision, string, error) {
		d, reason, err := a.Authorize(ctx, attributes)
		switch {
		case d == Allow:
			observe("allowed")
		case d == Deny:
			observe("denied")
		case err != nil:
			observe("error")
		default:
			observe("no-opinion")
		}
		return d, reason, err
	})
}

// Default is the authorizer in force without roles: PrivilegedGroup, Public and
// Discovery. More are asked after these.
func Default(more ...Authorizer) Union {
	return append(Union{
		AuthorizerFunc(PrivilegedGroup),
		AuthorizerFunc(Public),
		AuthorizerFunc(Discovery),
	}, more...)
}

// Roles decides by roles, behind PrivilegedGroup. As long as empty
// reports that no role was granted to anybody, which is before the first ones are
// stored, Public and Discovery stand in for them.
func Roles(roles Authorizer, empty func() bool) Union {
	unless := func(f AuthorizerFunc) Authorizer {
		return AuthorizerFunc(func(ctx context.Context, a Attributes) (Decision, string, error) {
			if !readsPath(a) || !empty() {
				return NoOpinion, "", nil
			}
			return f(ctx, a)
		})
	}
	return Union{AuthorizerFunc(PrivilegedGroup), roles, unless(Public), unless(Discovery)}
}

// health allows everybody to read whether this node is well: load balancers ask
// without a credential.
func health(_ context.Context, a Attributes) (Decision, string, error) {
	if !readsPath(a) {
		return NoOpinion, "", nil
	}
	switch a.Path {
	case "/livez", "/readyz", "/healthz":
		return Allow, "", nil
	}
	if below(a.Path, "/livez") || below(a.Path, "/readyz") || below(a.Path, "/healthz") {
		return Allow, "", nil
	}
	return NoOpinion, "", nil
}

// PrivilegedGroup allows everything to members of system:masters.
func PrivilegedGroup(_ context.Context, a Attributes) (Decision, string, error) {
	if a.User != nil && a.User.InGroup(Masters) {
		return Allow, "", nil
	}
	return NoOpinion, "", nil
}

// Public allows everybody to read what upstream's role
// system:public-info-viewer names, and the single health checks below.
func Public(ctx context.Context, a Attributes) (Decision, string, error) {
	if !readsPath(a) {
		return NoOpinion, "", nil
	}
	switch a.Path {
	case "/version", "/version/":
		return Allow, "", nil
	}
	return health(ctx, a)
}

// Discovery allows authenticated users to read what upstream's role
// system:discovery names.
func Discovery(_ context.Context, a Attributes) (Decision, string, error) {
	if !readsPath(a) || a.User == nil || !a.User.InGroup(Authenticated) {
		return NoOpinion, "", nil
	}
	switch a.Path {
	case "/api", "/apis", "/openapi":
		return Allow, "", nil
	}
	if below(a.Path, "/api") || below(a.Path, "/apis") || below(a.Path, "/openapi") {
		return Allow, "", nil
	}
	return NoOpinion, "", nil
}

// readsPath is true for GET of a path that is no resource. Upstream's roles name
// get alone, so HEAD is refused there too.
func readsPath(a Attributes) bool { return !a.ResourceRequest && a.Verb == "get" }

// below reports whether path lies under dir: "/apis/apps" under "/apis", but not
// "/apisx".
func below(path, dir string) bool {
	return len(path) > len(dir) && path[len(dir)] == '/' && strings.HasPrefix(path, dir)
}
