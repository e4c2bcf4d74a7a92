package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// ErrUnauthorized is returned when a credential was presented and does not hold,
// or none was and anonymous requests are off. Its cause is for the log only: the
// client learns nothing but "Unauthorized".
var ErrUnauthorized error = apierrors.NewUnauthorized("Unauthorized")

// Authenticator recognizes one form of credential. Implementations are safe for
// concurrent use.
type Authenticator interface {
	// Authenticate returns the user of a request. ok is false if the request
	// has no credential of this form. An error means that it has one and that
	// it does not hold.
	Authenticate(r *http.Request) (u *User, ok bool, err error)
}

// TokenAuthenticator recognizes bearer tokens. Implementations are safe for
// concurrent use.
type TokenAuthenticator interface {
	// AuthenticateToken returns the user of a token. ok is false for a token
	// that this authenticator does not issue or know; an error for one that is
	// its own and does not hold.
	AuthenticateToken(ctx context.Context, token string) (u *User, ok bool, err error)
}

// AudienceAuthenticator is a TokenAuthenticator whose tokens say whom they are for.
type AudienceAuthenticator interface {
	TokenAuthenticator
	// AuthenticateFor is AuthenticateToken for somebody else than this API. both
	// are the audiences of the token among those that were given.
	AuthenticateFor(ctx context.Context, token string, audiences []string) (u *User, both []string, ok bool, err error)
}

// Authentication is the order in which credentials are looked at: those of
// Authenticators in turn, then bearer tokens (in the header, then in the protocols of
// a WebSocket), then none.
type Authentication struct {
	Authenticators []Authenticator
	Tokens         []TokenAuthenticator
	// NoAnonymous refuses requests without a credential.
	NoAnonymous bool
	// Observe is told the outcome of each request that had a credential, success
	// or failure. May be nil.
	Observe func(result string)
}

// Authenticate returns the user of a request. A bearer token is taken out of the
// request once it was accepted, so that nothing behind can log or forward it.
//
// Errors are ErrUnauthorized, wrapped around the cause.
func (a *Authentication) Authenticate(r *http.Request) (*User, error) {
	var failed error
	for _, x := range a.Authenticators {
		u, ok, err := x.Authenticate(r)
		if ok {
			a.observe("success")
			return authenticated(u), nil
		}
		if err != nil {
			failed = errors.Join(failed, err)
		}
	}
	if token, ok := bearerToken(r.Header.Get("Authorization")); ok {
		u, err := a.token(r.Context(), token)
		if err == nil {
			r.Header.Del("Authorization")
			a.observe("success")
			return authenticated(u), nil
		}
		failed = errors.Join(failed, err)
	}
	if token, rest, err := socketToken(r); err != nil {
		failed = errors.Join(failed, err)
	} else if token != "" {
		u, err := a.token(r.Context(), token)
		if err == nil {
			r.Header.Set(socketProtocols, rest)
			a.observe("success")
			return authenticated(u), nil
		}
		failed = errors.Join(failed, err)
	}
	if failed != nil {
		a.observe("failure")
		return nil, unauthorized{failed}
	}
	if a.NoAnonymous {
		a.observe("failure")
		return nil, unauthorized{errors.New("no credential")}
	}
	return anonymous, nil
}

// Review returns the user of a token that somebody else was shown, and the
// audiences of those asked for that it is for: without any, those of the API. Tokens
// that do not say whom they are for are for nobody in particular. The error says why
// a token does not hold.
func (a *Authentication) Review(ctx context.Context, token string, audiences []string) (u *User, both []string, err error) {
	var failed error
	for _, x := range a.Tokens {
		var ok bool
		if aware, is := x.(AudienceAuthenticator); is && len(audiences) > 0 {
			u, both, ok, err = aware.AuthenticateFor(ctx, token, audiences)
		} else {
			u, ok, err = x.AuthenticateToken(ctx, token)
		}
		if ok {
			return authenticated(u), both, nil
		}
		failed = errors.Join(failed, err)
	}
	if failed == nil {
		failed = errors.New("invalid bearer token")
	}
	return nil, nil, failed
}

func (a *Authentication) observe(result string) {
	if a.Observe != nil {
		a.Observe(result)
	}
}

func (a *Authentication) token(ctx context.Context, token string) (*User, error) {
	var failed error
	for _, x := range a.Tokens {
		u, ok, err := x.AuthenticateToken(ctx, token)
		if ok {
			return u, nil
		}
		failed = errors.Join(failed, err)
	}
	if failed == nil {
		failed = errors.New("unknown")
	}
	return nil, fmt.Errorf("bearer token: %w", failed)
}

// bearerToken reads an Authorization header. Other schemes are no credential of
// this API; upstream ignores them too.
func bearerToken(header string) (string, bool) {
	scheme, rest, ok := strings.Cut(strings.TrimSpace(header), " ")
	if !ok || !strings.EqualFold(scheme, "bearer") {
		return "", false
	}
	// What follows a second blank is not part of the token.
	token, _, _ := strings.Cut(rest, " ")
	return token, token != ""
}

// unauthorized keeps the cause for the log; it reads and unwraps as
// ErrUnauthorized for everything that answers a client.
type unauthorized struct{ cause error }

func (e unauthorized) Error() string   { return "unauthorized: " + e.cause.Error() }
func (e unauthorized) Unwrap() []error { return []error{ErrUnauthorized, e.cause} }
