package apiserver_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/backends/kubelet"
	"github.com/quorate/quorate/internal/must"
)

// behind is a dialer that reaches a server, whatever address is asked for, and notes that address.
func behind(address string, asked chan<- string) kubelet.Dial {
	return func(ctx context.Context, network, to string) (net.Conn, error) {
		asked <- to
		return new(net.Dialer).DialContext(ctx, network, address)
	}
}

// TestProxies: where requests to Pods, nodes and Services go, and what comes back.
func TestProxies(t *testing.T) {
	k := newFakeKubelet(t)
	k.handle = func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/moved":
			http.Redirect(w, r, "/there", http.StatusFound)
		case "/early":
			w.WriteHeader(http.StatusEarlyHints)
			fmt.Fprint(w, "late")
		default:
			b, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s %s %s|%s|%s", r.Method, r.URL, b, r.Header.Get("Authorization"), r.Header.Get("X-Forwarded-Uri"))
		}
	}
	asked := make(chan string, 16)
	dial := behind(k.Listener.Addr().String(), asked)
	e := withKubelets(t, kubelet.Config{Dial: dial, DialAllowed: dial}, "10.9.9.9", 10250, nil)
	e.post(podsPath, `{"metadata":{"name":"web"},"spec":{"nodeName":"n","containers":[{"name":"c","image":"i","ports":[{"containerPort":8080}]}]}}`)
	status := func(pod, ip string) {
		t.Helper()
		if w, answer := e.do("PATCH", podsPath+"/"+pod+"/status", http.Header{"Content-Type": {"application/merge-patch+json"}}, fmt.Sprintf(`{"status":{"podIP":%q,"podIPs":[{"ip":%q}]}}`, ip, ip)); w.StatusCode != 200 {
			t.Fatal(answer)
		}
	}
	status("web", "10.1.2.3")
	for name, ip := range map[string]string{"own": "127.0.0.1", "local": "169.254.169.254"} {
		e.post(podsPath, fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"nodeName":"n","containers":[{"name":"c","image":"i"}]}}`, name))
		status(name, ip)
	}
	e.post("/api/v1/nodes", `{"metadata":{"name":"liar"},"status":{"addresses":[{"type":"InternalIP","address":"127.0.0.1"}]}}`)
	e.post("/api/v1/nodes", `{"metadata":{"name":"odd"},"status":{"addresses":[{"type":"InternalIP","address":"bad host/"}]}}`)
	e.post("/api/v1/nodes", `{"metadata":{"name":"nowhere"},"status":{"addresses":[]}}`)
	e.post("/api/v1/namespaces/default/services", `{"metadata":{"name":"s"},"spec":{"ports":[{"name":"web","port":80}]}}`)
	endpoints := func(name, addresses string) {
		t.Helper()
		e.post("/api/v1/namespaces/default/endpoints", fmt.Sprintf(`{"metadata":{"name":%q},"subsets":[{"addresses":[%s],"ports":[{"name":"web","port":8443}]}]}`, name, addresses))
	}
	endpoints("s", `{"ip":"10.1.2.3","targetRef":{"kind":"Pod","namespace":"default","name":"web"}}`)
	endpoints("forged", `{"ip":"10.7.7.7","targetRef":{"kind":"Pod","namespace":"default","name":"web"}},{"ip":"10.1.2.3"},{"ip":"10.1.2.3","targetRef":{"kind":"Pod","namespace":"kube-system","name":"web"}}`)
	const at = "/api/v1/namespaces/default"
	secret := http.Header{"Authorization": {"Basic c2VjcmV0"}}
	for _, r := range []struct {
		method, path, body string
		code               int
		answer, dialled    string
	}{
		{"GET", at + "/pods/https:web:8443/proxy/a/b?c=d", "", 200, "GET /a/b?c=d ||" + at + "/pods/https:web:8443/proxy/a/b", "10.1.2.3:8443"},
		{"POST", at + "/pods/https:web:/proxy/a/", "what is sent", 200, "POST /a/ what is sent||" + at + "/pods/https:web:/proxy/a/", "10.1.2.3:8080"},
		{"GET", at + "/pods/https:web:1/proxy/../../x", "", 200, "GET /x ||", "10.1.2.3:1"},
		{"GET", at + "/pods/https:web:1/proxy/moved", "", 302, "", "10.1.2.3:1"},
		{"GET", at + "/pods/https:web:1/proxy/early", "", 200, "late", ""},
		{"GET", at + "/pods/https:web:1/proxy", "", 301, "", ""},
		{"GET", at + "/pods/a:b:c:d/proxy/", "", 400, `invalid pod request \"a:b:c:d\"`, ""},
		{"GET", at + "/pods/https:web:a%20b/proxy/x", "", 400, "there is nothing at", ""},
		{"GET", at + "/pods/own:80/proxy/", "", 400, "address not allowed", ""},
		{"GET", at + "/pods/local:80/proxy/", "", 400, "address not allowed", ""},
		{"GET", at + "/pods/p/proxy/", "", 400, "address not allowed", ""}, // it has none
		{"GET", "/api/v1/nodes/n/proxy/pods", "", 200, "GET /pods ||/api/v1/nodes/n/proxy/pods", "10.9.9.9:10250"},
		{"GET", "/api/v1/nodes/https:n:9100/proxy/metrics", "", 200, "GET /metrics ||", "10.9.9.9:9100"},
		{"GET", "/api/v1/nodes/liar/proxy/pods", "", 400, "address not allowed", ""},
		{"GET", "/api/v1/nodes/nowhere/proxy/pods", "", 500, "no preferred addresses found; known addresses: []", ""},
		{"GET", "/api/v1/nodes/odd/proxy/pods", "", 500, `address \"bad host/\" in the status of node \"odd\" is neither an IP address nor the name of a host`, ""},
		{"GET", "/api/v1/nodes/gone/proxy/pods", "", 404, `nodes \"gone\" not found`, ""},
		{"GET", at + "/services/https:s:80/proxy/x", "", 200, "GET /x ||" + at + "/services/https:s:80/proxy/x", "10.1.2.3:8443"},
		{"DELETE", at + "/services/https:s:web/proxy/x", "", 200, "DELETE /x ||", ""},
		{"GET", at + "/services/s:81/proxy/x", "", 503, `no service port 81 found for service \"s\"`, ""},
		{"GET", at + "/services/s:other/proxy/x", "", 503, `no endpoints available for service \"s:other\"`, ""},
		{"GET", at + "/services/forged:web/proxy/x", "", 503, `no endpoints available for service \"forged:web\"`, ""},
		{"GET", at + "/services/gone/proxy/x", "", 404, `services \"gone\" not found`, ""},
	} {
		w, answer := e.doOnHTTP1(r.method, r.path, secret.Clone(), r.body)
		if w.StatusCode != r.code || !strings.Contains(answer, r.answer) {
			t.Errorf("%s %s: %d %s, want %d and %s", r.method, r.path, w.StatusCode, answer, r.code, r.answer)
		}
		if l := w.Header.Get("Location"); r.code == 302 && l != at+"/pods/https:web:1/proxy/there" || r.code == 301 && l != r.path+"/" {
			t.Errorf("%s: sent to %s", r.path, l)
		}
		select {
		case address := <-asked:
			if r.code >= 400 || r.dialled != "" && address != r.dialled {
				t.Errorf("%s: dialled %s", r.path, address)
			}
		default:
			if r.dialled != "" && r.path != "" && !strings.Contains(r.path, "proxy/x") && !strings.Contains(r.path, "moved") && !strings.Contains(r.path, "../") {
				t.Errorf("%s: nothing was dialled", r.path)
			}
		}
	}
}

// TestProxyUpgrade: an upgrade goes through, with its query, and in both directions; tokens do not, also those that
// nobody has looked at.
func TestProxyUpgrade(t *testing.T) {
	k := newFakeKubelet(t)
	k.handle = func(w http.ResponseWriter, r *http.Request) {
		conn, b, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n%s %q %q\n", r.URL, r.Header["Authorization"], r.Header["Sec-Websocket-Protocol"])
		line, _ := b.ReadString('\n')
		fmt.Fprint(conn, line)
	}
	asked := make(chan string, 1)
	dial := behind(k.Listener.Addr().String(), asked)
	e := withKubelets(t, kubelet.Config{Dial: dial, DialAllowed: dial}, "10.9.9.9", 10250, nil)
	conn := e.dial()
	defer conn.Close()
	// What a client sends before it has the answer is not lost.
	fmt.Fprintf(conn, "GET /api/v1/nodes/n/proxy/a?b=c HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: x\r\nAuthorization: Bearer secret\r\n"+
		"Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.c2VjcmV0, v1.x\r\n\r\nthe first line\n")
	b := bufio.NewReader(conn)
	w, err := http.ReadResponse(b, nil)
	if err != nil || w.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(w, err)
	}
	if rest, err := io.ReadAll(b); string(rest) != "/a?b=c [] [\"v1.x\"]\nthe first line\n" {
		t.Errorf("%q %v", rest, err)
	}
}

// TestProxyHostileAnswers: a page without an end goes on as it comes, and what only this server says of an
// answer is not taken from a Pod.
func TestProxyHostileAnswers(t *testing.T) {
	k := newFakeKubelet(t)
	k.handle = func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/no-status" {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 099 X\r\nContent-Length: 0\r\n\r\n")
			_ = conn.Close()
			return
		}
		for range 20 {
			w.Header().Set("X-Hint", "early")
			w.WriteHeader(http.StatusEarlyHints)
		}
		for name, value := range map[string]string{"Audit-Id": "forged", "X-Quorate-Node": "forged", "X-Kubernetes-Pf-Flowschema-Uid": "forged", "Content-Type": "text/html"} {
			w.Header().Set(name, value)
		}
		_, _ = io.WriteString(w, `<a href="/x">`+strings.Repeat("<p>", 1<<16))
		_ = http.NewResponseController(w).Flush()
		if r.URL.Path == "/endless" {
			<-r.Context().Done()
		}
	}
	dial := behind(k.Listener.Addr().String(), make(chan string, 2))
	e := withKubelets(t, kubelet.Config{Dial: dial, DialAllowed: dial}, "10.9.9.9", 10250, nil)
	own, _ := e.do("GET", podsPath, nil, "")
	w, answer := e.doOnHTTP1("GET", "/api/v1/nodes/n/proxy/page", nil, "")
	if want := `<a href="/api/v1/nodes/n/proxy/x"><p>`; w.StatusCode != 200 || !strings.HasPrefix(answer, want) || w.Header.Get("Content-Type") != "text/html" {
		t.Errorf("%d %v %.100q, want %s", w.StatusCode, w.Header, answer, want)
	}
	for _, name := range []string{"Audit-Id", "X-Quorate-Node", "X-Kubernetes-Pf-Flowschema-Uid"} {
		if got := strings.Join(w.Header[name], ","); strings.Contains(got, "forged") || own.Header.Get(name) != "" && got == "" {
			t.Errorf("%s: %q", name, got)
		}
	}
	if w, answer := e.doOnHTTP1("GET", "/api/v1/nodes/n/proxy/no-status", nil, ""); w.StatusCode != http.StatusBadGateway || !strings.Contains(answer, "the status code 99,") {
		t.Errorf("%d %s", w.StatusCode, answer)
	}
	conn := e.dial()
	defer conn.Close()
	fmt.Fprintf(conn, "GET /api/v1/nodes/n/proxy/endless HTTP/1.1\r\nHost: x\r\n\r\n")
	must.OK(t, conn.SetReadDeadline(time.Now().Add(10*time.Second)))
	first := make([]byte, 100<<10)
	if _, err := io.ReadFull(conn, first); err != nil || !strings.Contains(string(first), `/proxy/x"><p>`) {
		t.Errorf("%v %.200q", err, first)
	}
}
