package direct_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/admission/answers"
	"github.com/quorate/quorate/apiserver/admission/webhook/direct"
)

// hook is a server, and a client of it.
type hook struct {
	*httptest.Server
	made   atomic.Int64 // connections
	client *direct.Client
	chain  http.RoundTripper
}

// newHook speaks HTTP/2 and nothing else, or HTTP/1.1.
func newHook(t *testing.T, only2 bool) *hook {
	h := &hook{}
	h.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body)
	}))
	h.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			h.made.Add(1)
		}
	}
	if h.EnableHTTP2 = only2; only2 {
		h.TLS = &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			if !slices.Contains(hello.SupportedProtos, "h2") { // crypto/tls itself would take it for HTTP/1.1
				return nil, errors.New("no HTTP/2")
			}
			return nil, nil
		}}
		h.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	}
	h.StartTLS()
	t.Cleanup(h.Close)
	base := h.Client().Transport.(*http.Transport).Clone()
	base.DialContext = (&net.Dialer{}).DialContext
	h.chain = direct.Transport(base, new(answers.Limits))
	h.client = direct.Of(h.chain)
	return h
}

// ask sends a review by upstream's client.
func (h *hook) ask(t *testing.T) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.URL+"/a?timeout=1s", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	w, err := h.chain.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
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
	h := newHook(t, false)
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

// TestOnlyHTTP2: a server without HTTP/1.1 is left to upstream's client.
func TestOnlyHTTP2(t *testing.T) {
	h := newHook(t, true)
	h.ask(t)
	if _, ok := h.send(t, true); ok {
		t.Error("sent by HTTP/1.1")
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
			h := newHook(t, false)
			base := h.Client().Transport.(*http.Transport).Clone()
			base.DialContext = (&net.Dialer{}).DialContext
			chain := direct.Transport(base, new(answers.Limits))
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.URL, strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			change(base, r)
			w, err := chain.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			w.Body.Close()
			if _, ok := direct.Of(chain).Connect(context.Background(), &direct.Review{}); ok {
				t.Error("sent")
			}
		})
	}
}
