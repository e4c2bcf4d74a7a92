package churn

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/quorate/quorate/test/harness/cluster"
)

// pages reads a list to its end, a list that it leaves at its second page, and one at an exact revision.
func pages(c *cycle) {
	for _, most := range []int{100, 1} {
		next := ""
		for range most {
			var list struct {
				Metadata struct{ Continue, ResourceVersion string }
			}
			answer := c.call(200, "GET", inChurn+"configmaps?limit=4&labelSelector=kept&continue="+url.QueryEscape(next), "")
			if c.err != nil {
				return
			}
			if err := json.Unmarshal([]byte(answer), &list); err != nil {
				c.fail("a page: %w", err)
				return
			}
			if next = list.Metadata.Continue; next == "" {
				c.call(200, "GET", inChurn+"configmaps"+exactPath+list.Metadata.ResourceVersion, "")
				break
			}
		}
	}
	for _, accept := range []string{"application/json;as=Table;v=v1;g=meta.k8s.io", "application/vnd.kubernetes.protobuf", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", "application/yaml"} {
		c.call(200, "GET", inChurn+"configmaps?labelSelector=kept", "", "Accept", accept)
	}
}

// client is a client with connections of its own, of the administrator or of somebody with another
// certificate or with none.
func (r *churn) client(http2 bool, certificate *tls.Certificate) *http.Client {
	t := r.transport(http2)
	t.TLSClientConfig.GetClientCertificate, t.TLSClientConfig.Certificates = nil, nil
	if certificate != nil {
		t.TLSClientConfig.Certificates = []tls.Certificate{*certificate}
	}
	return &http.Client{Transport: t}
}

// transport is one of the administrator.
func (r *churn) transport(http2 bool) *http.Transport {
	t := &http.Transport{TLSClientConfig: r.tls.Clone(), ForceAttemptHTTP2: http2}
	if !http2 {
		t.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	}
	return t
}

// reset ends a connection with RST.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// guests is a client whose connections can be reset.
type guest struct {
	*http.Client
	mu    sync.Mutex
	conns []net.Conn
}

func (c *cycle) guest(http2 bool) *guest {
	g := &guest{}
	t := c.run.transport(http2)
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err == nil {
			g.mu.Lock()
			g.conns = append(g.conns, conn)
			g.mu.Unlock()
		}
		return conn, err
	}
	g.Client = &http.Client{Transport: t}
	return g
}

func (g *guest) vanish() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, conn := range g.conns {
		reset(conn)
	}
}

// watches are of every form, over both protocols, and end in every way.
func watches(c *cycle) {
	forms := []string{"", "&resourceVersion=0", "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", "&labelSelector=of%3D" + c.name, "&fieldSelector=metadata.name%3D" + c.name}
	accepts := []string{"application/json", "application/json;as=Table;v=v1;g=meta.k8s.io", "application/vnd.kubernetes.protobuf;stream=watch"}
	ends := []func(g *guest, body io.ReadCloser, cancel func()){
		func(_ *guest, body io.ReadCloser, _ func()) { _, _ = io.Copy(io.Discard, body) }, // the server ends it
		func(_ *guest, _ io.ReadCloser, cancel func()) { cancel() },
		func(_ *guest, body io.ReadCloser, _ func()) { _ = body.Close() },
		func(g *guest, _ io.ReadCloser, _ func()) { g.vanish() },
		func(g *guest, body io.ReadCloser, _ func()) { _, _ = body.Read(make([]byte, 1)); g.vanish() },
	}
	var all sync.WaitGroup
	errs := make(chan error, 2*len(ends))
	for i, end := range ends {
		for _, http2 := range []bool{false, true} {
			c.turn++
			n, form, accept := c.node(), forms[(i+c.turn)%len(forms)], accepts[c.turn%len(accepts)]
			all.Go(func() {
				g := c.guest(http2)
				defer g.CloseIdleConnections()
				ctx, cancel := context.WithTimeout(c.ctx, within)
				defer cancel()
				r, err := http.NewRequestWithContext(ctx, "GET", n.API+inChurn+"configmaps?watch=1&timeoutSeconds=1"+form, nil)
				if err != nil {
					errs <- err
					return
				}
				r.Header.Set("Accept", accept)
				resp, err := g.Do(r)
				if err != nil {
					errs <- fmt.Errorf("%s: watch%s: %w", n.Name, form, err)
					return
				}
				defer resp.Body.Close()
				if resp.StatusCode != http.StatusOK {
					errs <- fmt.Errorf("%s: watch%s: %s", n.Name, form, resp.Status)
					return
				}
				end(g, resp.Body, cancel)
			})
		}
	}
	for i := range 3 {
		name := sprintf("%s-%d", c.name, i)
		c.call(201, "POST", inChurn+"configmaps", sprintf(`{"metadata":{"name":%q,"labels":{"of":%q}}}`, name, c.name))
		c.call(done, "DELETE", inChurn+"configmaps/"+name, "")
	}
	all.Wait()
	close(errs)
	for err := range errs {
		c.fail("%w", err)
	}
}

// malformed requests, each with words that no other has.
func malformed(c *cycle) {
	nobody := c.run.nobody
	n := c.node()
	c.with(nobody, n, 401, "GET", coreV1+"secrets", "", "Authorization", "Bearer random-"+c.name)
	claims := base64.RawURLEncoding.EncodeToString([]byte(sprintf(`{"iss":"https://kubernetes.default.svc.cluster.local","sub":"system:serviceaccount:a:%s"}`, c.name)))
	c.with(nobody, n, 401, "GET", coreV1+"secrets", "", "Authorization", "Bearer eyJhbGciOiJSUzI1NiJ9."+claims+".c2ln")
	c.with(nobody, n, whatever, "GET", coreV1+"secrets", "", "Authorization", "Basic dTpw")
	c.call(400, "POST", inChurn+"configmaps", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":`)
	c.call(404, "GET", "/apis/"+c.name+".example.com/v1/things/x", "")
	c.call(405, "VERB"+strings.ToUpper(strings.ReplaceAll(c.name, "-", "")), inChurn+"pods/x", "")
	c.call(404, "GET", "/random/"+c.name, "", "User-Agent", c.name)
	c.call(415, "POST", inChurn+"configmaps", "x", "Content-Type", "application/x-"+c.name)
	c.call(400, "GET", coreV1+"namespaces/"+c.name+"/configmaps?labelSelector=%3D%3D%3D", "")
	c.call(404, "GET", inChurn+"pods/"+c.name+"/sub"+c.name, "")
	c.call(404, "GET", inChurn+"pods/"+c.name, "")
	c.call(406, "GET", inChurn+"configmaps", "", "Accept", "application/x-"+c.name)
	c.call(whatever, "GET", coreV1+"configmaps?resourceVersion=1&resourceVersionMatch=Exact", "")
	c.call(whatever, "GET", coreV1+"configmaps?watch=1&resourceVersion=1&timeoutSeconds=1", "")
	c.call(422, "POST", inChurn+"configmaps", sprintf(`{"metadata":{"name":"_%s"}}`, c.name))
	c.call(201, "POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", sprintf(`{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":%[1]q,"groups":[%[1]q],"resourceAttributes":{"verb":%[1]q,"resource":%[1]q}}}`, c.name))
}

// strangers are users, groups and programs that come once.
func strangers(c *cycle) {
	me := append(as(c.name, c.name), "User-Agent", c.name)
	for range c.run.cluster.Nodes() {
		c.call(403, "GET", coreV1+"nodes", "", me...)
		c.call(403, "GET", inChurn+"configmaps/"+c.name, "", me...)
		c.call(403, "GET", "/random/"+c.name, "", me...)
	}
	c.call(200, "GET", inChurn+"configmaps?limit=1", "", append(as(c.name, "system:masters"), "User-Agent", c.name)...)
}

func discovery(c *cycle) {
	const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	for _, path := range []string{"/api", "/apis"} {
		c.call(200, "GET", path, "", "Accept", aggregated)
		c.call(200, "GET", path, "")
	}
	for _, path := range []string{"/api/v1", "/apis/apps", "/apis/apps/v1", "/version", "/healthz", "/readyz?verbose", "/livez", "/.well-known/openid-configuration", "/openid/v1/jwks"} {
		c.call(200, "GET", path, "")
	}
}

func openAPI(c *cycle) {
	for range c.run.cluster.Nodes() {
		c.call(200, "GET", "/openapi/v3", "")
		c.call(200, "GET", "/openapi/v3/apis/apps/v1", "")
		c.call(200, "GET", "/openapi/v2", "", "Accept", "application/com.github.proto-openapi.spec.v2.v1.0+protobuf")
	}
}

// vanishing are clients that reset their connections: after requests, within one, within the handshake and
// before it.
func vanishing(c *cycle) {
	for _, http2 := range []bool{false, true} {
		g := c.guest(http2)
		for range c.run.cluster.Nodes() {
			c.with(g.Client, c.node(), 200, "GET", inChurn+"configmaps?limit=1", "", append(as(c.name, "system:masters"), "User-Agent", c.name)...)
		}
		g.vanish()
		g.CloseIdleConnections()
	}
	for _, begin := range []func(n *cluster.Node, address string) (net.Conn, error){
		func(_ *cluster.Node, address string) (net.Conn, error) { return net.Dial("tcp", address) },
		func(_ *cluster.Node, address string) (net.Conn, error) {
			conn, err := net.Dial("tcp", address)
			if err == nil {
				_, err = io.WriteString(conn, "GET / HTTP/1.0\r\n\r\n")
			}
			return conn, err
		},
		func(_ *cluster.Node, address string) (net.Conn, error) {
			conn, err := net.Dial("tcp", address)
			if err == nil {
				_, err = conn.Write([]byte{22, 3, 1, 1, 0, 1}) // the beginning of a handshake
			}
			return conn, err
		},
		func(_ *cluster.Node, address string) (net.Conn, error) {
			conn, err := tls.Dial("tcp", address, c.run.tls.Clone())
			if err != nil {
				return nil, err
			}
			_, err = io.WriteString(conn, "POST "+inChurn+"configmaps HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{\"a\":")
			return conn.NetConn(), err
		},
	} {
		n := c.node()
		conn, err := begin(n, strings.TrimPrefix(n.API, "https://"))
		if conn != nil {
			reset(conn)
		}
		if err != nil {
			c.fail("%s: connect: %w", n.Name, err)
		}
	}
}
