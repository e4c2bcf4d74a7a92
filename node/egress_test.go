package node

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/backends/aggregator"
	"github.com/quorate/quorate/apiserver/backends/egress"
	"github.com/quorate/quorate/apiserver/backends/kubelet"
	"github.com/quorate/quorate/internal/standins"
	certutil "k8s.io/client-go/util/cert"
)

// asked reports whether a proxy was asked for a target that begins so.
func asked(p *standins.Proxy, prefix string) bool {
	return slices.ContainsFunc(p.Asked(), func(target string) bool { return strings.HasPrefix(target, prefix) })
}

// webhooks answers reviews of admission and conversion.
func webhooks(t *testing.T) (address, caBundle string) {
	t.Helper()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review struct {
			APIVersion string         `json:"apiVersion"`
			Kind       string         `json:"kind"`
			Request    map[string]any `json:"request"`
		}
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		response := map[string]any{"uid": review.Request["uid"]}
		if review.Kind == "ConversionReview" {
			objects := review.Request["objects"].([]any)
			for _, o := range objects {
				o.(map[string]any)["apiVersion"] = review.Request["desiredAPIVersion"]
			}
			response["result"], response["convertedObjects"] = map[string]any{"status": "Success"}, objects
		} else {
			response["allowed"], response["warnings"] = true, []string{"asked at " + r.URL.Path}
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(map[string]any{"apiVersion": review.APIVersion, "kind": review.Kind, "response": response})
	}))
	t.Cleanup(s.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return s.Listener.Addr().String(), base64.StdEncoding.EncodeToString(ca)
}

// TestEgress: a node whose file names proxies calls webhooks that only these can reach: those of
// Services, of admission and of conversion, through that of the cluster, those of URLs through that
// of the control plane.
func TestEgress(t *testing.T) {
	t.Parallel()
	at, ca := webhooks(t)
	toWebhooks := func(string) string { return at }
	cluster, control := &standins.Proxy{To: toWebhooks}, &standins.Proxy{To: toWebhooks}
	file := filepath.Join(t.TempDir(), "egress.yaml")
	text := "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\negressSelections:\n"
	for name, socket := range map[string]string{"cluster": cluster.Serve(t), "controlplane": control.Serve(t)} {
		text += "- name: " + name + "\n  connection: {proxyProtocol: HTTPConnect, transport: {uds: {udsName: " + socket + "}}}\n"
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ask := serving(t, func(c *Config) { c.EgressSelectorConfig = file })
	must := func(method, path, body string, want int) string {
		t.Helper()
		code, text := ask(method, path, body)
		if code != want {
			t.Fatalf("%s %s: %d: %s", method, path, code, text)
		}
		return text
	}
	// httptest's certificate is for example.com and 127.0.0.1. No Service can have such a name: the
	// name is checked by a webhook of a URL, and by the error of one of a Service.
	must("POST", "/api/v1/namespaces/default/services", `{"metadata":{"name":"hook"},"spec":{"clusterIP":"10.0.0.77","ports":[{"port":443}]}}`, 201)
	hook := func(name, client string) string {
		return `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":"` + name + `"},"webhooks":[{
			"name":"` + name + `.example.com","admissionReviewVersions":["v1"],"sideEffects":"None","failurePolicy":"Fail","clientConfig":{"caBundle":"` + ca + `",` + client + `},
			"rules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}]}]}`
	}
	const configurations = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
	must("POST", configurations, hook("url", `"url":"https://example.com:8443/url"`), 201)
	await(t, func() (bool, string) {
		code, text := ask("POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"generateName":"c-"}}`)
		return code == 201 && strings.Contains(text, "asked at /url"), text
	})
	if !asked(control, "example.com:8443") || asked(control, "10.") {
		t.Errorf("the control plane's proxy was asked for %v", control.Asked())
	}
	must("DELETE", configurations+"/url", "", 200)

	must("POST", configurations, hook("service", `"service":{"namespace":"default","name":"hook"}`), 201)
	await(t, func() (bool, string) {
		code, text := ask("POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"generateName":"c-"}}`)
		return code == 500 && strings.Contains(text, "not hook.default.svc"), text
	})
	if !asked(cluster, "10.0.0.77:443") || asked(control, "10.") {
		t.Errorf("the cluster's proxy was asked for %v, the control plane's for %v", cluster.Asked(), control.Asked())
	}
	must("DELETE", configurations+"/service", "", 200)

	must("POST", "/api/v1/namespaces/default/services", `{"metadata":{"name":"convert"},"spec":{"clusterIP":"10.0.0.78","ports":[{"port":443}]}}`, 201)
	schema := `"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}`
	for name, client := range map[string]string{"things": `"url":"https://example.com:9443/convert"`, "others": `"service":{"namespace":"default","name":"convert"}`} {
		must("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", `{"metadata":{"name":"`+name+`.example.com"},"spec":{"group":"example.com","scope":"Cluster","names":{"plural":"`+name+`","kind":"`+strings.ToUpper(name)+`"},
			"versions":[{"name":"v1","served":true,"storage":true,`+schema+`},{"name":"v2","served":true,"storage":false,`+schema+`}],
			"conversion":{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],"clientConfig":{"caBundle":"`+ca+`",`+client+`}}}}}`, 201)
		await(t, func() (bool, string) {
			code, text := ask("POST", "/apis/example.com/v1/"+name, `{"apiVersion":"example.com/v1","kind":"`+strings.ToUpper(name)+`","metadata":{"name":"x"}}`)
			return code == 201, text
		})
	}
	if text := must("GET", "/apis/example.com/v2/things/x", "", 200); !strings.Contains(text, "example.com/v2") || !asked(control, "example.com:9443") {
		t.Errorf("%s; the control plane's proxy was asked for %v", text, control.Asked())
	}
	if text := must("GET", "/apis/example.com/v2/others/x", "", 500); !strings.Contains(text, "not convert.default.svc") || !asked(cluster, "10.0.0.78:443") {
		t.Errorf("%s; the cluster's proxy was asked for %v", text, cluster.Asked())
	}
	if text := must("GET", "/metrics", "", 200); !strings.Contains(text, `apiserver_egress_dialer_dial_start_total{protocol="http_connect",transport="uds"}`) {
		t.Error("/metrics counts no dials through proxies")
	}
}

// await asks until something is so, and says what it was if it is not in time.
func await(t *testing.T, is func() (bool, string)) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		ok, last := is()
		switch {
		case ok:
			return
		case time.Now().After(deadline):
			t.Fatal(last)
		}
		select {
		case <-t.Context().Done():
			t.Fatal(last)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// TestWhoMayOpenTunnels: a kubelet's credential opens the tunnel of its own node, and nothing else without
// a role; a role may name more. What is allowed is asked to upgrade.
func TestWhoMayOpenTunnels(t *testing.T) {
	t.Parallel()
	ask := serving(t)
	for _, row := range []struct {
		user, group, path string
		code              int
	}{
		{"system:node:w1", "system:nodes", "nodes/w1", http.StatusUpgradeRequired},
		{"system:node:w1", "system:nodes", "nodes/w2", http.StatusForbidden},
		{"system:node:w1", "system:nodes", "nodes/w1/", http.StatusForbidden},
		{"system:node:w1", "system:nodes", "networks?agent=a&network=10.0.0.0/8", http.StatusForbidden},
		{"system:node:w1", "others", "nodes/w1", http.StatusForbidden},
		{"w1", "system:nodes", "nodes/w1", http.StatusForbidden},
		{"agent", "agents", "networks?agent=a&network=10.0.0.0/8", http.StatusUpgradeRequired},
		{"agent", "agents", "nodes/w1", http.StatusForbidden},
	} {
		if row.code == http.StatusUpgradeRequired && row.user == "agent" {
			for path, body := range map[string]string{
				"clusterroles":        `{"metadata":{"name":"tunnels"},"rules":[{"nonResourceURLs":["/quorate/tunnels/networks"],"verbs":["get"]}]}`,
				"clusterrolebindings": `{"metadata":{"name":"tunnels"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"tunnels"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"agent"}]}`,
			} {
				if code, text := ask("POST", "/apis/rbac.authorization.k8s.io/v1/"+path, body); code != http.StatusCreated {
					t.Fatal(text)
				}
			}
		}
		code, text := ask("GET", "/quorate/tunnels/"+row.path, "", "Impersonate-User: "+row.user, "Impersonate-Group: "+row.group)
		if code != row.code {
			t.Errorf("%s of %s: %s: %d, want %d: %s", row.user, row.group, row.path, code, row.code, text)
		}
	}
}

// ending is a token that may have ended.
type ending struct{ err error }

func (ending) Objects() []auth.Object        { return nil }
func (e ending) Holds(context.Context) error { return e.err }

// TestTunnelsEndWithCredentials: the user who has opened a tunnel may go on while the token or certificate holds, and
// roles allow it; the user who has sent the request counts, also one who did it as another.
func TestTunnelsEndWithCredentials(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := certutil.NewSelfSignedCACert(certutil.Config{CommonName: "system:node:w1", Organization: []string{"system:nodes"}}, key)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	var removed error
	certificates := &auth.Certificates{Roots: func() *x509.CertPool { return roots }, Now: func() time.Time { return now }, Refuse: func(*x509.Certificate) error { return removed }}
	decision, mayImpersonate := auth.Allow, auth.Allow
	authorizer := auth.AuthorizerFunc(func(_ context.Context, a auth.Attributes) (auth.Decision, string, error) {
		if strings.HasPrefix(a.Verb, "impersonate") {
			return mayImpersonate, "", nil
		}
		return decision, "", nil
	})
	request := func(certified bool) *http.Request {
		r := httptest.NewRequest(http.MethodGet, "/quorate/tunnels/nodes/w1", nil)
		if r.TLS = nil; certified {
			r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}}
		}
		return r.WithContext(auth.WithConnection(r.Context()))
	}
	byCertificate, ok, err := certificates.Authenticate(request(true))
	if !ok || err != nil {
		t.Fatal(err)
	}
	holding, ended := &auth.User{Name: "agent", Credential: ending{}}, &auth.User{Name: "agent", Credential: ending{errors.New("its account is gone")}}
	for _, x := range []struct {
		name      string
		user, by  *auth.User
		certified bool
		change    func()
		want      bool
	}{
		{"a certificate", byCertificate, nil, true, func() {}, true},
		{"a certificate that has ended", byCertificate, nil, true, func() { now = cert.NotAfter.Add(time.Hour) }, false},
		{"a certificate of a node that was removed", byCertificate, nil, true, func() { removed = errors.New("removed") }, false},
		{"a certificate whose authority is none any more", byCertificate, nil, true, func() { roots = x509.NewCertPool() }, false},
		{"a token", holding, nil, false, func() {}, true},
		{"a token on a connection with a certificate", holding, nil, true, func() { now = cert.NotAfter.Add(time.Hour) }, true},
		{"a token that has ended", ended, nil, false, func() {}, false},
		{"another's, by a token that has ended", &auth.User{Name: "a"}, ended, false, func() {}, false},
		{"another's, by a token", &auth.User{Name: "a"}, holding, false, func() {}, true},
		{"a role that is gone", holding, nil, false, func() { decision = auth.NoOpinion }, false},
		{"another's, by who may not be that user any more", &auth.User{Name: "a"}, holding, false, func() { mayImpersonate = auth.NoOpinion }, false},
		{"nobody's", nil, nil, false, func() {}, false},
	} {
		r := request(x.certified)
		if x.user != nil {
			r = r.WithContext(auth.WithUser(r.Context(), x.user))
		}
		if x.by != nil {
			r = r.WithContext(auth.WithImpersonator(r.Context(), auth.Attributes{User: x.by, Verb: "connect", Path: "/quorate/tunnel"}, http.Header{"Impersonate-User": {"a"}}))
		}
		wasNow, wasRoots := now, roots
		x.change()
		if got := mayTunnel(r, certificates, authorizer); got != x.want {
			t.Errorf("%s: %t", x.name, got)
		}
		now, roots, removed, decision, mayImpersonate = wasNow, wasRoots, nil, auth.Allow, auth.Allow
	}
}

// TestGuardedDialers: what users choose is not dialled on this host's loopback interface, with tunnels and
// without, and whether a file says that the cluster is dialled directly or says nothing.
func TestGuardedDialers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	file := filepath.Join(t.TempDir(), "egress.yaml")
	direct := "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\negressSelections:\n- {name: cluster, connection: {proxyProtocol: Direct}}\n"
	if err := os.WriteFile(file, []byte(direct), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, cfg := range []Config{{}, {EgressTunnels: true}, {EgressSelectorConfig: file}, {EgressSelectorConfig: file, EgressTunnels: true}} {
		n := &Node{cfg: &cfg, log: slog.New(slog.DiscardHandler)}
		if err := n.openEgress(nil); err != nil {
			t.Fatal(err)
		}
		for name, dial := range map[string]egress.DialFunc{"kubelet": kubelet.DialAllowed, "aggregator": aggregator.Dial} {
			if conn, err := n.dialers.toCluster(dial)(t.Context(), "tcp", l.Addr().String()); err == nil {
				_ = conn.Close()
				t.Errorf("%+v: %s has dialled %s", cfg.EgressTunnels, name, l.Addr())
			}
		}
		if conn, err := n.dialers.toCluster(egress.Direct)(t.Context(), "tcp", l.Addr().String()); err != nil {
			t.Errorf("%+v: %v", cfg.EgressTunnels, err)
		} else {
			_ = conn.Close()
		}
		if n.dialers.tunnels != nil {
			n.dialers.tunnels.Close()
		}
	}
}
