package access

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/membership/pki"
	"github.com/quorate/quorate/test/harness/cluster"
)

// TestClientCertificates: a certificate that does not hold is answered with 401, as by
// upstream: were the handshake refused, a client could not tell it from a lost connection.
// A token counts beside it.
func TestClientCertificates(t *testing.T) {
	c := cluster.Shared(t)
	n := c.Nodes()[0]
	own, err := pki.LoadSecrets(filepath.Join(c.Dir, "token"))
	must.OK(t, err)
	now := time.Now()
	namespace := fmt.Sprintf("certificates-%d", now.UnixNano()) // the cluster outlives the test, which may run again
	cluster.Namespace(t, n, namespace)
	n.Must(t, http.StatusCreated, http.MethodPost, "/api/v1/namespaces/"+namespace+"/serviceaccounts", "application/json", `{"metadata":{"name":"robot"}}`)
	var token string
	cluster.Await(t, 20*time.Second, n.Name+" issues a token", func() string {
		r, err := n.Typed(t).CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), "robot", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err != nil {
			return err.Error()
		}
		token = r.Status.Token
		return ""
	})
	for _, x := range []struct {
		name    string
		secrets []pki.Secret
		made    time.Time
		token   string
		want    int
		message string
	}{
		{"valid", own, now, "", http.StatusOK, `"kind":"APIVersions"`},
		{"ended", own, now.AddDate(-2, 0, 0), "", http.StatusUnauthorized, `"message":"Unauthorized"`},
		{"of the future", own, now.AddDate(1, 0, 0), "", http.StatusUnauthorized, `"message":"Unauthorized"`},
		{"of another cluster", []pki.Secret{pki.NewSecret()}, now, "", http.StatusUnauthorized, `"message":"Unauthorized"`},
		{"ended, with a token", own, now.AddDate(-2, 0, 0), token, http.StatusOK, `"kind":"APIVersions"`},
	} {
		admin, err := pki.Open(pki.Options{Dir: t.TempDir(), Secrets: x.secrets, AdminOnly: true, Now: func() time.Time { return x.made }})
		must.OK(t, err)
		for _, protocols := range [][]string{{"h2"}, {"http/1.1"}} {
			cfg, err := n.TLS()
			must.OK(t, err)
			cfg.NextProtos, cfg.Certificates = protocols, nil
			// Whatever authorities the server says it knows.
			cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return admin.AdminCertificate(), nil }
			transport := &http.Transport{TLSClientConfig: cfg, ForceAttemptHTTP2: protocols[0] == "h2"}
			r, err := http.NewRequest(http.MethodGet, n.API+"/api", nil)
			must.OK(t, err)
			if x.token != "" {
				r.Header.Set("Authorization", "Bearer "+x.token)
			}
			w, err := (&http.Client{Transport: transport, Timeout: 30 * time.Second}).Do(r)
			if err != nil {
				t.Errorf("%s, %s: %v", x.name, protocols, err)
				continue
			}
			body, err := io.ReadAll(w.Body)
			_ = w.Body.Close()
			transport.CloseIdleConnections()
			if err != nil || w.StatusCode != x.want || !strings.Contains(string(body), x.message) {
				t.Errorf("%s, %s: %d %s (%v), want %d", x.name, protocols, w.StatusCode, body, err, x.want)
			}
		}
	}
	// The operator finds out why.
	log, err := os.ReadFile(n.Log)
	must.OK(t, err)
	if !regexp.MustCompile(`WARN msg="a credential does not hold" from=127\.0\.0\.1:\d+ err="unauthorized: client certificate: `).Match(log) {
		t.Error("the node's log does not say why a certificate is refused")
	}
}

// TestLargeClientCertificates: certificates that are large in memory do not get past the
// handshake, and a node keeps nothing of them.
func TestLargeClientCertificates(t *testing.T) {
	n := cluster.Shared(t).Nodes()[0]
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.OK(t, err)
	// 250 KB of names of two bytes, which are some 20 MB when they are parsed.
	names, err := asn1.Marshal(asn1.RawValue{Class: asn1.ClassUniversal, Tag: asn1.TagSequence, IsCompound: true, Bytes: bytes.Repeat([]byte{0x86, 0}, 125_000)})
	must.OK(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour),
		ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 17}, Value: names}},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must.OK(t, err)
	n.MustGet(t, "/livez")
	before := n.Resident(t)
	for range 60 {
		cfg, err := n.TLS()
		must.OK(t, err)
		cfg.Certificates = nil
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
		}
		transport := &http.Transport{TLSClientConfig: cfg}
		w, err := (&http.Client{Transport: transport, Timeout: 30 * time.Second}).Get(n.API + "/livez")
		if err == nil {
			_ = w.Body.Close()
			t.Fatalf("it was answered %d", w.StatusCode)
		}
		transport.CloseIdleConnections()
	}
	// What one handshake takes is collected; 60 of them would be above a gigabyte.
	if grown := n.Resident(t) - before; grown > 500<<20 {
		t.Errorf("%d MiB more are in use", grown>>20)
	}
	n.MustGet(t, "/livez")
}
