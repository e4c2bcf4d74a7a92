package auth

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// Certificates recognizes TLS client certificates: the common name is the user,
// the organizations are its groups. The TLS layer has verified the chain for
// client authentication when the connection began; what is checked here on every
// request is that no certificate of the chain has expired since, and Refuse. The zero value
// is ready to use.
type Certificates struct {
	// Now is the clock. Default: time.Now.
	Now func() time.Time
	// Observe is told how long the certificate of a request is still valid. May
	// be nil.
	Observe func(remaining time.Duration)
	// Refuse returns why a certificate is refused although it is valid, or nil. It is
	// asked on every request, concurrently, and must not block. May be nil.
	Refuse func(leaf *x509.Certificate) error

	mu    sync.Mutex
	users map[*x509.Certificate]*User // by leaf; emptied when full
}

// maxCertUsers bounds the users that are kept between requests.
const maxCertUsers = 1024

// uidOID is where a certificate's subject may carry the user's UID.
var uidOID = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57683, 2}

// Authenticate implements Authenticator.
func (c *Certificates) Authenticate(r *http.Request) (*User, bool, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil, false, nil
	}
	if len(r.TLS.VerifiedChains) == 0 {
		return nil, false, errors.New("client certificate: not verified")
	}
	now := time.Now
	if c.Now != nil {
		now = c.Now
	}
	at := now()
	if err := anyCurrent(r.TLS.VerifiedChains, at); err != nil {
		return nil, false, err
	}
	leaf := r.TLS.VerifiedChains[0][0]
	if c.Refuse != nil {
		if err := c.Refuse(leaf); err != nil {
			return nil, false, fmt.Errorf("client certificate: %w", err)
		}
	}
	if c.Observe != nil {
		c.Observe(leaf.NotAfter.Sub(at))
	}
	c.mu.Lock()
	u := c.users[leaf]
	c.mu.Unlock()
	if u != nil {
		return u, true, nil
	}
	u, err := certUser(leaf)
	if err != nil {
		return nil, false, err
	}
	c.mu.Lock()
	if c.users == nil || len(c.users) >= maxCertUsers {
		c.users = make(map[*x509.Certificate]*User)
	}
	c.users[leaf] = u
	c.mu.Unlock()
	return u, true, nil
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
		Extra:  map[string][]string{CredentialID: {"X509SHA256=" + hex.EncodeToString(sum[:])}},
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
