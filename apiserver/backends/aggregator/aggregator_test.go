package aggregator_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/backends/aggregator"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
	"github.com/quorate/quorate/raftstore/memstore"
	"github.com/quorate/quorate/raftstore/mvcc"
	v2 "k8s.io/api/apidiscovery/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.OK(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must.OK(t, err)
	cert, err := x509.ParseCertificate(der)
	must.OK(t, err)
	return &authority{cert, key}
}

func (a *authority) sign(t *testing.T, name string, usage x509.ExtKeyUsage) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.OK(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{usage},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	must.OK(t, err)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// env is an Aggregator over a store in memory, whose Services are all at one server.
type env struct {
	t     *testing.T
	store *memstore.Store
	of    *aggregator.Aggregator
	ca    *authority
	at    string // of the server
	front *httptest.Server
}

// newEnv starts a server that asks for the certificate of a front proxy, and a front that hands all
// requests for widgets.example.com/v1 on to it.
func newEnv(t *testing.T, handler http.HandlerFunc) *env {
	t.Helper()
	return newLookingEnv(t, 0, handler)
}

// newLookingEnv is newEnv with another Config.Look.
func newLookingEnv(t *testing.T, look time.Duration, handler http.HandlerFunc) *env {
	t.Helper()
	e := &env{t: t, store: memstore.New(), ca: newAuthority(t)}
	t.Cleanup(func() { must.Close(t, e.store) })
	proxies := newAuthority(t)
	pool := x509.NewCertPool()
	pool.AddCert(proxies.cert)
	backend := httptest.NewUnstartedServer(handler)
	backend.EnableHTTP2 = true
	backend.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	backend.TLS = &tls.Config{
		Certificates: []tls.Certificate{*e.ca.sign(t, "widgets.default.svc", x509.ExtKeyUsageServerAuth)},
		ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: pool,
	}
	backend.StartTLS()
	t.Cleanup(backend.Close)
	e.at = backend.Listener.Addr().String()
	builtin, err := kinds.Builtin()
	must.OK(t, err)
	mine := proxies.sign(t, "front-proxy-client", x509.ExtKeyUsageClientAuth)
	e.of = aggregator.New(aggregator.Config{
		Store: e.store, Builtin: builtin, Log: slog.New(slog.DiscardHandler),
		Resolve: func(_ context.Context, namespace, name string, _ int32) (string, error) {
			if name != "widgets" {
				return "", errors.New("no such service")
			}
			return e.at, nil
		},
		Dial:        (&net.Dialer{}).DialContext,
		Certificate: func() *tls.Certificate { return mine },
		Look:        look,
	})
	e.front = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		to := e.of.Of("widgets.example.com", "v1")
		if to == nil {
			http.Error(w, "not aggregated", http.StatusTeapot)
			return
		}
		w.Header().Set("Audit-Id", "mine")
		w.Header().Set("X-Kubernetes-Pf-Flowschema-Uid", "mine")
		e.of.Serve(w, r, to, aggregator.Request{User: &auth.User{Name: "alice", UID: "7", Groups: []string{"a", "b"}, Extra: map[string][]string{"k/1": {"v"}}}})
	}))
	t.Cleanup(e.front.Close)
	return e
}

// run asks what the servers serve.
func (e *env) run(ctx context.Context) {
	err := e.of.Run(ctx, func(table string) (<-chan struct{}, func(), error) {
		w, err := e.store.Watch(table, e.store.State().Applied(), mvcc.Interest{})
		if err != nil {
			return nil, nil, err
		}
		return w.Wake(), w.Close, nil
	})
	if err != nil {
		e.t.Error(err)
	}
}

// put stores an APIService.
func (e *env) put(group string, available bool, change func(*apiregistrationv1.APIServiceSpec)) {
	e.t.Helper()
	port := int32(443)
	s := apiregistrationv1.APIService{Spec: apiregistrationv1.APIServiceSpec{
		Group: group, Version: "v1", GroupPriorityMinimum: 2000, VersionPriority: 15, CABundle: e.ca.pem(),
		Service: &apiregistrationv1.ServiceReference{Namespace: "default", Name: "widgets", Port: &port},
	}}
	s.Name = "v1." + group
	if change != nil {
		change(&s.Spec)
	}
	if available {
		s.Status.Conditions = []apiregistrationv1.APIServiceCondition{{Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionTrue}}
	}
	value, err := json.Marshal(&s)
	must.OK(e.t, err)
	w := &proto.Write{Table: aggregator.Table, Key: s.Name, Op: proto.Op_OP_PUT, Value: value, RequestId: []byte(rand.Text())[:16]}
	if _, err := e.store.Propose(e.t.Context(), w); err != nil {
		e.t.Fatal(err)
	}
}

// get sends a request and returns the answer with its body.
func (e *env) get(path string, headers ...string) (*http.Response, string) {
	e.t.Helper()
	r, err := http.NewRequestWithContext(e.t.Context(), http.MethodGet, e.front.URL+path, nil)
	must.OK(e.t, err)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := client.Do(r)
	must.OK(e.t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	must.OK(e.t, err)
	return res, string(body)
}

const widgets = "/apis/widgets.example.com/v1/widgets"

// TestServe: a server sees who asks, from this server alone, and its answers reach the client.
func TestServe(t *testing.T) {
	e := newEnv(t, func(w http.ResponseWriter, r *http.Request) {
		h := r.Header
		w.Header().Set("Audit-Id", "yours")
		w.Header().Set("X-Quorate-Node", "forged")
		w.WriteHeader(http.StatusEarlyHints)
		fmt.Fprintf(w, "%s %s | %v %v %v %v | %v %v %v %v", r.Method, r.URL.RequestURI(), h["X-Remote-User"], h["X-Remote-Uid"], h["X-Remote-Group"], h["X-Remote-Extra-K%2f1"],
			h["Authorization"], h["Sec-Websocket-Protocol"], h["Impersonate-User"], h["X-Remote-Extra-Evil"])
	})
	e.put("widgets.example.com", true, nil)
	res, body := e.get(widgets+"?watch=0", "Authorization", "Bearer secret", "Sec-WebSocket-Protocol", "base64url.bearer.authorization.k8s.io.c2VjcmV0,v1.x", "X-Remote-User", "root", "X-Remote-Group", "system:masters", "x-remote-extra-evil", "x", "Impersonate-User", "bob")
	want := "GET " + widgets + "?watch=0 | [alice] [7] [a b] [v] | [] [v1.x] [] []"
	if res.StatusCode != 200 || body != want {
		t.Errorf("%d %s, want %s", res.StatusCode, body, want)
	}
	if got := res.Header["Audit-Id"]; len(got) != 1 || got[0] != "mine" || res.Header.Get("X-Quorate-Node") != "" {
		t.Errorf("headers %v", res.Header)
	}
	// A client cannot take out what this server says, by naming it as a header of its connection.
	named := "X-Remote-User, x-remote-group, X-Remote-Uid, X-Remote-Extra-K%2f1, X-Quorate-Aggregated, X-Forwarded-Host, Audit-Id, X-Mine"
	if _, body := e.get(widgets, "Connection", named, "X-Mine", "1"); body != "GET "+widgets+" | [alice] [7] [a b] [v] | [] [] [] []" {
		t.Errorf("with Connection: %s", body)
	}
	// The path that was authorized is the one that goes on: not one that reads otherwise before it is decoded.
	if _, body := e.get(widgets + "%2fa%2fstatus"); !strings.HasPrefix(body, "GET "+widgets+"/a/status |") {
		t.Errorf("an encoded path: %s", body)
	}
}

// TestHostileAnswers: an answer that is none is a 502 with the reason, and what only this server says of an answer is
// not taken from another.
func TestHostileAnswers(t *testing.T) {
	e := newEnv(t, http.NotFound)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{*e.ca.sign(t, "widgets.default.svc", x509.ExtKeyUsageServerAuth)}})
	must.OK(t, err)
	defer l.Close()
	head := make(chan string, 1)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
				_, _ = io.WriteString(conn, "HTTP/1.1 "+<-head+"\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}")
			}
			_ = conn.Close()
		}
	}()
	e.at = l.Addr().String()
	e.put("widgets.example.com", true, nil)
	for _, x := range []struct {
		head string
		code int
		body string
	}{
		{"000 X", 502, "the status code 0,"},
		{"099 X", 502, "the status code 99,"},
		{"101 X\r\nUpgrade: websocket", 502, "the status code 101,"},
		{"999 X", 999, "{}"},
		{"200 OK\r\nX-Kubernetes-PF-FlowSchema-UID: forged\r\nx-kubernetes-pf-prioritylevel-uid: forged", 200, "{}"},
	} {
		head <- x.head
		res, body := e.get(widgets)
		if res.StatusCode != x.code || !strings.Contains(body, x.body) {
			t.Errorf("%s: %d %s", x.head, res.StatusCode, body)
		}
		for name, want := range map[string]string{"X-Kubernetes-Pf-Flowschema-Uid": "mine", "X-Kubernetes-Pf-Prioritylevel-Uid": ""} {
			if got := strings.Join(res.Header[name], ","); got != want {
				t.Errorf("%s: %s %q, want %q", x.head, name, got, want)
			}
		}
	}
}

// TestRefused: what is answered here, and never reaches the server.
func TestRefused(t *testing.T) {
	asked := make(chan string, 10)
	e := newEnv(t, func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Path
		http.Redirect(w, r, "https://192.0.2.1/", http.StatusTemporaryRedirect)
	})
	check := func(what, path string, code int, text string, headers ...string) {
		t.Helper()
		res, body := e.get(path, headers...)
		if res.StatusCode != code || !strings.Contains(body, text) {
			t.Errorf("%s: %d %s, want %d %s", what, res.StatusCode, body, code, text)
		}
	}
	check("no APIService", widgets, http.StatusTeapot, "not aggregated")
	e.put("apps", true, nil)
	if e.of.Of("apps", "v1") != nil {
		t.Error("a version that is built in is somebody else's")
	}
	if c := e.of.Check(t.Context(), e.of.Remotes()[0]); c.Status != apiregistrationv1.ConditionFalse || c.Reason != "BuiltIn" ||
		c.Message != `apps/v1 is built into this API server, which goes on to serve it: requests never go to service/widgets in "default"` {
		t.Errorf("of a version that is built in: %+v", c)
	}
	e.put("widgets.example.com", false, nil)
	check("not available", widgets, 503, "service unavailable")
	e.put("widgets.example.com", true, func(s *apiregistrationv1.APIServiceSpec) { s.CABundle = []byte("x") })
	check("no authority", widgets, 500, "unable to load root certificates")
	e.put("widgets.example.com", true, func(s *apiregistrationv1.APIServiceSpec) { s.CABundle = newAuthority(t).pem() })
	check("another authority", widgets, 503, "error trying to reach service: tls: failed to verify certificate")
	e.put("widgets.example.com", true, func(s *apiregistrationv1.APIServiceSpec) { s.Service.Name = "gone" })
	check("no Service", widgets, 503, "service unavailable")
	e.put("widgets.example.com", true, nil)
	check("a circle", widgets, 503, "leads back to this API", "X-Quorate-Aggregated", "1")
	check("dots", "/apis/widgets.example.com/v1/%2e%2e/%2e%2e/secrets", 404, "")
	if len(asked) != 0 {
		t.Errorf("the server was asked for %s", <-asked)
	}
	res, body := e.get(widgets)
	if res.StatusCode != http.StatusBadGateway || res.Header.Get("Location") != "" {
		t.Errorf("a redirect: %d %v %s", res.StatusCode, res.Header, body)
	}
}

// TestUpgrade: a change of the protocol goes through, with the user, and ends with either end.
func TestUpgrade(t *testing.T) {
	ended := make(chan error, 1)
	e := newEnv(t, func(w http.ResponseWriter, r *http.Request) {
		conn, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprintf(buf, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n%s %s %s%s\n",
			r.Header.Get("X-Remote-User"), r.Header["X-Remote-Group"], r.Header["Connection"], r.Header["X-Mine"])
		buf.Flush()
		line, _ := buf.ReadString('\n')
		fmt.Fprint(buf, line)
		buf.Flush()
		_, err = buf.ReadByte()
		ended <- err
	})
	e.put("widgets.example.com", true, nil)
	conn, err := net.Dial("tcp", e.front.Listener.Addr().String())
	must.OK(t, err)
	defer conn.Close()
	must.OK(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	fmt.Fprintf(conn, "GET %s/a/exec HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, X-Remote-User, X-Remote-Group, X-Mine\r\nX-Mine: 1\r\nUpgrade: echo\r\nX-Remote-User: root\r\n\r\n", widgets)
	in := bufio.NewReader(conn)
	res, err := http.ReadResponse(in, nil)
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v %v", res, err)
	}
	fmt.Fprint(conn, "hello\n")
	for _, want := range []string{"alice [a b] [Upgrade][]\n", "hello\n"} {
		if line, err := in.ReadString('\n'); err != nil || line != want {
			t.Fatalf("%q %v, want %q", line, err, want)
		}
	}
	conn.Close()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("the server read something")
		}
	case <-time.After(10 * time.Second):
		t.Error("the server's end is still there")
	}
}

// TestDiscovery: what a server says is known soon, what it says wrongly is not taken, and while it says
// nothing what was known is stale.
func TestDiscovery(t *testing.T) {
	t.Parallel()
	mode := make(chan string, 1)
	mode <- "good"
	e := newEnv(t, func(w http.ResponseWriter, r *http.Request) {
		now := <-mode
		mode <- now
		switch {
		case now == "endless":
			for {
				if _, err := w.Write(make([]byte, 64<<10)); err != nil {
					return
				}
			}
		case now == "garbage":
			w.Header().Set("Content-Type", r.Header.Get("Accept"))
			fmt.Fprint(w, "{{{")
		case now == "much memory":
			w.Header().Set("Content-Type", r.Header.Get("Accept"))
			fmt.Fprintf(w, `{"items":[{"metadata":{"name":"widgets.example.com","managedFields":[%s{}]},"versions":[{"version":"v1","resources":[]}]}]}`, strings.Repeat("{},", 2<<20))
		case now == "many words":
			w.Header().Set("Content-Type", r.Header.Get("Accept"))
			fmt.Fprintf(w, `{"items":[{"metadata":{"name":"widgets.example.com"},"versions":[{"version":"v1","resources":[{"resource":"widgets","verbs":[%s"get"]}]}]}]}`,
				strings.Repeat(`"a verb that is longer than others",`, 100_000))
		case r.URL.Path == "/apis":
			w.Header().Set("Content-Type", r.Header.Get("Accept"))
			fmt.Fprint(w, `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[
				{"metadata":{"name":"apps"},"versions":[{"version":"v1","resources":[{"resource":"evil","scope":"Cluster","verbs":["get"]}]}]},
				{"metadata":{"name":"widgets.example.com"},"versions":[{"version":"v1","resources":[{"resource":"widgets","scope":"Namespaced","verbs":["get","list"]}]}]}]}`)
		case r.URL.Path == "/openapi/v3":
			fmt.Fprint(w, `{"paths":{"apis/widgets.example.com/v1":{"serverRelativeURL":"https://evil.example.com/?hash=H"},"api/v1":{"serverRelativeURL":"/"}}}`)
		default:
			http.NotFound(w, r)
		}
	})
	e.put("widgets.example.com", false, nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); e.run(ctx) }()
	defer func() { cancel(); <-done }()
	await := func(what string, ok func(aggregator.Version) bool) {
		t.Helper()
		deadline := time.Now().Add(10 * time.Second)
		var v aggregator.Version
		for time.Now().Before(deadline) {
			if d := e.of.Discovered(); len(d.Versions) == 1 {
				if v = d.Versions[0]; ok(v) {
					return
				}
			}
			<-time.After(10 * time.Millisecond)
		}
		t.Fatalf("%s: %+v", what, v)
	}
	good := func(v aggregator.Version) bool {
		return len(v.Discovery.Resources) == 1 && v.Discovery.Resources[0].Resource == "widgets" && v.Discovery.Resources[0].ResponseKind != nil && v.HasOpenAPI && v.OpenAPIHash == "H"
	}
	await("good", func(v aggregator.Version) bool {
		return good(v) && v.Discovery.Freshness == v2.DiscoveryFreshnessCurrent
	})
	if res, _ := e.get(widgets); res.StatusCode != 404 {
		t.Errorf("a server that answers this node is not asked: %d", res.StatusCode)
	}
	for _, now := range []string{"garbage", "endless", "much memory", "many words"} {
		<-mode
		mode <- now
		e.put("widgets.example.com", true, nil) // another revision: it is asked again
		await(now, func(v aggregator.Version) bool { return good(v) && v.Discovery.Freshness == v2.DiscoveryFreshnessStale })
		<-mode
		mode <- "good"
		e.put("widgets.example.com", true, nil)
		await("good after "+now, func(v aggregator.Version) bool {
			return good(v) && v.Discovery.Freshness == v2.DiscoveryFreshnessCurrent
		})
	}
}

// TestDiscoveryFollowsAvailability: when an APIService becomes available, its server is asked at once, and not when Run looks
// around the next time.
func TestDiscoveryFollowsAvailability(t *testing.T) {
	t.Parallel()
	var up atomic.Bool
	refused := make(chan struct{}, 100)
	e := newLookingEnv(t, time.Hour, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !up.Load():
			http.Error(w, "starting", http.StatusServiceUnavailable)
			select {
			case refused <- struct{}{}:
			default:
			}
		case r.URL.Path == "/apis":
			w.Header().Set("Content-Type", r.Header.Get("Accept"))
			fmt.Fprint(w, `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[
				{"metadata":{"name":"widgets.example.com"},"versions":[{"version":"v1","resources":[{"resource":"widgets","scope":"Namespaced","verbs":["get"]}]}]}]}`)
		default:
			http.NotFound(w, r)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); e.run(ctx) }()
	defer func() { cancel(); <-done }()
	e.put("widgets.example.com", false, nil)
	<-refused
	up.Store(true)
	e.put("widgets.example.com", true, nil)
	deadline := time.Now().Add(10 * time.Second)
	for len(e.of.Discovered().Versions[0].Discovery.Resources) == 0 {
		if time.Now().After(deadline) {
			t.Fatalf("%+v", e.of.Discovered().Versions[0])
		}
		runtime.Gosched()
	}
}

// TestOpenAPIV2: a server's document of version 2 is known soon, is fetched again when it is another one, and
// stays while the server says what cannot be taken, until it says that there is none or its APIService is gone.
func TestOpenAPIV2(t *testing.T) {
	t.Parallel()
	type says struct {
		code      int
		etag, doc string
	}
	doc := func(word string) string {
		return `{"swagger":"2.0","info":{"title":"x","version":"1"},"paths":{"/apis/widgets.example.com/v1/` + word + `":{"get":{"responses":{"200":{"description":"OK"}}}}}}`
	}
	now := make(chan says, 1)
	asked := make(chan int, 1000)
	e := newEnv(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/apis":
			w.Header().Set("Content-Type", r.Header.Get("Accept"))
			fmt.Fprint(w, `{"items":[]}`)
		case "/openapi/v2":
			s := <-now
			now <- s
			if s.etag != "" && r.Header.Get("If-None-Match") == s.etag {
				s.code = http.StatusNotModified
			}
			w.Header().Set("Etag", s.etag)
			w.WriteHeader(s.code)
			if s.doc == "endless" {
				sent := 0
				for sent < 100<<20 {
					n, err := w.Write(make([]byte, 64<<10))
					if sent += n; err != nil {
						break
					}
				}
				if sent > 32<<20 {
					t.Errorf("%d bytes were taken", sent)
				}
			} else if s.code == http.StatusOK {
				fmt.Fprint(w, s.doc)
			}
			asked <- s.code
		default:
			http.NotFound(w, r)
		}
	})
	say := func(s says) {
		t.Helper()
		select {
		case <-now:
		default:
		}
		now <- s
		for len(asked) > 0 {
			<-asked
		}
		e.put("widgets.example.com", true, nil) // another revision: it is asked again
		select {
		case code := <-asked:
			if code != s.code {
				t.Errorf("%d, want %d", code, s.code)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("nobody asks")
		}
	}
	var last *aggregator.DocumentV2
	await := func(what, want string) {
		t.Helper()
		deadline := time.Now().Add(10 * time.Second)
		got := ""
		for time.Now().Before(deadline) {
			last, got = nil, ""
			for _, v := range e.of.Discovered().Versions {
				if last = v.OpenAPIV2; last != nil {
					got = string(last.JSON)
				}
			}
			if (want == "") == (last == nil) && strings.Contains(got, want) {
				return
			}
			<-time.After(10 * time.Millisecond)
		}
		t.Fatalf("%s: %s, want %s", what, got, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); e.run(ctx) }()
	defer func() { cancel(); <-done }()

	say(says{200, `"1"`, doc("first")})
	await("at first", "first")
	say(says{404, "", ""})
	await("none", "")
	say(says{200, `"2"`, doc("second")})
	await("another", "second")
	second := last
	say(says{200, "", "endless"})
	say(says{200, `"3"`, "{{{"})
	say(says{200, "", doc("second")}) // the one before has been read
	if await("after bad ones", "second"); last != second {
		t.Error("the same document is another one")
	}
	e.put("widgets.example.com", true, func(s *apiregistrationv1.APIServiceSpec) { s.Service = nil })
	await("without its APIService", "")
}

// TestDial: addresses that only this host reaches are not dialled.
func TestDial(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(t, err)
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	must.OK(t, err)
	for _, host := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0", "169.254.169.254"} {
		conn, err := aggregator.Dial(t.Context(), "tcp", host+":"+port)
		if err == nil {
			conn.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "an address of this host alone") {
			t.Errorf("%s: %v", host, err)
		}
	}
}
