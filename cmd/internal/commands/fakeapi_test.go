package commands

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/membership/pki"
	certificatesv1 "k8s.io/api/certificates/v1"
)

// fakeAPI is as much of a server as commands ask for: members, tokens, requests for certificates.
type fakeAPI struct {
	t      *testing.T
	server *httptest.Server
	signs  time.Duration // as long as it signs for

	mu      sync.Mutex
	refuses map[string]func(http.ResponseWriter) // by method and path, or the beginning of it
	asked   []string                             // method and path
	csr     certificatesv1.CertificateSigningRequest
}

func newFakeAPI(t *testing.T) *fakeAPI {
	t.Helper()
	f := &fakeAPI{t: t, signs: 365 * 24 * time.Hour, refuses: map[string]func(http.ResponseWriter){}}
	f.server = httptest.NewTLSServer(f)
	t.Cleanup(f.server.Close)
	return f
}

// kubeconfig writes one of a user who is in groups.
func (f *fakeAPI) kubeconfig(user string, groups ...string) string {
	f.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.OK(f.t, err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	must.OK(f.t, err)
	file := filepath.Join(f.t.TempDir(), "in-use")
	k := pki.Kubeconfig{
		Endpoints: []pki.Endpoint{{Name: "quorate-n1", Server: f.server.URL}},
		CA:        pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.server.Certificate().Raw}),
		Cert:      f.sign(pkix.Name{CommonName: user, Organization: groups}, &key.PublicKey, time.Now().Add(time.Hour)),
		Key:       pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
	}
	b, err := k.Encode()
	must.OK(f.t, err)
	must.OK(f.t, os.WriteFile(file, b, 0o600))
	return file
}

// sign makes a certificate; whose key has signed it does not matter to commands.
func (f *fakeAPI) sign(subject pkix.Name, public crypto.PublicKey, end time.Time) []byte {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.t.Error(err)
		return nil
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: subject, NotBefore: time.Now().Add(-time.Minute), NotAfter: end}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, key)
	if err != nil {
		f.t.Error(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// refuse has requests be answered with a Status.
func (f *fakeAPI) refuse(request string, code int, reason, message string) {
	f.refuses[request] = func(w http.ResponseWriter) {
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"kind":"Status","reason":%q,"message":%q}`, reason, message)
	}
}

// ServeHTTP implements http.Handler.
func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	request := r.Method + " " + r.URL.Path
	f.asked = append(f.asked, request)
	for beginning, refuse := range f.refuses {
		if strings.HasPrefix(request, beginning) {
			refuse(w)
			return
		}
	}
	body, _ := io.ReadAll(r.Body)
	answer := func(v any) { _ = json.NewEncoder(w).Encode(v) }
	switch {
	case request == "GET "+membership.AdminPath+"members":
		answer(membership.MemberList{Members: []membership.MemberInfo{{ID: "1", Name: "n1", APIAddress: f.server.URL}}})
	case request == "GET "+membership.AdminPath+"tokens":
		answer(membership.TokenList{Tokens: []membership.TokenInfo{{ID: "for-a-node"}}})
	case request == "GET "+membership.AdminPath+"status":
		answer(membership.ClusterStatus{Voters: 2, LiveVoters: 1, Members: []membership.MemberStatus{
			{MemberInfo: membership.MemberInfo{ID: "1", Name: "n1", Voter: true}, Role: "candidate"},
			{MemberInfo: membership.MemberInfo{ID: "2", Name: "n2", Voter: true, PeerAddress: "host-2:7443"}, Error: "dead"},
		}})
	case request == "POST "+requestsPath:
		f.take(body)
		answer(f.csr)
	case strings.HasPrefix(request, "PUT "+requestsPath) && strings.HasSuffix(request, "/approval"):
		f.take(body)
		f.csr.Status.Certificate = f.signed()
		answer(f.csr)
	case strings.HasPrefix(request, "GET "+requestsPath):
		answer(f.csr)
	case strings.HasPrefix(request, "DELETE "+requestsPath):
		f.csr.Name = ""
		answer(map[string]string{"kind": "Status"})
	default:
		http.NotFound(w, r)
	}
}

func (f *fakeAPI) take(body []byte) {
	f.csr = certificatesv1.CertificateSigningRequest{}
	if err := json.Unmarshal(body, &f.csr); err != nil {
		f.t.Error(err)
	}
}

func (f *fakeAPI) signed() []byte {
	block, _ := pem.Decode(f.csr.Spec.Request)
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		f.t.Error(err)
		return nil
	}
	valid := f.signs
	if s := f.csr.Spec.ExpirationSeconds; s != nil {
		valid = min(valid, time.Duration(*s)*time.Second)
	}
	return f.sign(request.Subject, request.PublicKey, time.Now().Add(valid))
}

// wasAsked says whether there was a request that begins so.
func (f *fakeAPI) wasAsked(beginning string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(f.asked, func(s string) bool { return strings.HasPrefix(s, beginning) })
}
