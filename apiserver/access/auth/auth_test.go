package auth

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// authority signs client certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool // of cert alone
}

// newAuthority makes one that is valid a day before and after epoch. Without a parent it
// is a root.
func newAuthority(t testing.TB, name string, parent *authority) *authority {
	t.Helper()
	a := &authority{}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: epoch.AddDate(0, 0, -1), NotAfter: epoch.AddDate(0, 0, 1),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	if parent == nil {
		parent = &authority{cert: template, key: a.key}
	}
	a.cert, a.pool = parent.sign(t, template, &a.key.PublicKey), x509.NewCertPool()
	a.pool.AddCert(a.cert)
	return a
}

func (a *authority) roots() *x509.CertPool { return a.pool }

func (a *authority) sign(t testing.TB, template *x509.Certificate, public *ecdsa.PublicKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, public, a.key)
	must.OK(t, err)
	c, err := x509.ParseCertificate(der)
	must.OK(t, err)
	return c
}

// client signs a certificate that is valid for an hour from epoch on.
func (a *authority) client(t testing.TB, subject pkix.Name, usage x509.ExtKeyUsage) *x509.Certificate {
	t.Helper()
	return a.sign(t, &x509.Certificate{SerialNumber: big.NewInt(2), Subject: subject, NotBefore: epoch, NotAfter: epoch.Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{usage}}, &a.key.PublicKey)
}

func request(chain ...*x509.Certificate) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/api", nil)
	r.TLS = nil
	if len(chain) > 0 {
		r.TLS = &tls.ConnectionState{PeerCertificates: chain}
	}
	return r
}

type tokens map[string]*User

func (x tokens) AuthenticateToken(_ context.Context, token string) (*User, bool, error) {
	if token == "expired" {
		return nil, false, errors.New("expired yesterday")
	}
	u, ok := x[token]
	return u, ok, nil
}

func TestAuthenticate(t *testing.T) {
	ca, stranger := newAuthority(t, "ca", nil), newAuthority(t, "ca", nil)
	below := newAuthority(t, "below", ca)
	client := x509.ExtKeyUsageClientAuth
	name := pkix.Name{CommonName: "alice", Organization: []string{"dev", "ops"}, ExtraNames: []pkix.AttributeTypeAndValue{{Type: uidOID, Value: "u-1"}}}
	alice, fromBelow := ca.client(t, name, client), below.client(t, name, client)
	nameless := ca.client(t, pkix.Name{Organization: []string{Masters}}, client)
	bearer := func(v string) *http.Request {
		r := request()
		r.Header.Set("Authorization", v)
		return r
	}
	both := request(alice)
	both.Header.Set("Authorization", "Bearer nonsense")
	ended := request(alice)
	ended.Header.Set("Authorization", "Bearer good")
	for _, c := range []struct {
		name   string
		r      *http.Request
		now    time.Time
		user   string // empty: 401
		groups []string
	}{
		{"nothing is anonymous", request(), epoch, Anonymous, []string{Unauthenticated}},
		{"certificate", request(alice), epoch, "alice", []string{"dev", "ops", Authenticated}},
		{"certificate at its end", request(alice), epoch.Add(time.Hour), "alice", []string{"dev", "ops", Authenticated}},
		{"certificate that expired on an open connection", request(alice), epoch.Add(time.Hour + time.Second), "", nil},
		{"certificate that is not valid yet", request(alice), epoch.Add(-time.Second), "", nil},
		{"certificate that has ended, and a token", ended, epoch.Add(2 * time.Hour), "bob", []string{Authenticated}},
		{"certificate of another authority with the same name", request(stranger.client(t, name, client)), epoch, "", nil},
		{"certificate of another authority, which it brings along", request(stranger.client(t, name, client), stranger.cert), epoch, "", nil},
		{"certificate of an authority below ours", request(fromBelow, below.cert), epoch, "alice", []string{"dev", "ops", Authenticated}},
		{"certificate of an authority that is missing", request(fromBelow), epoch, "", nil},
		{"certificate of a server", request(ca.client(t, name, x509.ExtKeyUsageServerAuth)), epoch, "", nil},
		{"certificate without a name, of masters", request(nameless), epoch, "", nil},
		{"certificate wins over a token", both, epoch, "alice", []string{"dev", "ops", Authenticated}},
		{"token", bearer("Bearer good"), epoch, "bob", []string{Authenticated}},
		{"scheme in any case", bearer("bearer good"), epoch, "bob", []string{Authenticated}},
		{"unknown token", bearer("Bearer bad"), epoch, "", nil},
		{"expired token", bearer("Bearer expired"), epoch, "", nil},
		{"empty token is none", bearer("Bearer "), epoch, Anonymous, []string{Unauthenticated}},
		{"basic is no credential of ours", bearer("Basic YTpi"), epoch, Anonymous, []string{Unauthenticated}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := &Authentication{Tokens: []TokenAuthenticator{tokens{"good": {Name: "bob"}}},
				Authenticators: []Authenticator{&Certificates{Roots: ca.roots, Now: func() time.Time { return c.now }}}}
			u, err := a.Authenticate(c.r)
			if c.user == "" {
				if !errors.Is(err, ErrUnauthorized) || u != nil {
					t.Fatalf("user %v, error %v", u, err)
				}
				if s := apierrors.APIStatus(nil); !errors.As(err, &s) || s.Status().Code != 401 || s.Status().Message != "Unauthorized" || s.Status().Details != nil {
					t.Errorf("status %v", s)
				}
				return
			}
			must.OK(t, err)
			if u.Name != c.user || !slices.Equal(u.Groups, c.groups) {
				t.Errorf("%s %q, want %s %q", u.Name, u.Groups, c.user, c.groups)
			}
			if c.user == "alice" && (u.UID != "u-1" || len(u.Extra[CredentialID]) != 1) {
				t.Errorf("uid %q extra %q", u.UID, u.Extra)
			}
			if c.user == "bob" && c.r.Header.Get("Authorization") != "" {
				t.Error("the token is still in the request")
			}
		})
	}
}

func TestNoAnonymous(t *testing.T) {
	a := &Authentication{NoAnonymous: true}
	if _, err := a.Authenticate(request()); !errors.Is(err, ErrUnauthorized) {
		t.Errorf("error %v", err)
	}
}

// TestRefusedCertificate: what is refused is asked on each request, also for a
// certificate whose user is known.
func TestRefusedCertificate(t *testing.T) {
	refused := false
	ca := newAuthority(t, "ca", nil)
	c := &Certificates{Roots: ca.roots, Now: func() time.Time { return epoch }, Refuse: func(leaf *x509.Certificate) error {
		if refused && leaf.Subject.CommonName == "one" {
			return errors.New("its node was removed")
		}
		return nil
	}}
	a := &Authentication{Authenticators: []Authenticator{c}}
	one := request(ca.client(t, pkix.Name{CommonName: "one"}, x509.ExtKeyUsageClientAuth))
	two := request(ca.client(t, pkix.Name{CommonName: "two"}, x509.ExtKeyUsageClientAuth))
	if u, err := a.Authenticate(one); err != nil || u.Name != "one" {
		t.Fatalf("%v %v", u, err)
	}
	refused = true
	if u, err := a.Authenticate(one); !errors.Is(err, ErrUnauthorized) {
		t.Errorf("a refused certificate: %v %v", u, err)
	}
	if u, err := a.Authenticate(two); err != nil || u.Name != "two" {
		t.Errorf("another certificate: %v %v", u, err)
	}
}

// TestVerdictsOfConnections: certificates are verified once for a connection, also those that
// do not hold; and another connection with the same leaf does not count, for its chain may be
// another.
func TestVerdictsOfConnections(t *testing.T) {
	now := epoch.Add(2 * time.Hour)
	ca := newAuthority(t, "ca", nil)
	below := newAuthority(t, "below", ca)
	c := &Certificates{Roots: ca.roots, Now: func() time.Time { return now }}
	leaf := below.client(t, pkix.Name{CommonName: "one"}, x509.ExtKeyUsageClientAuth)
	whole, short := WithConnection(t.Context()), WithConnection(t.Context())
	ask := func(ctx context.Context, chain ...*x509.Certificate) (*User, error) {
		u, _, err := c.Authenticate(request(chain...).WithContext(ctx))
		return u, err
	}
	if u, err := ask(whole, leaf, below.cert); u != nil || err == nil {
		t.Errorf("a certificate that has ended: %v %v", u, err)
	}
	now = epoch // the clock was wrong
	u1, err1 := ask(whole, leaf, below.cert)
	u2, err2 := ask(whole, leaf, below.cert)
	if err1 != nil || err2 != nil || u1 == nil || u1 != u2 {
		t.Errorf("verified twice: %v %v", err1, err2)
	}
	_, err1 = ask(short, leaf)
	_, err2 = ask(short, leaf)
	if err1 == nil || err1 != err2 {
		t.Errorf("verified twice: %v %v", err1, err2)
	}
	if u, err := ask(WithConnection(t.Context()), leaf, below.cert); err != nil || u.Name != "one" {
		t.Errorf("behind a connection that lacks the chain: %v %v", u, err)
	}
	if u, err := ask(t.Context(), leaf, below.cert); err != nil || u.Name != "one" {
		t.Errorf("without a connection: %v %v", u, err)
	}
}

// TestRootsChange: what a connection has shown is judged again when the authorities are others.
func TestRootsChange(t *testing.T) {
	before, after := newAuthority(t, "before", nil), newAuthority(t, "after", nil)
	roots := before.roots()
	c := &Certificates{Roots: func() *x509.CertPool { return roots }, Now: func() time.Time { return epoch }}
	r := request(after.client(t, pkix.Name{CommonName: "one"}, x509.ExtKeyUsageClientAuth)).WithContext(WithConnection(t.Context()))
	for _, x := range []struct {
		roots *x509.CertPool
		ok    bool
	}{{roots, false}, {after.roots(), true}, {nil, false}, {after.roots(), true}, {before.roots(), false}} {
		roots = x.roots
		if u, ok, err := c.Authenticate(r); ok != x.ok || ok != (err == nil) || ok != (u != nil) {
			t.Errorf("%v %v %v, want %v", u, ok, err, x.ok)
		}
	}
}

// TestBoundCertificates: what may be sent as a client's certificates, before anybody is asked
// whether they hold.
func TestBoundCertificates(t *testing.T) {
	ca := newAuthority(t, "ca", nil)
	with := func(change func(*x509.Certificate)) []byte {
		template := &x509.Certificate{SerialNumber: big.NewInt(3), Subject: pkix.Name{CommonName: "x"}, NotBefore: epoch, NotAfter: epoch.Add(time.Hour)}
		change(template)
		return ca.sign(t, template, &ca.key.PublicKey).Raw
	}
	names := func(n int) []byte {
		return with(func(c *x509.Certificate) {
			// The shortest names there are: URIs of no letter.
			value, err := asn1.Marshal(asn1.RawValue{Class: asn1.ClassUniversal, Tag: asn1.TagSequence, IsCompound: true, Bytes: bytes.Repeat([]byte{0x86, 0}, n)})
			must.OK(t, err)
			c.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 17}, Value: value}}
		})
	}
	groups := with(func(c *x509.Certificate) {
		for i := range 100 {
			c.Subject.Organization = append(c.Subject.Organization, fmt.Sprint("group-", i))
		}
	})
	plain := with(func(*x509.Certificate) {})
	padded := func(n int) []byte {
		return with(func(c *x509.Certificate) {
			c.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57683, 9}, Value: make([]byte, n)}}
		})
	}
	for _, x := range []struct {
		name string
		raw  [][]byte
		ok   bool
	}{
		{"none", nil, true},
		{"a client's", [][]byte{plain}, true},
		{"with a hundred groups, and the chain", [][]byte{groups, ca.cert.Raw}, true},
		{"with many names", [][]byte{names(250)}, false},
		{"of many names in all", [][]byte{names(120), names(120)}, false},
		{"as large as TLS allows", [][]byte{names(125_000)}, false},
		{"large without names", [][]byte{padded(15 << 10)}, true},
		{"too large without names", [][]byte{padded(16 << 10)}, false},
		{"large together", [][]byte{padded(8 << 10), padded(8 << 10)}, false},
	} {
		if err := BoundCertificates(x.raw, nil); x.ok != (err == nil) || !x.ok && !errors.Is(err, ErrCertificateSize) {
			t.Errorf("%s: %v", x.name, err)
		}
	}
	if err := BoundCertificates([][]byte{{1, 2, 3}}, nil); err == nil {
		t.Error("what is no certificate is taken")
	}
}

func TestDefaultAuthorizer(t *testing.T) {
	admin := &User{Name: "admin", Groups: []string{Masters, Authenticated}}
	alice := &User{Name: "alice", Groups: []string{Authenticated}}
	path := func(u *User, verb, p string) Attributes { return Attributes{User: u, Verb: verb, Path: p} }
	pods := func(u *User) Attributes {
		return Attributes{User: u, Verb: "list", Resource: "pods", APIVersion: "v1", Path: "/api/v1/pods", ResourceRequest: true}
	}
	for _, c := range []struct {
		a    Attributes
		want Decision
	}{
		{pods(admin), Allow},
		{pods(alice), NoOpinion},
		{pods(AnonymousUser()), NoOpinion},
		{pods(nil), NoOpinion},
		{path(admin, "get", "/metrics"), Allow},
		{path(alice, "get", "/metrics"), NoOpinion},
		{path(AnonymousUser(), "get", "/livez"), Allow},
		{path(AnonymousUser(), "get", "/readyz/ping"), Allow},
		{path(AnonymousUser(), "get", "/healthz"), Allow},
		{path(AnonymousUser(), "get", "/version"), Allow},
		{path(AnonymousUser(), "get", "/version/"), Allow},
		{path(AnonymousUser(), "get", "/livezz"), NoOpinion},
		{path(AnonymousUser(), "post", "/livez"), NoOpinion},
		{path(AnonymousUser(), "get", "/api"), NoOpinion},
		{path(AnonymousUser(), "get", "/"), NoOpinion},
		{path(alice, "get", "/api"), Allow},
		{path(alice, "get", "/apis/apps/v1"), Allow},
		{path(alice, "get", "/openapi/v3"), Allow},
		{path(alice, "get", "/apisx"), NoOpinion},
		{path(alice, "post", "/api"), NoOpinion},
		// A resource's path is not discovery, however it begins.
		{Attributes{User: alice, Verb: "get", Path: "/api/v1/namespaces/x/secrets/y", ResourceRequest: true}, NoOpinion},
	} {
		d, _, err := Default().Authorize(t.Context(), c.a)
		if d != c.want || err != nil {
			t.Errorf("%+v: %v (%v), want %v", c.a, d, err, c.want)
		}
	}
}

func TestUnionAsksInTurn(t *testing.T) {
	say := func(d Decision, reason string, err error) Authorizer {
		return AuthorizerFunc(func(context.Context, Attributes) (Decision, string, error) { return d, reason, err })
	}
	broken := errors.New("broken")
	d, reason, err := Union{say(NoOpinion, "a", broken), say(NoOpinion, "b", nil)}.Authorize(t.Context(), Attributes{})
	if d != NoOpinion || reason != "a\nb" || !errors.Is(err, broken) {
		t.Errorf("%v %q %v", d, reason, err)
	}
	if d, _, err := (Union{say(NoOpinion, "", broken), say(Allow, "", nil)}).Authorize(t.Context(), Attributes{}); d != Allow || err != nil {
		t.Errorf("allow behind an error: %v %v", d, err)
	}
	if d, _, _ := (Union{say(Deny, "", nil), say(Allow, "", nil)}).Authorize(t.Context(), Attributes{}); d != Deny {
		t.Errorf("deny before allow: %v", d)
	}
}

func TestForbiddenTexts(t *testing.T) {
	u := &User{Name: "u"}
	for _, c := range []struct {
		a      Attributes
		reason string
		want   string
	}{
		{Attributes{User: u, Verb: "list", Resource: "pods", Namespace: "ns", ResourceRequest: true}, "",
			`pods is forbidden: User "u" cannot list resource "pods" in API group "" in the namespace "ns"`},
		{Attributes{User: u, Verb: "list", Resource: "nodes", ResourceRequest: true}, "",
			`nodes is forbidden: User "u" cannot list resource "nodes" in API group "" at the cluster scope`},
		{Attributes{User: u, Verb: "get", APIGroup: "apps", Resource: "deployments", Subresource: "scale", Name: "x", Namespace: "ns", ResourceRequest: true}, "no role",
			`deployments.apps "x" is forbidden: User "u" cannot get resource "deployments/scale" in API group "apps" in the namespace "ns": no role`},
		{Attributes{User: u, Verb: "get", Path: "/x"}, "", `forbidden: User "u" cannot get path "/x"`},
		{Attributes{User: u, Verb: "get", Path: "/<b>&"}, "", `forbidden: User "u" cannot get path "/&lt;b&gt;&amp;"`},
	} {
		err := Forbidden(c.a, c.reason)
		if err.ErrStatus.Message != c.want || err.ErrStatus.Code != 403 {
			t.Errorf("%d %s\nwant %s", err.ErrStatus.Code, err.ErrStatus.Message, c.want)
		}
	}
}

func TestImpersonate(t *testing.T) {
	admin := &User{Name: "admin", Groups: []string{Masters, Authenticated}}
	alice := &User{Name: "alice", Groups: []string{Authenticated}}
	h := func(kv ...string) http.Header {
		out := http.Header{}
		for i := 0; i < len(kv); i += 2 {
			out.Add(kv[i], kv[i+1])
		}
		return out
	}
	for _, c := range []struct {
		name   string
		u      *User
		h      http.Header
		user   string
		groups []string
		code   int32
	}{
		{"no headers", alice, h("Accept", "x"), "alice", []string{Authenticated}, 0},
		{"user", admin, h("Impersonate-User", "bob"), "bob", []string{Authenticated}, 0},
		{"groups", admin, h("Impersonate-User", "bob", "Impersonate-Group", "a", "Impersonate-Group", "b"), "bob", []string{"a", "b", Authenticated}, 0},
		{"anonymous", admin, h("Impersonate-User", Anonymous), Anonymous, []string{Unauthenticated}, 0},
		{"service account", admin, h("Impersonate-User", "system:serviceaccount:ns:sa"), "system:serviceaccount:ns:sa",
			[]string{"system:serviceaccounts", "system:serviceaccounts:ns", Authenticated}, 0},
		{"not allowed", alice, h("Impersonate-User", "bob"), "", nil, 403},
		{"extra alone", admin, h("Impersonate-Extra-Scope", "x"), "", nil, 400},
		{"group alone", admin, h("Impersonate-Group", Masters), "", nil, 400},
	} {
		t.Run(c.name, func(t *testing.T) {
			u, _, err := Impersonate(t.Context(), Default(), Attributes{User: c.u, Verb: "get", Path: "/version"}, c.h)
			if c.code != 0 {
				if s := apierrors.APIStatus(nil); !errors.As(err, &s) || s.Status().Code != c.code {
					t.Errorf("error %v", err)
				}
				return
			}
			if err != nil || u.Name != c.user || !slices.Equal(u.Groups, c.groups) {
				t.Errorf("%+v %v", u, err)
			}
			if c.h.Get("Impersonate-User") != "" {
				t.Error("the headers are still there")
			}
		})
	}
}

func TestUserInContext(t *testing.T) {
	if u := UserFrom(t.Context()); u != nil {
		t.Errorf("a user from nowhere: %v", u)
	}
	if u := UserFrom(WithUser(t.Context(), anonymous)); u != anonymous {
		t.Errorf("user %v", u)
	}
}

func FuzzBearerToken(f *testing.F) {
	for _, s := range []string{"", "Bearer", "Bearer ", "bearer x", "Bearer  x", " Bearer x y", "Basic a"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if token, ok := bearerToken(s); ok != (token != "") {
			t.Errorf("%q: %q %v", s, token, ok)
		}
	})
}
