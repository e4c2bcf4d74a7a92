package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"strconv"
	"time"
)

// The labels are part of every cluster's keys: never change one.
const (
	labelSalt  = "quorate pki 1"
	labelAPI   = "api-ca"
	labelPeer  = "peer-ca"
	labelProxy = "front-proxy-ca"
)

// A CA is valid from before any clock to beyond any cluster: it is exchanged by
// changing the secret, not by waiting.
var (
	caNotBefore = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	caNotAfter  = time.Date(2120, 1, 1, 0, 0, 0, 0, time.UTC)
)

// Authority is a CA that was derived from a cluster secret: key, subject, serial
// number and key identifier are the same on every node, and with the same Go
// release so are the bytes of the certificate. It is immutable.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// authorities are everything that one secret yields.
type authorities struct {
	api, peer *Authority
	proxy     *Authority // vouches for this API to aggregated servers, and for nobody else
}

func derive(s Secret) (authorities, error) {
	var a authorities
	prk, err := hkdf.Extract(sha256.New, []byte(s.text), []byte(labelSalt))
	if err != nil {
		return a, fmt.Errorf("derive: %w", err)
	}
	if a.api, err = deriveAuthority(prk, labelAPI, "Quorate API CA"); err != nil {
		return a, err
	}
	if a.peer, err = deriveAuthority(prk, labelPeer, "Quorate peer CA"); err != nil {
		return a, err
	}
	a.proxy, err = deriveAuthority(prk, labelProxy, "Quorate front proxy CA")
	return a, err
}

// deriveKey expands label until the 32 bytes are a scalar of P-256: all but one
// in 2^32 are, so a second try is never seen, but it is part of the definition.
func deriveKey(prk []byte, label string) (*ecdsa.PrivateKey, error) {
	for i := range 256 {
		b, err := hkdf.Expand(sha256.New, prk, label+" key "+strconv.Itoa(i), 32)
		if err != nil {
			return nil, fmt.Errorf("derive %s: %w", label, err)
		}
		if k, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), b); err == nil {
			return k, nil
		}
	}
	return nil, fmt.Errorf("derive %s: no key", label)
}

func deriveAuthority(prk []byte, label, name string) (*Authority, error) {
	key, err := deriveKey(prk, label)
	if err != nil {
		return nil, err
	}
	serial, err := hkdf.Expand(sha256.New, prk, label+" serial", 16)
	if err != nil {
		return nil, fmt.Errorf("derive %s: %w", label, err)
	}
	serial[0] = serial[0]&0x7f | 0x40 // positive, and of a fixed length
	spki, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return nil, fmt.Errorf("derive %s: %w", label, err)
	}
	id := sha256.Sum256(spki)
	template := &x509.Certificate{
		SerialNumber: new(big.Int).SetBytes(serial),
		// The key's name keeps two CAs apart while a cluster changes its secret.
		Subject:               pkix.Name{Organization: []string{"quorate"}, CommonName: name + " " + hex.EncodeToString(id[:4])},
		NotBefore:             caNotBefore,
		NotAfter:              caNotAfter,
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		SubjectKeyId:          id[:20],
		SignatureAlgorithm:    x509.ECDSAWithSHA256,
	}
	// Without a source of random bytes ECDSA signs deterministically (RFC 6979).
	der, err := x509.CreateCertificate(nil, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("derive %s: %w", label, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("derive %s: %w", label, err)
	}
	return &Authority{cert: cert, key: key}, nil
}

// PEM returns the CA's certificate in PEM.
func (a *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// signer signs with a CA's key, and gives it to nobody.
type signer struct{ key *ecdsa.PrivateKey }

// Public implements crypto.Signer.
func (s signer) Public() crypto.PublicKey { return s.key.Public() }

// Sign implements crypto.Signer.
func (s signer) Sign(random io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	return s.key.Sign(random, digest, opts)
}

// Pin names the CA's key: the SHA-256 of its SubjectPublicKeyInfo (as in RFC
// 7469), base64url without padding. It does not depend on the certificate's
// encoding.
func (a *Authority) Pin() string { return PinOf(a.cert) }

// PinOf returns the pin of any certificate.
func PinOf(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// issue signs a leaf for a new key. The template gives subject, names, usages
// and validity.
func (a *Authority) issue(template *x509.Certificate) (*leaf, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("issue: %w", err)
	}
	serial := make([]byte, 16)
	rand.Read(serial)
	serial[0] = serial[0]&0x7f | 0x40
	t := *template
	t.SerialNumber = new(big.Int).SetBytes(serial)
	t.KeyUsage = x509.KeyUsageDigitalSignature
	t.BasicConstraintsValid = true
	der, err := x509.CreateCertificate(rand.Reader, &t, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return nil, fmt.Errorf("issue %s: %w", t.Subject, err)
	}
	return newLeaf(der, key, a)
}

// verify checks that a leaf was signed by this authority, for a usage, and is
// valid at a time.
func (a *Authority) verify(cert *x509.Certificate, usage x509.ExtKeyUsage, now time.Time) error {
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	_, err := cert.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage}})
	return err
}

// PinOfSecret returns the pin of the API CA that a secret yields: what a join
// token names.
func PinOfSecret(s Secret) (string, error) {
	a, err := derive(s)
	if err != nil {
		return "", err
	}
	return a.api.Pin(), nil
}

var errNoSecret = errors.New("pki: a cluster secret is required")
