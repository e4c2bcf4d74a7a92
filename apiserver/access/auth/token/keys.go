package token

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/quorate/quorate/internal/slots"
)

// ErrNoKey is returned by Issue as long as this node has no key that all others verify with.
var ErrNoKey = errors.New("this node has no key to sign service account tokens with yet")

// errUnknownKey is for a token that names no key in force.
var errUnknownKey = errors.New("invalid signature: no member of the cluster signs with the key that the token names")

// Key is one that tokens are verified with.
type Key struct {
	Public crypto.PublicKey // *ecdsa.PublicKey of P-256, P-384 or P-521, or *rsa.PublicKey
	// Until is when the tokens end that it has signed, whatever they say. Zero: when they say.
	Until time.Time
	// IssuedBefore refuses tokens that say to be younger, but for a minute. Zero: none.
	IssuedBefore time.Time
}

// Keys are those in force at one moment. They are immutable.
type Keys struct {
	signer jose.Signer // nil: none to sign with
	byID   map[string]Key
	order  []string // of the ids, as the keys were given
}

// NewKeys returns Keys. sign may be nil. Of a key that is given twice, the one counts whose
// tokens end later.
func NewKeys(sign crypto.Signer, verify ...Key) (*Keys, error) {
	k := &Keys{byID: make(map[string]Key, len(verify))}
	for _, key := range verify {
		id, err := keyID(key.Public)
		if err == nil {
			_, err = algorithmOf(key.Public)
		}
		if err != nil {
			return nil, fmt.Errorf("service account tokens: %w", err)
		}
		if was, ok := k.byID[id]; !ok {
			k.order = append(k.order, id)
		} else if was.Until.IsZero() || !key.Until.IsZero() && !key.Until.After(was.Until) {
			continue
		}
		k.byID[id] = key
	}
	if sign == nil {
		return k, nil
	}
	id, err := keyID(sign.Public())
	if err != nil {
		return nil, fmt.Errorf("service account tokens: %w", err)
	}
	algorithm, err := algorithmOf(sign.Public())
	if err != nil {
		return nil, fmt.Errorf("service account tokens: %w", err)
	}
	k.signer, err = jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: jose.JSONWebKey{Algorithm: string(algorithm), Key: sign, KeyID: id, Use: "sig"}}, nil)
	if err != nil {
		return nil, fmt.Errorf("service account tokens: %w", err)
	}
	return k, nil
}

// Has reports whether a key is in force, by its name in tokens.
func (k *Keys) Has(id string) bool {
	_, ok := k.byID[id]
	return ok
}

// idLength is that of every key id, so that what is none costs nothing.
var idLength = base64.RawURLEncoding.EncodedLen(sha256.Size)

// keyID names a key by the hash of its public half.
func keyID(key crypto.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(der)
	return base64.RawURLEncoding.EncodeToString(sum[:]), nil
}

// algorithms are those that tokens may be signed with.
var algorithms = []jose.SignatureAlgorithm{jose.ES256, jose.ES384, jose.ES512, jose.RS256}

// algorithmOf is the one that a key signs with.
func algorithmOf(key crypto.PublicKey) (jose.SignatureAlgorithm, error) {
	switch k := key.(type) {
	case *rsa.PublicKey:
		return jose.RS256, nil
	case *ecdsa.PublicKey:
		switch k.Curve {
		case elliptic.P256():
			return jose.ES256, nil
		case elliptic.P384():
			return jose.ES384, nil
		case elliptic.P521():
			return jose.ES512, nil
		}
	}
	return "", fmt.Errorf("a key of %T is neither RSA nor ECDSA of P-256, P-384 or P-521", key)
}

// allows says whether a token of this key holds at a time, by what limits the key.
func (k *Key) allows(issued *jwt.NumericDate, now time.Time) error {
	if !k.Until.IsZero() && !now.Before(k.Until) {
		return errUnknownKey
	}
	if !k.IssuedBefore.IsZero() && (issued == nil || issued.Time().After(k.IssuedBefore.Add(jwt.DefaultLeeway))) {
		return errors.New("service account token was issued after the node that signed it was removed from the cluster")
	}
	return nil
}

// public returns the set of the keys in force at a time, in the form in which others read it.
func (k *Keys) public(now time.Time) jose.JSONWebKeySet {
	set := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{}}
	for _, id := range k.order {
		if key := k.byID[id]; key.Until.IsZero() || now.Before(key.Until) {
			algorithm, _ := algorithmOf(key.Public) // NewKeys has checked it
			set.Keys = append(set.Keys, jose.JSONWebKey{Algorithm: string(algorithm), Key: key.Public, KeyID: id, Use: "sig"})
		}
	}
	return set
}

// key returns the key that a token names. A key that is not in this node's state may be newer
// than it, so a quorum is asked before the token is refused.
func (a *Accounts) key(ctx context.Context, id string) (Key, error) {
	if k, ok := a.cfg.Keys().byID[id]; ok {
		return k, nil
	}
	if len(id) == idLength && a.cfg.Confirm != nil && a.newer.wait(ctx, a.cfg.Confirm) == nil {
		if k, ok := a.cfg.Keys().byID[id]; ok {
			return k, nil
		}
	}
	return Key{}, errUnknownKey
}

// Bounds of the questions for keys that are not here. All of this is before a request's turn
// is asked for, and for anyone who can make up a key id.
const (
	catchUpPause   = 200 * time.Millisecond // between two questions to a quorum
	catchUpTime    = 2 * time.Second        // of one
	catchUpWaiters = 64                     // requests; more are not told to wait
)

var errTooManyWait = errors.New("too many requests wait for newer keys")

// catchUp brings the local state up to date for those who wait. However many they are, one
// question is under way at a time, and few in a second. The zero value is ready to use.
type catchUp struct {
	mu      sync.Mutex
	next    *round // that has not begun; nil: none waits for one
	turn    chan struct{}
	waiting int
	last    time.Time // when a round ended
}

// round is one question to a quorum.
type round struct {
	done chan struct{} // closed when it has an answer
	err  error
}

// wait returns when the state has everything that was acknowledged before the call. The first
// who waits for a round asks for all who come before it begins; a round that has begun is too
// early for those who come later.
func (c *catchUp) wait(ctx context.Context, confirm func(context.Context) error) error {
	defer slots.Waiting(ctx)() // to the end: who has a place here must not wait for a slot
	c.mu.Lock()
	if c.waiting >= catchUpWaiters {
		c.mu.Unlock()
		return errTooManyWait
	}
	c.waiting++
	defer func() {
		c.mu.Lock()
		c.waiting--
		c.mu.Unlock()
	}()
	if c.turn == nil {
		c.turn = make(chan struct{}, 1)
	}
	r, first := c.next, false
	if r == nil {
		r, first = &round{done: make(chan struct{})}, true
		c.next = r
	}
	c.mu.Unlock()
	if first {
		c.run(ctx, r, confirm)
		return r.err
	}
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// run asks, for all who wait for a round. It does so too when the request that came first has
// ended meanwhile, and is bounded in time.
func (c *catchUp) run(ctx context.Context, r *round, confirm func(context.Context) error) {
	c.turn <- struct{}{} // the round before, if any, is bounded as this one
	defer func() { <-c.turn }()
	c.mu.Lock()
	pause := catchUpPause - time.Since(c.last)
	c.mu.Unlock()
	if pause > 0 {
		time.Sleep(pause)
	}
	c.mu.Lock()
	c.next = nil // it begins
	c.mu.Unlock()
	bounded, cancel := context.WithTimeout(slots.Without(context.WithoutCancel(ctx)), catchUpTime)
	defer cancel()
	r.err = confirm(bounded)
	close(r.done)
	c.mu.Lock()
	c.last = time.Now()
	c.mu.Unlock()
}
