package direct_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/admission/answers"
	"github.com/quorate/quorate/apiserver/admission/webhook/direct"
	"github.com/quorate/quorate/internal/must"
)

// hook is a server, and a client of it.
type hook struct {
	*httptest.Server
	made   atomic.Int64 // connections
	client *direct.Client
	chain  http.RoundTripper
}

// counting counts the connections that are taken.
type counting struct {
	net.Listener
	made *atomic.Int64
}

func (c counting) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.made.Add(1)
	}
	return conn, err
}

// hookSpeaks is what a hook speaks. One of HTTP/2 alone refuses a client that does not offer it, or takes no notice of that, or
// closes the connection. One of both may not say so.
type hookSpeaks int

const (
	speaks1 hookSpeaks = iota
	refuses1
	ignores1
	closes1
	speaksBoth
)

// newHook starts one.
func newHook(t *testing.T, speaks hookSpeaks) *hook {
	h := &hook{}
	h.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body)
	}))
	h.Listener = counting{h.Listener, &h.made}
	h.EnableHTTP2 = speaks != speaks1
	h.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	switch speaks {
	case refuses1:
		h.TLS = &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			if !slices.Contains(hello.SupportedProtos, "h2") { // crypto/tls itself would take it for HTTP/1.1
				return nil, errors.New("no HTTP/2")
			}
			return nil, nil
		}}
	case ignores1, closes1:
		h.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
			if secured := c.(*tls.Conn); secured.Handshake() == nil && secured.ConnectionState().NegotiatedProtocol == "" {
				if speaks == ignores1 {
					_, _ = c.Write([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0}) // SETTINGS, which each server begins with
					_, _ = c.Read(make([]byte, 4096))                 // what is no preface of HTTP/2 ends it
				}
				_ = c.Close()
			}
			return ctx
		}
	}
	h.StartTLS()
	t.Cleanup(h.Close)
	base := h.Client().Transport.(*http.Transport).Clone()
	base.DialContext = (&net.Dialer{}).DialContext
	h.chain = direct.Transport(base, answers.NewLimits())
	h.client = direct.Of(h.chain)
	return h
}

// ask sends a review by upstream's client.
func (h *hook) ask(t *testing.T) {
	t.Helper()
	h.askWithin(t.Context(), t)
}

func (h *hook) askWithin(ctx context.Context, t *testing.T) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, h.URL+"/a?timeout=1s", strings.NewReader("{}"))
	must.OK(t, err)
	w, err := h.chain.RoundTrip(r)
	must.OK(t, err)
	if _, err := io.ReadAll(w.Body); err != nil {
		t.Fatal(err)
	}
	w.Body.Close()
}

// send sends one by a connection of our own, and returns the answer.
func (h *hook) send(t *testing.T, connect bool) (string, bool) {
	t.Helper()
	r := &direct.Review{Body: []byte(`{"a":1}`), Timeout: time.Second, Deadline: time.Now().Add(10 * time.Second)}
	send := h.client.Send
	if connect {
		send = h.client.Connect
	}
	x, ok := send(t.Context(), r)
	if !ok {
		return "", false
	}
	defer x.Close()
	x.Await(time.Time{})
	raw, ok := x.Answer()
	return string(raw), ok
}

// TestConnections: the first review is upstream's, the others are sent on one connection as long as
// the server keeps it.
func TestConnections(t *testing.T) {
	h := newHook(t, speaks1)
	if _, ok := h.send(t, true); ok {
		t.Error("sent without knowing the way")
	}
	h.ask(t)
	if _, ok := h.send(t, false); ok {
		t.Error("sent without a connection")
	}
	for i := range 10 {
		if got, ok := h.send(t, i == 0); !ok || got != `{"a":1}` {
			t.Fatalf("the answer %d: %q", i, got)
		}
	}
	if n := h.made.Load(); n != 2 {
		t.Errorf("%d connections", n)
	}
	h.CloseClientConnections()
	if _, ok := h.send(t, false); ok {
		t.Error("sent on a connection that its server has ended")
	}
	if got, ok := h.send(t, true); !ok || got != `{"a":1}` {
		t.Errorf("the answer on a new connection: %q", got)
	}
}

// TestOnlyHTTP2: a server without HTTP/1.1 is left to upstream's client, also if the handshake does not say so. Each review
// is answered.
func TestOnlyHTTP2(t *testing.T) {
	for name, speaks := range map[string]hookSpeaks{"refuses": refuses1, "ignores": ignores1, "closes": closes1} {
		t.Run(name, func(t *testing.T) {
			h := newHook(t, speaks)
			h.ask(t)
			r := &direct.Review{Body: []byte(`{}`), Timeout: time.Second, Deadline: time.Now().Add(10 * time.Second)}
			x, ok := h.client.Connect(t.Context(), r)
			if ok != (speaks != refuses1) {
				t.Fatalf("sent: %v", ok)
			}
			if ok {
				defer x.Close()
				x.Await(time.Time{})
				if _, ok := x.Answer(); ok {
					t.Error("answered in HTTP/1.1")
				}
				ctx, cancel := x.Replay()
				defer cancel()
				h.askWithin(ctx, t)
			}
			made := h.made.Load()
			h.ask(t)
			if _, ok := h.send(t, true); ok || h.made.Load() != made {
				t.Errorf("%d more connections were tried", h.made.Load()-made)
			}
		})
	}
}

// TestSilentOnHTTP1: a server that names HTTP/2 only, and speaks both, is asked in HTTP/1.1, by connections that are kept.
func TestSilentOnHTTP1(t *testing.T) {
	h := newHook(t, speaksBoth)
	h.ask(t)
	for i := range 10 {
		if got, ok := h.send(t, i == 0); !ok || got != `{"a":1}` {
			t.Fatalf("the answer %d: %q", i, got)
		}
	}
	if n := h.made.Load(); n != 2 {
		t.Errorf("%d connections", n)
	}
	h.CloseClientConnections()
	if got, ok := h.send(t, true); !ok || got != `{"a":1}` {
		t.Errorf("the answer on a new connection: %q", got)
	}
}

// TestTunnelled: what a dialer gives that is no connection of the system, as through a proxy with TLS,
// is left to upstream's client.
func TestTunnelled(t *testing.T) {
	h := newHook(t, speaks1)
	base := h.Client().Transport.(*http.Transport).Clone()
	base.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		return struct{ net.Conn }{c}, err
	}
	h.chain = direct.Transport(base, answers.NewLimits())
	h.client = direct.Of(h.chain)
	h.ask(t)
	if _, ok := h.send(t, true); ok {
		t.Error("sent on a connection that cannot be looked at")
	}
	made := h.made.Load()
	h.ask(t)
	if _, ok := h.send(t, true); ok || h.made.Load() != made {
		t.Errorf("%d more connections were tried", h.made.Load()-made)
	}
}

// TestNoCheck: what is not sent without upstream's client: to a server whose certificate is not
// checked, by a proxy, with credentials.
func TestNoCheck(t *testing.T) {
	for name, change := range map[string]func(base *http.Transport, r *http.Request){
		"unchecked":   func(base *http.Transport, _ *http.Request) { base.TLSClientConfig.InsecureSkipVerify = true },
		"credentials": func(_ *http.Transport, r *http.Request) { r.Header.Set("Authorization", "Bearer x") },
		"parameters":  func(_ *http.Transport, r *http.Request) { r.URL.RawQuery = "a=b" },
		"method":      func(_ *http.Transport, r *http.Request) { r.Method = http.MethodPut },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHook(t, speaks1)
			base := h.Client().Transport.(*http.Transport).Clone()
			base.DialContext = (&net.Dialer{}).DialContext
			chain := direct.Transport(base, answers.NewLimits())
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.URL, strings.NewReader("{}"))
			must.OK(t, err)
			change(base, r)
			w, err := chain.RoundTrip(r)
			must.OK(t, err)
			w.Body.Close()
			if _, ok := direct.Of(chain).Connect(context.Background(), &direct.Review{}); ok {
				t.Error("sent")
			}
		})
	}
}

// script is a server that writes what it is told for each request that it reads.
type script struct {
	chain  http.RoundTripper
	client *direct.Client
	url    string
	write  atomic.Pointer[func() error] // an error of the next write of the client, if it returns one
}

// together keeps what TLS writes until flush: several records come in one piece.
type together struct {
	net.Conn
	kept []byte
}

func (c *together) Write(p []byte) (int, error) {
	c.kept = append(c.kept, p...)
	return len(p), nil
}

// SetWriteDeadline is nothing: TLS sets one that is over when it has ended.
func (c *together) SetWriteDeadline(time.Time) error { return nil }

func (c *together) flush() error {
	_, err := c.Conn.Write(c.kept)
	c.kept = nil
	return err
}

// failing is a connection of the system whose writes can fail.
type failing struct {
	*net.TCPConn
	script *script
}

func (c failing) Write(p []byte) (int, error) {
	if f := c.script.write.Swap(nil); f != nil {
		if err := (*f)(); err != nil {
			return 0, err
		}
	}
	return c.TCPConn.Write(p)
}

// newScript answers each request by one record for each text; the first of all by a good one.
// An empty text ends the TLS of the connection, which stays open.
func newScript(t *testing.T, replies func() []string) *script {
	h := httptest.NewUnstartedServer(nil)
	h.StartTLS()
	certificate := h.TLS.Certificates[0]
	base := h.Client().Transport.(*http.Transport).Clone()
	h.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(t, err)
	var served sync.WaitGroup
	ended := make(chan struct{})
	t.Cleanup(func() { close(ended); _ = l.Close(); served.Wait() })
	served.Go(func() {
		for {
			raw, err := l.Accept()
			if err != nil {
				return
			}
			served.Go(func() { <-ended; _ = raw.Close() })
			served.Go(func() { serve(raw, certificate, replies) })
		}
	})
	s := &script{url: "https://" + l.Addr().String()}
	base.ForceAttemptHTTP2 = false
	base.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return failing{c.(*net.TCPConn), s}, nil
	}
	t.Cleanup(base.CloseIdleConnections)
	s.chain = direct.Transport(base, answers.NewLimits())
	s.client = direct.Of(s.chain)
	return s
}

func serve(raw net.Conn, certificate tls.Certificate, replies func() []string) {
	under := &together{Conn: raw}
	c := tls.Server(flushing{under}, &tls.Config{Certificates: []tls.Certificate{certificate}})
	in := bufio.NewReader(c)
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		for _, text := range replies() {
			if text == "" {
				_ = c.CloseWrite()
			} else if _, err := io.WriteString(c, text); err != nil {
				return
			}
		}
		if under.flush() != nil {
			return
		}
	}
}

// flushing flushes before it reads: the handshake needs that.
type flushing struct{ *together }

func (c flushing) Read(p []byte) (int, error) {
	if err := c.flush(); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

func text(body string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// ask sends a review by upstream's client, from which the way is learned.
func (s *script) ask(t *testing.T) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url, strings.NewReader("{}"))
	must.OK(t, err)
	w, err := s.chain.RoundTrip(r)
	must.OK(t, err)
	defer w.Body.Close()
	if _, err := io.ReadAll(w.Body); err != nil {
		t.Fatal(err)
	}
}

// send is the answer to a review, also one that upstream's client is to read. False: it was not sent.
func (s *script) send(t *testing.T, how func(context.Context, *direct.Review) (*direct.Exchange, bool)) (string, bool) {
	t.Helper()
	x, ok := how(t.Context(), &direct.Review{Body: []byte("{}"), Deadline: time.Now().Add(10 * time.Second)})
	if !ok {
		return "", false
	}
	defer x.Close()
	x.Await(time.Time{})
	if raw, ok := x.Answer(); ok {
		return string(raw), true
	}
	ctx, cancel := x.Replay()
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, strings.NewReader("{}"))
	must.OK(t, err)
	w, err := s.chain.RoundTrip(r)
	if err != nil {
		return err.Error(), true
	}
	defer w.Body.Close()
	raw, err := io.ReadAll(w.Body)
	if err != nil {
		return err.Error(), true
	}
	return string(raw), true
}

// TestTwoAnswers: a second answer to one review is not the answer to the next one, also if TLS has
// read it with the first one, of which it is a record of its own. An answer with the end of the
// connection behind it is the last one.
func TestTwoAnswers(t *testing.T) {
	for name, second := range map[string]string{"answer": text(`"late"`), "end": ""} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int64
			s := newScript(t, func() []string {
				if n := asked.Add(1); n != 2 {
					return []string{text(fmt.Sprint(n))}
				}
				return []string{text("2"), second}
			})
			s.ask(t)
			if got, ok := s.send(t, s.client.Connect); !ok || got != "2" {
				t.Fatalf("the answer %q, sent %t", got, ok)
			}
			if got, ok := s.send(t, s.client.Send); ok {
				t.Errorf("sent on the connection, and the answer is %q", got)
			}
			if got, ok := s.send(t, s.client.Connect); !ok || got != "3" {
				t.Errorf("the answer on a new connection %q, sent %t", got, ok)
			}
		})
	}
}

// TestBareNewlines: a head with bare newlines is read as net/http reads it, at once.
func TestBareNewlines(t *testing.T) {
	for _, head := range []string{
		"HTTP/1.1 200 OK\nContent-Length: 3\n\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\n",
		"HTTP/1.1 200 OK\nContent-Length: 3\r\n\r\n",
		"HTTP/1.1 200 OK\r\nDate: now\nContent-Length: 3\n\r\n",
	} {
		t.Run(head, func(t *testing.T) {
			var asked atomic.Int64
			s := newScript(t, func() []string {
				if asked.Add(1) == 1 {
					return []string{text("1")}
				}
				return []string{head + "yes"}
			})
			s.ask(t)
			if got, ok := s.send(t, s.client.Connect); !ok || got != "yes" {
				t.Errorf("the answer %q, sent %t", got, ok)
			}
		})
	}
	// net/http sees chunks in what is one line between CRLFs.
	var asked atomic.Int64
	s := newScript(t, func() []string {
		if asked.Add(1) == 1 {
			return []string{text("1")}
		}
		return []string{"HTTP/1.1 200 OK\nTransfer-Encoding: chunked\r\nContent-Length: 13\r\n\r\n3\r\nyes\r\n0\r\n\r\n"}
	})
	s.ask(t)
	if got, ok := s.send(t, s.client.Connect); !ok || got != "yes" {
		t.Errorf("the answer in chunks %q, sent %t", got, ok)
	}
}

// TestFailedWrite: a review whose connection has ended before it was sent is not sent, and has no
// exchange: who has sent it asks in another way.
func TestFailedWrite(t *testing.T) {
	s := newScript(t, func() []string { return []string{text("1")} })
	s.ask(t)
	if _, ok := s.send(t, s.client.Connect); !ok {
		t.Fatal("not sent")
	}
	fails := func() error { return syscall.EPIPE }
	s.write.Store(&fails)
	if x, ok := s.client.Send(t.Context(), &direct.Review{Body: []byte("{}")}); ok || x != nil {
		t.Errorf("sent %t, by %v", ok, x)
	}
	if got, ok := s.send(t, s.client.Connect); !ok || got != "1" {
		t.Errorf("the answer on a new connection %q, sent %t", got, ok)
	}
}
