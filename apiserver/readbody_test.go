package apiserver_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver"
	"github.com/quorate/quorate/internal/must"
)

// TestSlowBody: a body that never comes ends with the request's time, on both
// versions of HTTP and with and without a length, and gives its place back.
func TestSlowBody(t *testing.T) {
	e := newEnv(t, func(c *apiserver.Config) { c.Limits.Write, c.Limits.Writes = 50*time.Millisecond, 1 })
	old := e.http.Client().Transport.(*http.Transport).Clone()
	old.ForceAttemptHTTP2, old.TLSClientConfig.NextProtos = false, []string{"http/1.1"}
	defer old.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, c := range []struct {
		name   string
		client *http.Client
		proto  string
		length int64
	}{
		{"HTTP/1.1", &http.Client{Transport: old}, "HTTP/1.1", 100},
		{"HTTP/1.1 chunked", &http.Client{Transport: old}, "HTTP/1.1", -1},
		{"HTTP/2", e.http.Client(), "HTTP/2.0", 100},
		{"HTTP/2 without a length", e.http.Client(), "HTTP/2.0", -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			body, sender := io.Pipe()
			defer sender.Close()
			go func() { _, _ = io.WriteString(sender, "{") }()
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.http.URL+maps, body)
			must.OK(t, err)
			r.ContentLength = c.length
			w, err := c.client.Do(r)
			must.OK(t, err)
			defer w.Body.Close()
			answer, err := io.ReadAll(w.Body)
			if err != nil || w.StatusCode != http.StatusGatewayTimeout || w.Proto != c.proto || !strings.Contains(string(answer), `"reason":"Timeout"`) {
				t.Errorf("%s %d %s %v", w.Proto, w.StatusCode, answer, err)
			}
		})
	}
	if w, answer := e.do(http.MethodPost, maps, nil, `{"metadata":{"name":"next"}}`); w.StatusCode != http.StatusCreated {
		t.Errorf("the next request: %d %s", w.StatusCode, answer)
	}
}

// TestSlowReader: a list that is hardly read ends with the request's time and
// gives its place back.
func TestSlowReader(t *testing.T) {
	e := newEnv(t, func(c *apiserver.Config) { c.Limits.Request, c.Limits.Reads = 300*time.Millisecond, 1 })
	// More than sockets and flow control windows hold.
	value := strings.Repeat("x", 1<<20)
	for i := range 40 {
		if w, answer := e.do(http.MethodPost, maps, nil, `{"metadata":{"generateName":"big-"},"data":{"v":"`+value+`"}}`); w.StatusCode != http.StatusCreated {
			t.Fatalf("object %d: %d %s", i, w.StatusCode, answer)
		}
	}
	old := e.http.Client().Transport.(*http.Transport).Clone()
	old.ForceAttemptHTTP2, old.TLSClientConfig.NextProtos = false, []string{"http/1.1"}
	defer old.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for name, client := range map[string]*http.Client{"HTTP/1.1": {Transport: old}, "HTTP/2": e.http.Client()} {
		t.Run(name, func(t *testing.T) {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, e.http.URL+maps, nil)
			must.OK(t, err)
			w, err := client.Do(r)
			if err == nil { // else it was cut before it began
				defer w.Body.Close() // nothing of it was read
			}
			for {
				next, answer := e.do(http.MethodGet, "/api/v1/namespaces/default", nil, "")
				if next.StatusCode == http.StatusOK {
					break
				}
				if next.StatusCode != http.StatusTooManyRequests || ctx.Err() != nil {
					t.Fatalf("the place was not given back: %d %s", next.StatusCode, answer)
				}
			}
		})
	}
}

// TestBodyTooLarge: of a body beyond the limit a megabyte more is read, so that clients take the answer that send before
// they read, whether its length was announced or not.
func TestBodyTooLarge(t *testing.T) {
	e := newEnv(t, nil)
	const limit, beyond = 3 << 20, 1 << 20
	for _, x := range []struct {
		name      string
		size      int64
		announced bool
		read      int64
	}{
		{"a little more", limit + 1000, true, limit + 1000},
		{"a little more, in chunks", limit + 1000, false, limit + 1000},
		{"much more", 100 << 20, true, 0},
		{"much more, in chunks", 100 << 20, false, limit + 1 + beyond},
	} {
		sent := &countedBody{Reader: io.LimitReader(spaces{}, x.size)}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, maps, sent)
		r.Header.Set("Content-Type", "application/json")
		if r.ProtoMajor, r.ProtoMinor, r.ContentLength = 2, 0, -1; x.announced {
			r.ContentLength = x.size
		}
		w := httptest.NewRecorder()
		e.api.ServeHTTP(w, r)
		if w.Code != http.StatusRequestEntityTooLarge || sent.n != x.read {
			t.Errorf("%s: %d, and %d bytes were read, want %d", x.name, w.Code, sent.n, x.read)
		}
	}
}

// spaces are without an end.
type spaces struct{}

// Read implements io.Reader.
func (spaces) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = ' '
	}
	return len(b), nil
}

type countedBody struct {
	io.Reader
	n int64
}

// Read implements io.Reader.
func (c *countedBody) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.n += int64(n)
	return n, err
}
