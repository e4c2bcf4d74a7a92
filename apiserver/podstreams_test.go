package apiserver_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver"
	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/backends/kubelet"
	"github.com/quorate/quorate/internal/must"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	clientexec "k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"
)

// TestLogs: what a kubelet is asked for, and what becomes of its answers.
func TestLogs(t *testing.T) {
	k := newFakeKubelet(t)
	host, port := k.address()
	e := withKubelets(t, kubelet.Config{}, host, port, nil)
	e.post(podsPath, `{"metadata":{"name":"two"},"spec":{"nodeName":"n","initContainers":[{"name":"i","image":"i"}],"containers":[{"name":"a","image":"i"},{"name":"b","image":"i"}]}}`)
	e.post(podsPath, `{"metadata":{"name":"unbound"},"spec":{"containers":[{"name":"c","image":"i"}]}}`)
	e.post(podsPath, `{"metadata":{"name":"lost"},"spec":{"nodeName":"gone","containers":[{"name":"c","image":"i"}]}}`)
	refuse := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "its words", code) }
	}
	for _, r := range []struct {
		path   string
		log    http.HandlerFunc
		code   int
		answer string // a part of it
		asked  string // of the kubelet
	}{
		{"p/log", nil, 200, "a line", "/containerLogs/default/p/c?"},
		{"two/log?container=i", nil, 200, "a line", "/containerLogs/default/two/i?"},
		{"p/log?follow=true&previous=1&timestamps=true&sinceSeconds=5&tailLines=3&limitBytes=10", nil, 200, "a line", "/containerLogs/default/p/c?follow=true&limitBytes=10&previous=true&sinceSeconds=5&tailLines=3&timestamps=true"},
		{"p/log?sinceTime=2026-01-02T03:04:05Z", nil, 200, "a line", "?sinceTime=2026-01-02T03%3A04%3A05Z"},
		{"p/log?insecureSkipTLSVerifyBackend=true", nil, 200, "a line", "/containerLogs/default/p/c?"},
		{"p/log?tailLines=-1", nil, 422, "must be greater than or equal to 0", ""},
		{"p/log?limitBytes=0", nil, 422, "must be greater than 0", ""},
		{"p/log?sinceSeconds=1&sinceTime=2026-01-02T03:04:05Z", nil, 422, "at most one of `sinceTime` or `sinceSeconds` may be specified", ""},
		{"p/log?tailLines=x", nil, 400, "invalid syntax", ""},
		{"p/log?stream=Stdout", nil, 422, "may not be specified", ""},
		{"two/log", nil, 400, "a container name must be specified for pod two, choose one of: [i a b]", ""},
		{"p/log?container=x", nil, 400, "container x is not valid for pod p", ""},
		{"nobody/log", nil, 404, `pods \"nobody\" not found`, ""},
		{"unbound/log", nil, 204, "", ""},
		{"lost/log", nil, 404, `pods \"gone\" not found`, ""},
		{"p/log/more", nil, 404, "could not find the requested resource", ""},
		{"p/log", refuse(400), 400, "its words", "/containerLogs"},
		{"p/log", refuse(404), 404, "the server could not find the requested resource ( pods/log p)", "/containerLogs"},
		{"p/log", refuse(500), 500, "Internal error occurred: its words", "/containerLogs"},
		{"p/log", refuse(403), 403, "its words", "/containerLogs"},
		{"p/log", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) }, 500, "redirects forbidden", "/containerLogs"},
	} {
		k.asked.Store(nil)
		was := k.log
		if r.log != nil {
			k.log = r.log
		}
		w, answer := e.do("GET", podsPath+"/"+r.path, nil, "")
		k.log = was
		if w.StatusCode != r.code || !strings.Contains(answer, r.answer) {
			t.Errorf("%s: %d %s, want %d and %s", r.path, w.StatusCode, answer, r.code, r.answer)
		}
		if w.StatusCode == 200 && w.Header.Get("Content-Type") != "text/plain" {
			t.Errorf("%s: %s", r.path, w.Header.Get("Content-Type"))
		}
		asked := ""
		if q := k.asked.Load(); q != nil {
			asked = q.URL.Path + "?" + q.URL.RawQuery
		}
		if !strings.Contains(asked, r.asked) || r.asked == "" && asked != "" {
			t.Errorf("%s: the kubelet was asked for %q, want %q", r.path, asked, r.asked)
		}
	}
}

// TestLogIsFollowed: lines come when they are written, and a log that breaks off does not look complete.
func TestLogIsFollowed(t *testing.T) {
	k := newFakeKubelet(t)
	lines := make(chan string)
	k.log = func(w http.ResponseWriter, r *http.Request) {
		for line := range lines {
			fmt.Fprintln(w, line)
			_ = http.NewResponseController(w).Flush()
		}
		panic(http.ErrAbortHandler)
	}
	host, port := k.address()
	e := withKubelets(t, kubelet.Config{}, host, port, nil)
	// The kubelet has said nothing when the first answer is awaited: the headers come with the first line.
	got := make(chan *http.Response, 1)
	go func() {
		w, err := e.client.Get(e.url + podsPath + "/p/log?follow=true")
		if err != nil {
			t.Error(err)
			close(got)
			return
		}
		got <- w
	}()
	lines <- "one"
	w := <-got
	if w == nil {
		return
	}
	defer w.Body.Close()
	b := bufio.NewReader(w.Body)
	if line, err := b.ReadString('\n'); line != "one\n" {
		t.Fatal(line, err)
	}
	lines <- "two"
	if line, err := b.ReadString('\n'); line != "two\n" {
		t.Fatal(line, err)
	}
	close(lines)
	if rest, err := io.ReadAll(b); err == nil {
		t.Errorf("a log that broke off looks complete: %q", rest)
	}
}

// executors are client-go's, by their protocol.
func (e *env) executors(path string) map[string]func() (remotecommand.Executor, error) {
	u, err := url.Parse(e.url + path)
	must.OK(e.t, err)
	return map[string]func() (remotecommand.Executor, error){
		"SPDY": func() (remotecommand.Executor, error) { return remotecommand.NewSPDYExecutor(e.config(), "POST", u) },
		"WebSocket": func() (remotecommand.Executor, error) {
			return remotecommand.NewWebSocketExecutor(e.config(), "GET", u.String())
		},
	}
}

// size is a terminal's, once.
type size struct{ told bool }

func (s *size) Next() *remotecommand.TerminalSize {
	if s.told {
		return nil
	}
	s.told = true
	return &remotecommand.TerminalSize{Width: 80, Height: 25}
}

// TestExec: client-go's executors, through the server, to the library of container runtimes.
func TestExec(t *testing.T) {
	k := newFakeKubelet(t)
	host, port := k.address()
	e := withKubelets(t, kubelet.Config{}, host, port, nil)
	long := strings.Repeat("0123456789abcdef", 64<<10)
	for _, r := range []struct{ sub, query, in, out, errs string }{
		{"exec", "command=echo&command=a&command=b&stdout=true", "", "a b", ""},
		{"exec", "command=complain&stdout=true&stderr=true", "", "", "a complaint"},
		{"exec", "command=cat&stdin=true&stdout=true&container=c", long, long, ""},
		{"exec", "command=size&stdin=true&stdout=true&tty=true", "", "80x25", ""},
		{"attach", "stdin=true&stdout=true", "what is sent", "what is sent", ""},
	} {
		for name, executor := range e.executors(podsPath + "/p/" + r.sub + "?" + r.query) {
			x, err := executor()
			must.OK(t, err)
			var out, errs bytes.Buffer
			o := remotecommand.StreamOptions{Stdout: &out}
			if strings.Contains(r.query, "stdin") {
				o.Stdin = strings.NewReader(r.in)
			}
			if strings.Contains(r.query, "stderr") {
				o.Stderr = &errs
			}
			if strings.Contains(r.query, "tty") {
				o.Tty, o.TerminalSizeQueue = true, &size{}
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			err = x.StreamWithContext(ctx, o)
			cancel()
			if err != nil || out.String() != r.out || errs.String() != r.errs {
				t.Errorf("%s %s?%s: %.100q %.100q %v", name, r.sub, r.query, out.String(), errs.String(), err)
			}
		}
	}
	for name, executor := range e.executors(podsPath + "/p/exec?command=exit&stdout=true") {
		x, err := executor()
		must.OK(t, err)
		err = x.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: io.Discard})
		if code := (clientexec.CodeExitError{}); !errors.As(err, &code) || code.Code != 7 {
			t.Errorf("%s: the command's code is lost: %v", name, err)
		}
	}
	within(t, patience, "all connections to the kubelet end", func() bool { return k.conns.Load() == 0 })
}

// TestConnectionsRefused are answers to what cannot become a stream.
func TestConnectionsRefused(t *testing.T) {
	k := newFakeKubelet(t)
	host, port := k.address()
	e := withKubelets(t, kubelet.Config{}, host, port, func(c *apiserver.Config) { c.Authorizer = readers{c.Authorizer} })
	e.post(podsPath, `{"metadata":{"name":"unbound"},"spec":{"containers":[{"name":"c","image":"i"}]}}`)
	spdy31 := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}}
	as := func(user string, h http.Header) http.Header {
		if h = h.Clone(); h == nil {
			h = http.Header{}
		}
		h.Set("Test-User", user)
		return h
	}
	for _, r := range []struct {
		method, path string
		header       http.Header
		body         string
		code         int
		answer       string
	}{
		{"POST", "p/exec?command=ls&stdout=true", nil, "", 400, "Upgrade request required"},
		{"PUT", "p/exec?command=ls", nil, "", 405, "the server does not allow this method on the requested resource"},
		{"HEAD", "p/exec?command=ls", nil, "", 405, ""},
		{"POST", "p/exec?command=ls&container=x", nil, "", 400, "container x is not valid for pod p"},
		{"POST", "unbound/exec?command=ls", nil, "", 400, "pod unbound does not have a host assigned"},
		{"POST", "unbound/portforward", nil, "", 400, "pod unbound does not have a host assigned"},
		{"POST", "p/exec?command=ls&dryRun=All", nil, "", 400, "dryRun is not supported"},
		{"POST", "p/exec/more", nil, "", 404, "could not find the requested resource"},
		{"POST", "p/portforward?ports=x", nil, "", 400, "cannot convert to []int32"},
		{"POST", "p/exec?command=ls&stdout=true", spdy31, "a body", 400, "a request for an upgrade has no body"},
		{"GET", "p/exec?command=ls&stdout=true", as("reader", spdy31), "", 403, `pods \"p\" is forbidden`},
		{"GET", "p/portforward", as("reader", spdy31), "", 403, `pods \"p\" is forbidden`},
		{"GET", "p/log", as("reader", nil), "", 200, "a line"},
	} {
		w, answer := e.doOnHTTP1(r.method, podsPath+"/"+r.path, r.header, r.body)
		if w.StatusCode != r.code || !strings.Contains(answer, r.answer) {
			t.Errorf("%s %s: %d %s, want %d and %s", r.method, r.path, w.StatusCode, answer, r.code, r.answer)
		}
	}
}

// readers lets the user reader get everything.
type readers struct{ auth.Authorizer }

func (r readers) Authorize(ctx context.Context, a auth.Attributes) (auth.Decision, string, error) {
	if a.User.Name == "reader" && a.Verb == "get" {
		return auth.Allow, "", nil
	}
	return r.Authorizer.Authorize(ctx, a)
}

// doOnHTTP1 is do on a connection of HTTP/1.1, of its own.
func (e *env) doOnHTTP1(method, path string, header http.Header, body string) (*http.Response, string) {
	e.t.Helper()
	conn := e.dial()
	defer conn.Close()
	r, err := http.NewRequest(method, e.url+path, strings.NewReader(body))
	must.OK(e.t, err)
	if header != nil {
		r.Header = header
	}
	must.OK(e.t, r.Write(conn))
	w, err := http.ReadResponse(bufio.NewReader(conn), r)
	if err != nil {
		e.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer w.Body.Close()
	b, err := io.ReadAll(w.Body)
	must.OK(e.t, err)
	return w, string(b)
}

// dial opens a connection for HTTP/1.1 with a deadline.
func (e *env) dial() *tls.Conn {
	e.t.Helper()
	conn, err := tls.Dial("tcp", strings.TrimPrefix(e.url, "https://"), &tls.Config{InsecureSkipVerify: true})
	must.OK(e.t, err)
	_ = conn.SetDeadline(time.Now().Add(patience))
	return conn
}

// TestPortForward: client-go's dialers, SPDY and in a WebSocket.
func TestPortForward(t *testing.T) {
	k := newFakeKubelet(t)
	host, port := k.address()
	e := withKubelets(t, kubelet.Config{}, host, port, nil)
	u, _ := url.Parse(e.url + podsPath + "/p/portforward")
	transport, upgrader, err := spdy.RoundTripperFor(e.config())
	must.OK(t, err)
	tunnel, err := portforward.NewSPDYOverWebsocketDialerForStreaming(u, e.config())
	must.OK(t, err)
	for name, dialer := range map[string]httpstream.Dialer{
		"SPDY": spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, "POST", u), "WebSocket": tunnel,
	} {
		stop, ready := make(chan struct{}), make(chan struct{})
		f, err := portforward.NewOnAddressesForStreaming(dialer, []string{"127.0.0.1"}, []string{":8080"}, stop, ready, io.Discard, io.Discard)
		must.OK(t, err)
		done := make(chan error, 1)
		go func() { done <- f.ForwardPorts() }()
		select {
		case <-ready:
		case err := <-done:
			t.Fatalf("%s: %v", name, err)
		}
		ports, err := f.GetPorts()
		must.OK(t, err)
		for range 3 {
			if got := forwarded(t, fmt.Sprintf("127.0.0.1:%d", ports[0].Local)); got != "8080 hello\n" {
				t.Errorf("%s: %q", name, got)
			}
		}
		close(stop)
		if err := <-done; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	within(t, patience, "all connections to the kubelet end", func() bool { return k.conns.Load() == 0 })
}

// forwarded is what comes back from a port that is forwarded.
func forwarded(t *testing.T, address string) string {
	conn, err := net.Dial("tcp", address)
	must.OK(t, err)
	defer conn.Close()
	fmt.Fprintln(conn, "hello")
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	got, err := io.ReadAll(conn)
	if err != nil {
		t.Error(err)
	}
	return string(got)
}
