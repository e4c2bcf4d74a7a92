package apiserver_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver"
	"github.com/quorate/quorate/apiserver/backends/kubelet"
	"github.com/quorate/quorate/apiserver/wire/request"
	"github.com/quorate/quorate/internal/must"
	"k8s.io/client-go/tools/remotecommand"
)

// counting counts the long-running requests that are open.
type counting struct {
	apiserver.NoObserver
	open atomic.Int64
	last atomic.Int64 // code
}

func (c *counting) RequestStarted(k *request.Kind) {
	if k.LongRunning {
		c.open.Add(1)
	}
}

func (c *counting) RequestDone(k *request.Kind, e request.End) {
	if k.LongRunning {
		c.last.Store(int64(e.Code))
		c.open.Add(-1)
	}
}

// second bounds how long a stream takes to end when one of its two ends does. That is at once; a wait for the
// other end, which must not be there, lasts for 5 s.
const second = 3 * time.Second

// spdyStream opens an exec by hand: the connection on which SPDY would begin.
func (e *env) spdyStream(path string) *tls.Conn {
	e.t.Helper()
	conn := e.dial()
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n", path)
	w, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || w.StatusCode != http.StatusSwitchingProtocols {
		e.t.Fatal(w, err)
	}
	return conn
}

// TestStreamsEnd: within a second of the death of a client, or of the kubelet, or of the server, whatever the other end
// does.
func TestStreamsEnd(t *testing.T) {
	k := newFakeKubelet(t)
	host, port := k.address()
	seen := new(counting)
	e := withKubelets(t, kubelet.Config{}, host, port, func(c *apiserver.Config) { c.Observer = seen })
	none := func() bool { return seen.open.Load() == 0 && k.conns.Load() == 0 }
	run := func(executor, command string, in io.Reader) (end func(), done chan error) {
		t.Helper()
		query := "?command=" + command + "&stdout=true"
		if in != nil {
			query += "&stdin=true"
		}
		x, err := e.executors(podsPath + "/p/exec" + query)[executor]()
		must.OK(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done = make(chan error, 1)
		go func() {
			done <- x.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: in, Stdout: io.Discard})
		}()
		// A kubelet waits for the streams of a connection that has ended before it has all of them.
		within(t, patience, "the command runs", func() bool { return seen.open.Load() == 1 && k.running.Load() > 0 })
		return cancel, done
	}
	for _, executor := range []string{"SPDY", "WebSocket"} {
		r, w := io.Pipe()
		end, done := run(executor, "sleep", r)
		end()
		within(t, second, executor+": an idle stream ends with its client", none)
		<-done
		_ = w.Close()

		end, done = run(executor, "flood", nil)
		end()
		within(t, second, executor+": a busy stream ends with its client", none)
		<-done

		r, w = io.Pipe()
		end, done = run(executor, "sleep", r)
		k.CloseClientConnections()
		k.closeAll()
		within(t, second, executor+": a stream ends with its kubelet", func() bool { return seen.open.Load() == 0 })
		<-done // client-go takes the end of a connection for that of the command, also behind kube-apiserver
		end()
		_ = w.Close()
	}
	// A client that has sent more than the kubelet takes, and dies.
	conn := e.spdyStream(podsPath + "/p/exec?command=ignore&stdin=true")
	_ = conn.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
	frame := append([]byte{0, 0, 0, 1, 0, 0, 0x40, 0}, make([]byte, 0x4000)...)
	for {
		if _, err := conn.Write(frame); err != nil {
			break
		}
	}
	_ = conn.NetConn().Close()
	within(t, second, "a stream that nobody reads ends with its client", func() bool { return seen.open.Load() == 0 })

	_, done := run("WebSocket", "sleep", new(endless))
	ctx, cancel := context.WithTimeout(t.Context(), second)
	defer cancel()
	if err := e.api.Shutdown(ctx); err != nil {
		t.Errorf("the server does not end: %v", err)
	}
	<-done
	within(t, second, "streams end with the server", func() bool { return seen.open.Load() == 0 })
}

// TestServerEndsBeforeItsClientsRead: logs and answers of Pods whose clients take nothing end with the server, too.
func TestServerEndsBeforeItsClientsRead(t *testing.T) {
	k := newFakeKubelet(t)
	var written atomic.Int64
	flood := func(w http.ResponseWriter, _ *http.Request) {
		for b := make([]byte, 32<<10); ; written.Add(1) {
			if _, err := w.Write(b); err != nil {
				return
			}
		}
	}
	k.log, k.handle = flood, flood
	dial := behind(k.Listener.Addr().String(), make(chan string, 8))
	seen := new(counting)
	e := withKubelets(t, kubelet.Config{Dial: dial, DialAllowed: dial}, "10.9.9.9", 10250, func(c *apiserver.Config) { c.Observer = seen })
	for _, path := range []string{podsPath + "/p/log?follow=true", "/api/v1/nodes/n/proxy/x"} {
		e.getUnread(path)
	}
	unread(t, seen, 4, &written)
	ctx, cancel := context.WithTimeout(t.Context(), second)
	defer cancel()
	if err := e.api.Shutdown(ctx); err != nil {
		t.Errorf("the server does not end: %v", err)
	}
}

// TestServerEndsBeforeItsClientsSend: requests whose bodies do not come to an end, to Pods and to aggregated API
// servers, end with the server, too.
func TestServerEndsBeforeItsClientsSend(t *testing.T) {
	const widget = aggregatedPath + "/namespaces/default/widgets/a/proxy"
	k := newFakeKubelet(t)
	waits := make(chan struct{}, 4)
	k.handle = func(_ http.ResponseWriter, r *http.Request) {
		waits <- struct{}{}
		_, _ = io.Copy(io.Discard, r.Body)
	}
	dial := behind(k.Listener.Addr().String(), make(chan string, 8))
	kubelets := kubelet.New(kubelet.Config{Dial: dial, DialAllowed: dial})
	t.Cleanup(kubelets.Close)
	seen := new(counting)
	e := withWidgets(t, k.handle, func(c *apiserver.Config) { c.Observer, c.Kubelets = seen, kubelets })
	e.post("/api/v1/nodes", `{"metadata":{"name":"n"},"status":{"addresses":[{"type":"InternalIP","address":"10.9.9.9"}],"daemonEndpoints":{"kubeletEndpoint":{"Port":10250}}}}`)
	for _, path := range []string{"/api/v1/nodes/n/proxy/x", widget} {
		conn := e.dial()
		defer conn.Close()
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", path)
		body, more := io.Pipe()
		defer more.Close()
		go func() { // on HTTP/2
			if w, err := e.client.Post(e.url+path, "text/plain", body); err == nil {
				_ = w.Body.Close()
			}
		}()
	}
	within(t, patience, "all wait for their clients", func() bool { return seen.open.Load() == 4 && len(waits) == 4 })
	ctx, cancel := context.WithTimeout(t.Context(), second)
	defer cancel()
	if err := e.api.Shutdown(ctx); err != nil {
		t.Errorf("the server does not end: %v", err)
	}
}

// TestKubeletEndsBeforeItsClientSends: a proxied request whose body does not come to an end is answered when what it
// goes to has died.
func TestKubeletEndsBeforeItsClientSends(t *testing.T) {
	k := newFakeKubelet(t)
	waits := make(chan struct{}, 4)
	k.handle = func(_ http.ResponseWriter, r *http.Request) {
		waits <- struct{}{}
		_, _ = io.Copy(io.Discard, r.Body)
	}
	dial := behind(k.Listener.Addr().String(), make(chan string, 8))
	seen := new(counting)
	e := withKubelets(t, kubelet.Config{Dial: dial, DialAllowed: dial}, "10.9.9.9", 10250, func(c *apiserver.Config) { c.Observer = seen })
	const path = "/api/v1/nodes/n/proxy/x"
	conn := e.dial()
	defer conn.Close()
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", path)
	body, more := io.Pipe()
	defer more.Close()
	answer := make(chan error, 1)
	go func() { // on HTTP/2
		w, err := e.client.Post(e.url+path, "text/plain", body)
		if err == nil && w.StatusCode < 500 {
			err = fmt.Errorf("%d", w.StatusCode)
		}
		answer <- err
	}()
	within(t, patience, "both wait for their clients", func() bool { return seen.open.Load() == 2 && len(waits) == 2 })
	k.CloseClientConnections()
	within(t, second, "requests end with their kubelet", func() bool { return seen.open.Load() == 0 })
	if w, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || w.StatusCode < 500 {
		t.Errorf("on HTTP/1.1: %v, %v", w, err)
	}
	if err := <-answer; err != nil {
		t.Errorf("on HTTP/2: %v", err)
	}
}

// TestClientsDieUnread: a stream ends with its client also where nobody reads from the connection: a body that
// is not taken, or what came behind the request, is in the way of its end.
func TestClientsDieUnread(t *testing.T) {
	seen := new(counting)
	over := make(chan struct{})
	e, k := withBoth(t, func(http.ResponseWriter, *http.Request) { <-over }, func(c *apiserver.Config) { c.Observer = seen })
	t.Cleanup(func() { close(over) })
	k.log = k.handle
	e.post(podsPath, `{"metadata":{"name":"p"},"spec":{"nodeName":"n","containers":[{"name":"c","image":"i"}]}}`)
	const widget = aggregatedPath + "/namespaces/default/widgets/a/proxy"
	for _, request := range []string{
		"GET " + podsPath + "/p/log?follow=true HTTP/1.1\r\nHost: x\r\n\r\n",
		"POST /api/v1/nodes/n/proxy/x HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n",
		"POST " + widget + " HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n",
	} {
		conn := e.dial()
		fmt.Fprint(conn, request)
		within(t, patience, "the stream begins", func() bool { return seen.open.Load() == 1 })
		_ = conn.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
		for b := make([]byte, 64<<10); ; {
			if _, err := conn.Write(b); err != nil {
				break
			}
		}
		client := conn.NetConn().(*net.TCPConn)
		_ = client.SetLinger(0) // what was not sent is not in the way
		_ = client.Close()
		within(t, second, request+"ends with its client", func() bool { return seen.open.Load() == 0 })
	}
}

// endless is read for ever, slowly.
type endless struct{}

func (*endless) Read(b []byte) (int, error) {
	<-time.After(time.Millisecond)
	return copy(b, "x"), nil
}

// rawKubelet answers each connection by a function, over TLS.
func rawKubelet(t *testing.T, serve func(net.Conn)) (host string, port int) {
	k := newFakeKubelet(t)
	l, err := tls.Listen("tcp", "127.0.0.1:0", k.TLS)
	must.OK(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = conn.Close() })
			go serve(conn)
		}
	}()
	at := l.Addr().(*net.TCPAddr)
	return at.IP.String(), at.Port
}

// TestHostileKubelets: whatever one answers is bounded, and becomes an error.
func TestHostileKubelets(t *testing.T) {
	header := func(conn net.Conn) { _, _ = http.ReadRequest(bufio.NewReader(conn)) }
	forever := func(conn net.Conn, b []byte) {
		for {
			if _, err := conn.Write(b); err != nil {
				return
			}
		}
	}
	for name, r := range map[string]struct {
		serve        func(net.Conn)
		logs, stream string
	}{
		"garbage": {func(c net.Conn) { header(c); fmt.Fprint(c, "\x00\x01garbage\r\n\r\n"); _ = c.Close() }, "malformed HTTP", "malformed HTTP"},
		"an endless header": {func(c net.Conn) {
			header(c)
			fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\n")
			forever(c, []byte("X-Header: "+strings.Repeat("x", 1000)+"\r\n"))
		}, "server response headers exceeded", "too long"},
		"an endless refusal": {func(c net.Conn) {
			header(c)
			fmt.Fprint(c, "HTTP/1.1 500 Internal Server Error\r\n\r\n")
			forever(c, bytes.Repeat([]byte("x"), 16<<10))
		}, strings.Repeat("x", 1000), strings.Repeat("x", 1000)},
		"a redirect": {func(c net.Conn) {
			header(c)
			fmt.Fprint(c, "HTTP/1.1 302 Found\r\nLocation: https://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n")
		}, "redirects forbidden", "invalid upgrade response: status code 302"},
		"an end": {func(c net.Conn) { header(c); _ = c.Close() }, "EOF", "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			host, port := rawKubelet(t, r.serve)
			e := withKubelets(t, kubelet.Config{}, host, port, nil)
			w, answer := e.doOnHTTP1("GET", podsPath+"/p/log", nil, "")
			if w.StatusCode != 500 || !strings.Contains(answer, r.logs) {
				t.Errorf("logs: %d %.300s", w.StatusCode, answer)
			}
			conn := e.dial()
			defer conn.Close()
			fmt.Fprintf(conn, "POST %s/p/exec?command=x&stdout=1 HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n", podsPath)
			w, err := http.ReadResponse(bufio.NewReader(conn), nil)
			must.OK(t, err)
			b, _ := io.ReadAll(io.LimitReader(w.Body, 4<<20))
			if w.StatusCode != 500 || !strings.Contains(string(b), r.stream) || len(b) > 2<<20 {
				t.Errorf("exec: %d %d bytes %.300s", w.StatusCode, len(b), b)
			}
			_ = w.Body.Close()
			// The same through the translation of WebSockets.
			x, err := e.executors(podsPath + "/p/exec?command=x&stdout=true")["WebSocket"]()
			must.OK(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if err := x.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: io.Discard}); err == nil || ctx.Err() != nil {
				t.Errorf("WebSocket: %v", err)
			}
		})
	}
}

// TestKubeletThatHangs: who waits for one may go, and holds no seat of others meanwhile.
func TestKubeletThatHangs(t *testing.T) {
	seen := new(counting)
	var taken atomic.Int64
	host, port := rawKubelet(t, func(c net.Conn) { taken.Add(1); _, _ = io.Copy(io.Discard, c); taken.Add(-1) })
	e := withKubelets(t, kubelet.Config{}, host, port, func(c *apiserver.Config) {
		c.Observer, c.Limits.Reads, c.Limits.Writes = seen, 2, 2
	})
	for _, path := range []string{"/p/log?follow=true", "/p/log"} {
		for range 8 {
			ctx, cancel := context.WithCancel(t.Context())
			r, _ := http.NewRequestWithContext(ctx, "GET", e.url+podsPath+path, nil)
			go func() {
				if w, err := e.client.Do(r); err == nil {
					_ = w.Body.Close()
				}
			}()
			defer cancel()
		}
	}
	conn := e.dial()
	fmt.Fprintf(conn, "POST %s/p/exec?command=x&stdout=1 HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n", podsPath)
	within(t, patience, "all wait for the kubelet", func() bool { return seen.open.Load() == 17 && taken.Load() == 17 })
	if w, answer := e.do("GET", podsPath+"/p", nil, ""); w.StatusCode != 200 {
		t.Errorf("others wait for a kubelet that hangs: %d %s", w.StatusCode, answer)
	}
	_ = conn.NetConn().Close()
	within(t, second, "one who waits for an upgrade may go", func() bool { return seen.open.Load() == 16 && taken.Load() == 16 })
}

// TestStreamsAreBounded: by their number, for each user and for all.
func TestStreamsAreBounded(t *testing.T) {
	k := newFakeKubelet(t)
	host, port := k.address()
	k.log = func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
	e := withKubelets(t, kubelet.Config{}, host, port, func(c *apiserver.Config) { c.Authorizer, c.Limits.Streams = readers{c.Authorizer}, 4 })
	open := func(user string) int {
		r, _ := http.NewRequestWithContext(t.Context(), "GET", e.url+podsPath+"/p/log?follow=true", nil)
		r.Header.Set("Test-User", user)
		if user == "" {
			r.Header.Del("Test-User")
		}
		w, err := e.client.Do(r)
		must.OK(t, err)
		t.Cleanup(func() { _ = w.Body.Close() })
		return w.StatusCode
	}
	for i, r := range []struct {
		user string
		code int
	}{{"reader", 200}, {"reader", 200}, {"reader", 429}, {"", 200}, {"", 200}, {"", 429}} {
		if got := open(r.user); got != r.code {
			t.Errorf("stream %d, of %q: %d, want %d", i, r.user, got, r.code)
		}
	}
}

// TestKubeletsAreVerified by their authority, if there is one, and shown a certificate.
func TestKubeletsAreVerified(t *testing.T) {
	k := newFakeKubelet(t)
	host, port := k.address()
	right := x509.NewCertPool()
	right.AddCert(k.Certificate())
	shown := k.TLS.Certificates[0]
	for _, r := range []struct {
		authorities *x509.CertPool
		path        string
		code        int
		answer      string
	}{
		{nil, "/p/log", 200, "a line"},
		{right, "/p/log", 200, "a line"},
		{x509.NewCertPool(), "/p/log", 500, "x509: certificate signed by unknown authority"},
		{x509.NewCertPool(), "/p/log?insecureSkipTLSVerifyBackend=true", 200, "a line"},
	} {
		e := withKubelets(t, kubelet.Config{Authorities: r.authorities, Certificate: func() (*tls.Certificate, error) { return &shown, nil }}, host, port, nil)
		if w, answer := e.do("GET", podsPath+r.path, nil, ""); w.StatusCode != r.code || !strings.Contains(answer, r.answer) {
			t.Errorf("%s: %d %s", r.path, w.StatusCode, answer)
		}
		if r.code == 200 && len(k.asked.Load().TLS.PeerCertificates) != 1 {
			t.Error("the kubelet was shown no certificate")
		}
		x, err := e.executors(podsPath + "/p/exec?command=echo&stdout=true")["WebSocket"]()
		must.OK(t, err)
		err = x.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: io.Discard})
		if trusted := r.authorities == nil || r.authorities == right; trusted != (err == nil) {
			t.Errorf("exec: %v", err)
		}
	}
}

// getUnread asks for a path on HTTP/1.1 and on HTTP/2, and reads nothing.
func (e *env) getUnread(path string) {
	e.t.Helper()
	conn := e.dial()
	e.t.Cleanup(func() { _ = conn.Close() })
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path)
	w, err := e.client.Get(e.url + path)
	must.OK(e.t, err)
	e.t.Cleanup(func() { _ = w.Body.Close() })
}

// unread awaits that so many requests are open, and that nothing more is written to their clients.
func unread(t *testing.T, seen *counting, open int64, written *atomic.Int64) {
	t.Helper()
	last, since := int64(-1), time.Now()
	within(t, patience, "all wait for their clients", func() bool {
		if now := written.Load(); now != last {
			last, since = now, time.Now()
		}
		//wall: a pause that must have passed, not a bound
		return seen.open.Load() == open && time.Since(since) > 300*time.Millisecond
	})
}
