package auth

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// Names that the API gives a meaning.
const (
	Anonymous       = "system:anonymous"
	Unauthenticated = "system:unauthenticated"
	Authenticated   = "system:authenticated"
	Masters         = "system:masters"
	Nodes           = "system:nodes"
)

const nodePrefix = "system:node:"

// CredentialID is the key of User.Extra that names the credential which was used,
// without giving it away.
const CredentialID = "authentication.kubernetes.io/credential-id"

// User is who sends a request. It is immutable: requests share it.
type User struct {
	Name   string
	UID    string
	Groups []string
	Extra  map[string][]string
	// Credential is what the user was recognized by, if that can end while a request is served;
	// else nil.
	Credential Credential
}

// Credential is one that holds as long as objects of the cluster do. Implementations are
// immutable and safe for concurrent use.
type Credential interface {
	// Objects are what it follows from, in the state of a node. The slice is shared.
	Objects() []Object
	// Holds is nil if it holds as the local state is now. It may wait until that is confirmed to be
	// current. The error is for the log, as ErrUnauthorized is.
	Holds(ctx context.Context) error
}

// Object is an object that a credential or a permission follows from: while the one with this uid is there, no
// change of it counts. Without a uid it is all keys of the table that begin with Key, and every
// change of one counts.
type Object struct{ Table, Key, UID string }

// InGroup reports whether the user is in a group.
func (u *User) InGroup(group string) bool { return slices.Contains(u.Groups, group) }

// Node is the node whose kubelet a user is: system:node:NAME of the group system:nodes. The name may
// be empty.
func (u *User) Node() (name string, ok bool) {
	if u == nil {
		return "", false
	}
	if name, ok = strings.CutPrefix(u.Name, nodePrefix); !ok || !u.InGroup(Nodes) {
		return "", false
	}
	return name, true
}

// Owner is who a user's requests count for, where shares are given out. The service accounts of a namespace are one: who has
// the namespace makes as many as they like. Those of kube-system are the cluster's own.
func (u *User) Owner() string {
	const accounts, own = "system:serviceaccount:", "kube-system"
	if rest, ok := strings.CutPrefix(u.Name, accounts); ok {
		if namespace, _, ok := strings.Cut(rest, ":"); ok && namespace != own {
			return accounts + namespace
		}
	}
	return u.Name
}

var anonymous = &User{Name: Anonymous, Groups: []string{Unauthenticated}}

// AnonymousUser is who sends a request without a credential.
func AnonymousUser() *User { return anonymous }

// authenticated returns the user with system:authenticated among its groups, as
// everybody but the anonymous user has it. The argument is not changed.
func authenticated(u *User) *User {
	if u.Name == Anonymous || u.InGroup(Authenticated) || u.InGroup(Unauthenticated) {
		return u
	}
	c := *u
	c.Groups = append(slices.Clip(slices.Clone(u.Groups)), Authenticated)
	return &c
}

type userKey struct{}

// WithUser returns a context that carries the user.
func WithUser(ctx context.Context, u *User) context.Context {
	return context.WithValue(ctx, userKey{}, u)
}

// UserFrom returns the user of a request, or nil if nobody was authenticated.
func UserFrom(ctx context.Context) *User {
	u, _ := ctx.Value(userKey{}).(*User)
	return u
}

type impersonatorKey struct{}

type impersonator struct {
	on Attributes
	as http.Header
}

// WithImpersonator returns a context that carries who has sent the request as its user, for what, and the headers that
// asked for that (Impersonation).
func WithImpersonator(ctx context.Context, on Attributes, as http.Header) context.Context {
	return context.WithValue(ctx, impersonatorKey{}, impersonator{on, as})
}

// ImpersonatorFrom returns who has sent a request as another user, or nil if its user has sent it.
func ImpersonatorFrom(ctx context.Context) *User {
	i, _ := ctx.Value(impersonatorKey{}).(impersonator)
	return i.on.User
}

// ImpersonateAgain decides again whether who has sent a request as another user may do so. The error is the refusal; nil
// also if nobody was impersonated.
func ImpersonateAgain(ctx context.Context, authorizer Authorizer) error {
	i, _ := ctx.Value(impersonatorKey{}).(impersonator)
	if i.on.User == nil {
		return nil
	}
	_, _, err := Impersonate(ctx, authorizer, i.on, maps.Clone(i.as))
	return err
}
