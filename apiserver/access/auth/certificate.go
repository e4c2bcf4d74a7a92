package auth

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// Certificates recognizes TLS client certificates: the common name is the user,
// the organizations are its groups. The TLS layer has seen that the client has the key; the
// chain is verified here, once for a connection (WithConnection), and so an answer says that
// it does not hold: in the handshake it would be a lost connection, of which a client cannot
// tell whether its request was carried out. Checked on every request are the validity of the
// chain's certificates, and Refuse. Safe for concurrent use.
type Certificates struct {
	// Roots returns the authorities of client certificates as they are now; nil: none. While it returns
	// the same pool, what a connection has shown is not verified again. Called on every request,
	// concurrently.
	Roots func() *x509.CertPool
	// Now is the clock. Default: time.Now.
	Now func() time.Time
	// Observe is told how long the certificate of a request is still valid. May
	// be nil.
	Observe func(remaining time.Duration)
	// Refuse returns why a certificate is refused although it is valid, or nil. It is
	// asked on every request, concurrently, and must not block. May be nil.
	Refuse func(leaf *x509.Certificate) error
}

// verdict is what the certificates of a connection are worth as long as they are valid, and as
// roots are the authorities.
type verdict struct {
	roots  *x509.CertPool
	chains [][]*x509.Certificate
	user   *User
	err    error // why they are worth nothing; then the others are nil
}

// verdictKey is the context key of a connection's *atomic.Pointer[verdict].
type verdictKey struct{}

// WithConnection returns the context of a connection's requests, for http.Server.ConnContext.
// What Certificates finds of the connection's certificates is kept in it, and goes with the
// connection. Without it they are verified for each request.
//
// Nothing is kept between connections: a certificate takes many times its bytes in memory, and
// those of strangers would push out each other, or stay.
func WithConnection(ctx context.Context) context.Context {
	return context.WithValue(ctx, verdictKey{}, new(atomic.Pointer[verdict]))
}

// certificatePrefix begins the CredentialID of a certificate.
const certificatePrefix = "X509SHA256="

// ByCertificate reports whether a user was recognized by a certificate.
func ByCertificate(u *User) bool {
	ids := u.Extra[CredentialID]
	return len(ids) == 1 && strings.HasPrefix(ids[0], certificatePrefix)
}

// uidOID is where a certificate's subject may carry the user's UID.
var uidOID = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57683, 2}

// Authenticate implements Authenticator.
func (c *Certificates) Authenticate(r *http.Request) (*User, bool, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil, false, nil
	}
	now := time.Now
	if c.Now != nil {
		now = c.Now
	}
	leaf, at := r.TLS.PeerCertificates[0], now()
	v := c.verdict(r.Context(), leaf, r.TLS.PeerCertificates[1:], at)
	if v.err != nil {
		return nil, false, v.err
	}
	if err := anyCurrent(v.chains, at); err != nil {
		return nil, false, err
	}
	if c.Refuse != nil {
		if err := c.Refuse(leaf); err != nil {
			return nil, false, fmt.Errorf("client certificate: %w", err)
		}
	}
	if c.Observe != nil {
		c.Observe(leaf.NotAfter.Sub(at))
	}
	return v.user, true, nil
}

// verdict judges the certificates of a connection at its first request. That they are worth
// nothing is kept as well: a client can choose a chain that is costly to verify.
func (c *Certificates) verdict(ctx context.Context, leaf *x509.Certificate, rest []*x509.Certificate, at time.Time) *verdict {
	kept, _ := ctx.Value(verdictKey{}).(*atomic.Pointer[verdict])
	roots := c.Roots()
	if kept != nil {
		if v := kept.Load(); v != nil && v.roots == roots {
			return v
		}
	}
	v := &verdict{roots: roots}
	if v.chains, v.err = verify(roots, leaf, rest, at); v.err == nil {
		if v.user, v.err = certUser(leaf); v.err != nil {
			v.chains = nil
		}
	}
	if kept != nil {
		kept.Store(v)
	}
	return v
}

// verify returns the chains from a certificate to the roots. The leaf itself need not be
// valid: that is asked on each request.
func verify(roots *x509.CertPool, leaf *x509.Certificate, rest []*x509.Certificate, at time.Time) ([][]*x509.Certificate, error) {
	if roots == nil {
		return nil, errors.New("client certificate: no authority is known")
	}
	between := x509.NewCertPool()
	for _, cert := range rest {
		between.AddCert(cert)
	}
	switch {
	case at.Before(leaf.NotBefore):
		at = leaf.NotBefore
	case at.After(leaf.NotAfter):
		at = leaf.NotAfter
	}
	chains, err := leaf.Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: between, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return nil, fmt.Errorf("client certificate: %w", err)
	}
	return chains, nil
}

// anyCurrent is nil if at least one chain is within the validity of all its members.
func anyCurrent(chains [][]*x509.Certificate, now time.Time) error {
	var failed error
next:
	for _, chain := range chains {
		for _, cert := range chain {
			if now.Before(cert.NotBefore) || now.After(cert.NotAfter) {
				failed = fmt.Errorf("client certificate: %q is valid from %s to %s", cert.Subject.CommonName,
					cert.NotBefore.UTC().Format(time.RFC3339), cert.NotAfter.UTC().Format(time.RFC3339))
				continue next
			}
		}
		return nil
	}
	return failed
}

func certUser(leaf *x509.Certificate) (*User, error) {
	if leaf.Subject.CommonName == "" {
		return nil, errors.New("client certificate: no common name")
	}
	uid, err := certUID(leaf)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(leaf.Raw)
	return authenticated(&User{
		Name:   leaf.Subject.CommonName,
		UID:    uid,
		Groups: leaf.Subject.Organization,
		Extra:  map[string][]string{CredentialID: {certificatePrefix + hex.EncodeToString(sum[:])}},
	}), nil
}

func certUID(leaf *x509.Certificate) (string, error) {
	uid, found := "", false
	for _, name := range leaf.Subject.Names {
		if !name.Type.Equal(uidOID) {
			continue
		}
		s, ok := name.Value.(string)
		if found || !ok || s == "" {
			return "", errors.New("client certificate: malformed UID in the subject")
		}
		uid, found = s, true
	}
	return uid, nil
}
