package node

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
)

// signer is an authority of clients that is not the cluster's.
type signer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newSigner(t *testing.T, name string) *signer {
	t.Helper()
	s := &signer{}
	template := &x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	s.cert, s.key = s.sign(t, template)
	return s
}

// sign signs a certificate of a new key; the first one that it signs is its own.
func (s *signer) sign(t *testing.T, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.OK(t, err)
	parent, by := s.cert, s.key
	if parent == nil {
		parent, by = template, key
	}
	template.SerialNumber, template.NotBefore, template.NotAfter = big.NewInt(1), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
	must.OK(t, err)
	cert, err := x509.ParseCertificate(der)
	must.OK(t, err)
	return cert, key
}

// client is a client with a certificate of this authority. Unless the server says that it knows the
// authority, Go's client sends none.
func (s *signer) client(t *testing.T, n *Node, user string) *http.Client {
	t.Helper()
	cert, key := s.sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: user, Organization: []string{"guests"}}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{
		RootCAs: n.pki.APIRoots(), Certificates: []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}},
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 10 * time.Second}
}

func (s *signer) pem() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.cert.Raw}))
}

// whoami asks the server who asks: the user, its groups, or the refusal.
func whoami(t *testing.T, n *Node, c *http.Client) string {
	t.Helper()
	r, err := c.Post(n.URL()+"/apis/authentication.k8s.io/v1/selfsubjectreviews", "application/json",
		strings.NewReader(`{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`))
	must.OK(t, err)
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	must.OK(t, err)
	var got struct {
		Status struct {
			UserInfo struct {
				Username string
				Groups   []string
			}
		}
	}
	if r.StatusCode != http.StatusCreated {
		return r.Status
	}
	must.OK(t, json.Unmarshal(text, &got))
	return fmt.Sprint(got.Status.UserInfo.Username, " ", got.Status.UserInfo.Groups)
}

// runs serves until the test ends.
func runs(t *testing.T, c Config) *Node {
	t.Helper()
	n := open(t, c)
	go func() {
		if err := n.Run(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("Run: %v", err)
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	must.OK(t, n.Ready(ctx))
	return n
}

// TestClientCA: certificates that an authority of the file has signed are users beside those of the cluster's
// own, and the file is read again: a new authority counts, one that is gone does not, also on
// connections that are open. A file that cannot be used changes nothing.
func TestClientCA(t *testing.T) {
	first, second := newSigner(t, "first"), newSigner(t, "second")
	c := alone(t)
	c.ClientCA = filepath.Join(t.TempDir(), "ca.crt")
	write := func(text string) {
		t.Helper()
		must.OK(t, os.WriteFile(c.ClientCA+".new", []byte(text), 0o600))
		must.OK(t, os.Rename(c.ClientCA+".new", c.ClientCA))
	}
	write("to be read over\n" + first.pem())
	n := runs(t, c)
	anna, bert := first.client(t, n, "anna"), second.client(t, n, "bert")
	own := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{
		RootCAs: n.pki.APIRoots(), Certificates: []tls.Certificate{*n.pki.AdminCertificate()}}}}
	t.Cleanup(own.CloseIdleConnections)
	const (
		isAnna = "anna [guests system:authenticated]"
		isBert = "bert [guests system:authenticated]"
		nobody = "403 Forbidden" // the client has sent no certificate: the user is anonymous
		broken = "401 Unauthorized"
	)
	expect := func(when, wantAnna, wantBert string) {
		t.Helper()
		if a, b, o := whoami(t, n, anna), whoami(t, n, bert), whoami(t, n, own); a != wantAnna || b != wantBert || !strings.HasPrefix(o, "quorate-admin [system:masters") {
			t.Errorf("%s: anna is %s, bert %s, the administrator %s", when, a, b, o)
		}
	}
	expect("first", isAnna, nobody)

	reread := func(text string) {
		t.Helper()
		write(text)
		if _, err := n.clientCAs.read(); err != nil {
			t.Fatal(err)
		}
	}
	reread(first.pem() + second.pem())
	bert.CloseIdleConnections()
	expect("both", isAnna, isBert)
	reread(second.pem())
	expect("anna's is gone", broken, isBert)
	anna.CloseIdleConnections()
	write("nothing")
	if changed, err := n.clientCAs.read(); changed || err == nil || !strings.Contains(err.Error(), "no certificate in PEM") {
		t.Errorf("nothing in the file: changed %v, %v", changed, err)
	}
	expect("nothing in the file", nobody, isBert)

	// And nobody has to ask for it.
	if testing.Short() {
		return // it takes clientCALook
	}
	write(first.pem())
	for deadline := time.Now().Add(4 * clientCALook); whoami(t, n, anna) != isAnna; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the file is not read again")
		}
	}
}

// TestClientCARefused: a file that was wrong from the beginning keeps the node from starting.
func TestClientCARefused(t *testing.T) {
	dir := t.TempDir()
	for name, want := range map[string]string{
		"missing": "no such file", "empty": "no certificate in PEM", "torn": "x509: ", "huge": "larger than",
		"key": "no certificate in PEM",
	} {
		text := map[string]string{
			"torn": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "huge": strings.Repeat("#\n", maxClientCAs/2+1),
			"key": "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
		}[name]
		file := filepath.Join(dir, name)
		if name != "missing" {
			must.OK(t, os.WriteFile(file, []byte(text), 0o600))
		}
		c := defaults()
		c.ClientCA = file
		if err := c.Complete(); err == nil || !strings.Contains(err.Error(), "client-ca-file: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}
