package token

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/uuid"
	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/raftstore/mvcc"
)

// Config of Accounts. All fields but KeyTables, Confirm, Uses and Now are required.
type Config struct {
	// Issuer is the claim iss of the tokens, a URL.
	Issuer string
	// Audiences of the API: whom tokens are for that are meant for this server. A
	// token without the claim is for them.
	Audiences []string
	// Keys returns those in force now in the local state; never nil. It is called for every
	// token, so it must cost next to nothing when nothing has changed.
	Keys func() *Keys
	// KeyTables are the tables that Keys follow from.
	KeyTables []string
	// Store is asked for what tokens are bound to.
	Store Store
	// Confirm makes sure that the local state has everything that was acknowledged
	// before the call. It is called before a token is refused because its object is
	// not here, which on a node that lags may be newer than the state; for one object
	// once a second. So it is before a token is refused because its key is not here: for
	// all those together, a few times a second. May be nil.
	Confirm func(ctx context.Context) error
	// Uses is told which key a token was verified with, with the context of its request. If
	// it returns true, the key is looked up once more: the function ends requests whose
	// key has ended, and did not know of this one yet. May be nil.
	Uses func(ctx context.Context, key string) bool
	// Now is the clock. Default: time.Now.
	Now func() time.Time
}

// Store is what is needed of the replicated store.
type Store interface {
	// State is the local state. It may be replaced as a whole by a snapshot.
	State() *mvcc.State
}

// Accounts issues and recognizes the tokens of service accounts. Safe for
// concurrent use.
type Accounts struct {
	cfg   Config
	newer catchUp // for keys that are not here

	mu       sync.Mutex
	verified map[[sha256.Size]byte]*verified // by token; emptied when full
	gone     map[auth.Object]time.Time       // when it was found to be; emptied when full
}

// New returns Accounts.
func New(cfg Config) (*Accounts, error) {
	if cfg.Issuer == "" || cfg.Keys == nil || cfg.Store == nil {
		return nil, errors.New("service account tokens: Issuer, Keys and Store are required")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if len(cfg.Audiences) == 0 {
		cfg.Audiences = []string{cfg.Issuer}
	}
	return &Accounts{cfg: cfg}, nil
}

// Audiences of the API.
func (a *Accounts) Audiences() []string { return a.cfg.Audiences }

// Ref names an object and which one of that name.
type Ref struct {
	Name string `json:"name,omitempty"`
	UID  string `json:"uid,omitempty"`
}

// Claims are what a token says. At most one of Pod and Secret is set; Node is the
// object that the token is bound to, or where its pod runs.
type Claims struct {
	Namespace string `json:"namespace,omitempty"`
	Account   Ref    `json:"serviceaccount,omitempty"`
	Pod       *Ref   `json:"pod,omitempty"`
	Secret    *Ref   `json:"secret,omitempty"`
	Node      *Ref   `json:"node,omitempty"`
	// WarnAfter is when the holder should long have fetched a newer token.
	WarnAfter *jwt.NumericDate `json:"warnafter,omitempty"`
}

// private are the claims that no standard gives a name.
type private struct {
	Kubernetes Claims `json:"kubernetes.io,omitempty"`
}

// audiences are a list also if there is one, as in upstream's tokens; the library would write a
// text.
type audiences struct {
	List []string `json:"aud,omitempty"`
}

// Spec is what a token is to say.
type Spec struct {
	Claims    Claims // without WarnAfter
	Audiences []string
	// Now is when it is issued, and from when on it is valid; ValidFor is for how long.
	Now      time.Time
	ValidFor time.Duration
	// WarnAfter is for how long its holder may use it before it should have a newer one.
	// Zero: as long as it is valid.
	WarnAfter time.Duration
}

// Issue signs a token of the account that the claims name. Errors: ErrNoKey.
func (a *Accounts) Issue(s Spec) (string, error) {
	signer := a.cfg.Keys().signer
	if signer == nil {
		return "", fmt.Errorf("sign a token: %w", ErrNoKey)
	}
	claims := s.Claims
	if s.WarnAfter > 0 {
		claims.WarnAfter = jwt.NewNumericDate(s.Now.Add(s.WarnAfter))
	}
	issued := jwt.NewNumericDate(s.Now)
	standard := jwt.Claims{
		Issuer: a.cfg.Issuer, Subject: auth.ServiceAccountUser(claims.Namespace, claims.Account.Name), ID: uuid.NewString(),
		IssuedAt: issued, NotBefore: issued, Expiry: jwt.NewNumericDate(s.Now.Add(s.ValidFor)),
	}
	signed, err := jwt.Signed(signer).Claims(private{claims}).Claims(audiences{s.Audiences}).Claims(standard).Serialize()
	if err != nil {
		return "", fmt.Errorf("sign a token: %w", err)
	}
	return signed, nil
}
