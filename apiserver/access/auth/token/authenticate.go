package token

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// Bounds of what is looked at and remembered.
const (
	maxToken    = 16 << 10 // bytes
	maxVerified = 4096     // tokens
)

// verified is a token whose signature was checked.
type verified struct {
	standard jwt.Claims
	claims   Claims
	user     *auth.User
	key      string // id of the key
	accounts *Accounts
	objects  []auth.Object // that it follows from
}

var _ auth.Credential = (*verified)(nil)

// Objects implements auth.Credential.
func (v *verified) Objects() []auth.Object { return v.objects }

// Holds implements auth.Credential.
func (v *verified) Holds(ctx context.Context) error {
	key, err := v.accounts.key(ctx, v.key)
	if err != nil {
		return err
	}
	if err := key.allows(v.standard.IssuedAt, v.accounts.cfg.Now()); err != nil {
		return err
	}
	return v.accounts.holds(ctx, v)
}

// AuthenticateToken implements auth.TokenAuthenticator, for the audiences of the API.
func (a *Accounts) AuthenticateToken(ctx context.Context, token string) (*auth.User, bool, error) {
	u, _, ok, err := a.AuthenticateFor(ctx, token, a.cfg.Audiences)
	return u, ok, err
}

// AuthenticateFor implements auth.AudienceAuthenticator. Errors are in upstream's
// words; they tell the holder of a token why it does not hold.
func (a *Accounts) AuthenticateFor(ctx context.Context, token string, audiences []string) (u *auth.User, both []string, ok bool, err error) {
	v, err := a.verify(ctx, token)
	if v == nil || err != nil {
		return nil, nil, false, err
	}
	if a.cfg.Uses != nil && a.cfg.Uses(ctx, v.key) && !a.cfg.Keys().Has(v.key) {
		return nil, nil, false, errUnknownKey
	}
	own := []string(v.standard.Audience)
	if len(own) == 0 {
		own = a.cfg.Audiences
	}
	for _, x := range audiences {
		if slices.Contains(own, x) {
			both = append(both, x)
		}
	}
	if len(both) == 0 {
		return nil, nil, false, fmt.Errorf("token audiences %q is invalid for the target audiences %q", own, audiences)
	}
	if err := a.holds(ctx, v); err != nil {
		return nil, nil, false, err
	}
	return v.user, both, true, nil
}

// holds checks that it is time for a token, and that everything is still there that it is bound to.
func (a *Accounts) holds(ctx context.Context, v *verified) error {
	if err := a.inTime(v); err != nil {
		return err
	}
	lost, err := a.bound(v)
	if err != nil && a.cfg.Confirm != nil && !a.isGone(lost) {
		asked := a.cfg.Now()
		if a.cfg.Confirm(ctx) != nil {
			return err
		}
		if lost, err = a.bound(v); err != nil {
			a.markGone(lost, asked)
		}
	}
	return err
}

// verify checks a token's signature, unless that was done before, and that its key is in
// force. It is nil for what is not a token of this issuer.
func (a *Accounts) verify(ctx context.Context, token string) (*verified, error) {
	if len(token) > maxToken {
		return nil, nil
	}
	sum := sha256.Sum256([]byte(token))
	a.mu.Lock()
	v := a.verified[sum]
	a.mu.Unlock()
	if v != nil {
		key, err := a.key(ctx, v.key)
		if err != nil {
			return nil, err
		}
		return v, key.allows(v.standard.IssuedAt, a.cfg.Now())
	}
	if !a.ours(token) {
		return nil, nil
	}
	t, err := jwt.ParseSigned(token, algorithms)
	if err != nil {
		return nil, nil // of this issuer as it says, but with no signature of ours
	}
	v = &verified{key: t.Headers[0].KeyID}
	key, err := a.key(ctx, v.key)
	if err != nil {
		return nil, err
	}
	var p private
	if err := t.Claims(key.Public, &v.standard, &p); err != nil {
		return nil, fmt.Errorf("invalid signature: %w", err)
	}
	if err := key.allows(v.standard.IssuedAt, a.cfg.Now()); err != nil {
		return nil, err
	}
	v.claims, v.accounts = p.Kubernetes, a
	v.objects = v.follows()
	v.user = v.newUser()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.verified == nil || len(a.verified) >= maxVerified {
		a.verified = make(map[[sha256.Size]byte]*verified)
	}
	a.verified[sum] = v
	return v, nil
}

// ours reports whether a text is a JWT that says it is of this issuer. Nothing is
// verified yet: tokens of others are others' to judge.
func (a *Accounts) ours(token string) bool {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return false
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return false
	}
	var said struct {
		Issuer string `json:"iss"`
	}
	return json.Unmarshal(payload, &said) == nil && said.Issuer == a.cfg.Issuer
}

func (v *verified) newUser() *auth.User {
	c := &v.claims
	u := &auth.User{
		Name:   auth.ServiceAccountUser(c.Namespace, c.Account.Name),
		UID:    c.Account.UID,
		Groups: append(auth.ServiceAccountGroups(c.Namespace), auth.Authenticated),
		Extra:  map[string][]string{},

		Credential: v,
	}
	say := func(key string, values ...string) {
		for _, value := range values {
			if value == "" {
				return
			}
		}
		u.Extra["authentication.kubernetes.io/"+key] = values[:1]
	}
	if v.standard.ID != "" {
		u.Extra[auth.CredentialID] = []string{"JTI=" + v.standard.ID}
	}
	if c.Pod != nil {
		say("pod-name", c.Pod.Name, c.Pod.UID)
		say("pod-uid", c.Pod.UID, c.Pod.Name)
	}
	if c.Node != nil {
		say("node-name", c.Node.Name)
		say("node-uid", c.Node.UID, c.Node.Name)
	}
	return u
}

func (a *Accounts) inTime(v *verified) error {
	err := v.standard.Validate(jwt.Expected{Time: a.cfg.Now()})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jwt.ErrExpired):
		return errors.New("service account token has expired")
	case errors.Is(err, jwt.ErrNotValidYet):
		return errors.New("service account token is not valid yet")
	case errors.Is(err, jwt.ErrIssuedInTheFuture):
		return errors.New("service account token is issued in the future")
	}
	return fmt.Errorf("service account token claims could not be validated: %w", err)
}

var errInvalidated = errors.New("service account token has been invalidated")

// bound checks that everything that a token is bound to is still there. With an error it says
// what is not.
func (a *Accounts) bound(v *verified) (lost auth.Object, err error) {
	c := &v.claims
	o := v.account()
	account, gone := a.find(o.Table, o.Key)
	switch {
	case account == nil:
		return o, fmt.Errorf("serviceaccounts %q not found", c.Account.Name)
	case account.UID != o.UID:
		return o, fmt.Errorf("service account UID (%s) does not match claim (%s)", account.UID, o.UID)
	case gone:
		return o, fmt.Errorf("service account %s has been deleted", o.Key)
	}
	what, o := v.boundTo()
	if what == "" {
		return auth.Object{}, nil
	}
	there, gone := a.find(o.Table, o.Key)
	switch {
	case there == nil:
		return o, errInvalidated
	case there.UID != o.UID:
		return o, fmt.Errorf("%s UID (%s) does not match service account %s ref claim (%s)", what, there.UID, what, o.UID)
	case gone:
		return o, errInvalidated
	}
	return o, nil
}

// account is the object that a token is of.
func (v *verified) account() auth.Object {
	c := &v.claims
	return auth.Object{Table: "serviceaccounts", Key: c.Namespace + "/" + c.Account.Name, UID: c.Account.UID}
}

// boundTo is the object that a token is bound to besides its account, and what that is; "" if
// there is none.
func (v *verified) boundTo() (what string, o auth.Object) {
	switch c := &v.claims; {
	case c.Secret != nil:
		return "secret", auth.Object{Table: "secrets", Key: c.Namespace + "/" + c.Secret.Name, UID: c.Secret.UID}
	case c.Pod != nil:
		return "pod", auth.Object{Table: "pods", Key: c.Namespace + "/" + c.Pod.Name, UID: c.Pod.UID}
	case c.Node != nil:
		return "node", auth.Object{Table: "nodes", Key: c.Node.Name, UID: c.Node.UID}
	}
	return "", o
}

// follows is everything in the state that says whether a token holds.
func (v *verified) follows() []auth.Object {
	out := []auth.Object{v.account()}
	if what, o := v.boundTo(); what != "" {
		out = append(out, o)
	}
	for _, table := range v.accounts.cfg.KeyTables {
		out = append(out, auth.Object{Table: table})
	}
	return out
}

// find returns an object of the local state, and whether its deletion should have
// come to its end by now: what shuts down may still use its token, but not for long.
func (a *Accounts) find(table, key string) (v *mvcc.Version, gone bool) {
	for {
		state := a.cfg.Store.State()
		t := state.Table(table)
		if t == nil {
			return nil, false
		}
		v, err := t.Get(key, state.Applied())
		if errors.Is(err, mvcc.ErrCompacted) {
			continue // the floor has passed what was newest a moment ago
		}
		if err != nil || v == nil {
			return nil, false
		}
		return v, v.Flags&proto.FlagTerminating != 0 && a.deleted(v)
	}
}

func (a *Accounts) deleted(v *mvcc.Version) bool {
	var o struct {
		Metadata struct {
			DeletionTimestamp time.Time `json:"deletionTimestamp"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(v.Value(), &o); err != nil {
		return true
	}
	return o.Metadata.DeletionTimestamp.Before(a.cfg.Now().Add(-jwt.DefaultLeeway))
}
