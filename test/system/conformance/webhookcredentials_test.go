package conformance

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/test/harness/cluster"
)

// authority signs certificates.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// issue makes a certificate that an authority signs, or its own if that is nil.
func issue(t *testing.T, by *authority, name string) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.OK(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, IsCA: by == nil, DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	parent, signer := template, key
	if by != nil {
		parent, signer = by.certificate, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	must.OK(t, err)
	certificate, err := x509.ParseCertificate(der)
	must.OK(t, err)
	return certificate, key
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	certificate, key := issue(t, nil, "authority")
	return &authority{certificate, key}
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw})
}

// pair is a certificate of the authority, and its key, in PEM.
func (a *authority) pair(t *testing.T, name string) (certificate, key []byte) {
	t.Helper()
	c, k := issue(t, a, name)
	der, err := x509.MarshalPKCS8PrivateKey(k)
	must.OK(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// whoCalls is a webhook that refuses with the credentials that it was called with, at an address
// of its own.
func whoCalls(t *testing.T, ca *authority) (port string) {
	t.Helper()
	certificate, key := ca.pair(t, "hook")
	pair, err := tls.X509KeyPair(certificate, key)
	must.OK(t, err)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review struct{ Request struct{ UID string } }
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		who := "nobody"
		if user, password, ok := r.BasicAuth(); ok {
			who = "basic " + user + " " + password
		} else if h := r.Header.Get("Authorization"); h != "" {
			who = h
		} else if len(r.TLS.PeerCertificates) > 0 {
			who = "certificate " + r.TLS.PeerCertificates[0].Subject.CommonName
		}
		fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":false,"status":{"message":"called by %s"}}}`, review.Request.UID, who)
	}))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert}
	s.StartTLS()
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	must.OK(t, err)
	return u.Port()
}

// TestWebhookCredentials: webhooks are called with the credentials that the kubeconfig of the
// plugin's configuration has for their host, by upstream's patterns, and a changed caBundle
// counts at once although a connection is there.
func TestWebhookCredentials(t *testing.T) {
	dir := t.TempDir()
	ca, other := newAuthority(t), newAuthority(t)
	ports := map[string]string{}
	for _, name := range []string{"token", "basic", "certificate", "file", "any"} {
		ports[name] = whoCalls(t, ca)
	}
	certificate, key := ca.pair(t, "the node")
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		must.OK(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	encode := base64.StdEncoding.EncodeToString
	kubeconfig := file("kubeconfig", fmt.Sprintf(`
apiVersion: v1
kind: Config
users:
- {name: "127.0.0.1:%s", user: {token: secret}}
- {name: "127.0.0.1:%s", user: {username: alice, password: open}}
- {name: "localhost:%s", user: {client-certificate-data: %s, client-key-data: %s}}
- {name: "localhost:%s", user: {tokenFile: %s}}
- {name: "*", user: {token: others}}
`, ports["token"], ports["basic"], ports["certificate"], encode(certificate), encode(key), ports["file"], file("token", "from-a-file")))
	config := file("admission.yaml", fmt.Sprintf(`
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: ValidatingAdmissionWebhook
  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: %s}
`, kubeconfig))
	n := cluster.Start(t, 1, "admission-control-config-file="+config).Nodes()[0]
	const hooks, maps = registration + "validatingwebhookconfigurations", "/api/v1/namespaces/default/configmaps"
	var made atomic.Int64
	// called is what a webhook says of its caller.
	called := func() string {
		t.Helper()
		_, answer := n.Send(t, http.MethodPost, maps, fmt.Sprintf(`{"metadata":{"name":"a-%d"}}`, made.Add(1)))
		var status struct{ Message string }
		if err := json.Unmarshal(answer, &status); err != nil {
			t.Fatalf("%v: %s", err, answer)
		}
		return status.Message
	}
	for _, c := range []struct{ host, port, want string }{
		{"127.0.0.1", "token", "called by Bearer secret"},
		{"127.0.0.1", "basic", "called by basic alice open"},
		{"localhost", "certificate", "called by certificate the node"},
		{"localhost", "file", "called by Bearer from-a-file"},
		{"127.0.0.1", "any", "called by Bearer others"},
		{"localhost", "token", "called by Bearer others"},
	} {
		body := fmt.Sprintf(`{"metadata":{"name":"w"},"webhooks":[{"name":"w.conformance.test","sideEffects":"None","admissionReviewVersions":["v1"],
			"clientConfig":{"url":"https://%s:%s","caBundle":%q},"rules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}]}]}`, c.host, ports[c.port], encode(ca.pem()))
		if code, answer := n.Send(t, http.MethodPost, hooks, body); code != 201 {
			t.Fatalf("%d %s", code, answer)
		}
		if got := called(); !strings.Contains(got, c.want) {
			t.Errorf("%s of %s: %s, want %s", c.host, c.port, got, c.want)
		}
		if c.port == "any" {
			for _, step := range []struct {
				ca   *authority
				want string
			}{{other, "x509: certificate signed by unknown authority"}, {ca, c.want}, {other, "x509: certificate signed by unknown authority"}} {
				patch := fmt.Sprintf(`[{"op":"replace","path":"/webhooks/0/clientConfig/caBundle","value":%q}]`, encode(step.ca.pem()))
				if code, answer, err := n.Exchange(t.Context(), n.HTTP(t), http.MethodPatch, hooks+"/w", "application/json-patch+json", patch); code != 200 {
					t.Fatalf("%d %s %v", code, answer, err)
				}
				if got := called(); !strings.Contains(got, step.want) {
					t.Errorf("with another caBundle: %s, want %s", got, step.want)
				}
			}
		}
		if code, answer := n.Send(t, http.MethodDelete, hooks+"/w", ""); code != 200 {
			t.Fatalf("%d %s", code, answer)
		}
	}
}
