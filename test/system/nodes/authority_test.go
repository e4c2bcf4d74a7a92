//go:build linux

package nodes

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
)

// authority is a certificate authority of the site, which --client-ca-file names: it makes the
// users of the control plane, and the certificates of webhooks.
type authority struct {
	cert     *x509.Certificate
	key      *ecdsa.PrivateKey
	certFile string
}

func newAuthority(t *testing.T, dir string) *authority {
	t.Helper()
	key := newKey(t)
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "site"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	must.OK(t, err)
	cert, err := x509.ParseCertificate(der)
	must.OK(t, err)
	a := &authority{cert: cert, key: key, certFile: filepath.Join(dir, "site-ca.crt")}
	writeFile(t, a.certFile, pemOf("CERTIFICATE", der))
	return a
}

// user returns a client certificate and its key, in PEM.
func (a *authority) user(t *testing.T, name string, groups ...string) (cert, key []byte) {
	t.Helper()
	return a.sign(t, &x509.Certificate{
		Subject:     pkix.Name{CommonName: name, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// server returns a serving certificate and its key, in PEM.
func (a *authority) server(t *testing.T, name string) (cert, key []byte) {
	t.Helper()
	return a.sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
}

func (a *authority) sign(t *testing.T, tmpl *x509.Certificate) (cert, key []byte) {
	t.Helper()
	k := newKey(t)
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	must.OK(t, err)
	tmpl.SerialNumber, tmpl.KeyUsage = serial, x509.KeyUsageDigitalSignature
	tmpl.NotBefore, tmpl.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(12*time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, k.Public(), a.key)
	must.OK(t, err)
	return pemOf("CERTIFICATE", der), pemKey(t, k)
}

// kubeconfig is a kubeconfig of a user of the authority, for one server.
func (a *authority) kubeconfig(t *testing.T, caFile, server, name string, groups ...string) string {
	t.Helper()
	ca, err := os.ReadFile(caFile)
	must.OK(t, err)
	cert, key := a.user(t, name, groups...)
	b64 := base64.StdEncoding.EncodeToString
	return fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: u, user: {client-certificate-data: %s, client-key-data: %s}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
current-context: c
`, server, b64(ca), b64(cert), b64(key))
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.OK(t, err)
	return key
}

func pemKey(t *testing.T, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.MarshalECPrivateKey(key)
	must.OK(t, err)
	return pemOf("EC PRIVATE KEY", der)
}

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func writeFile(t *testing.T, path string, data []byte) {
	t.Helper()
	must.OK(t, os.WriteFile(path, data, 0o600))
}
