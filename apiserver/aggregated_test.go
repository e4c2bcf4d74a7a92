package apiserver_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver"
	"github.com/quorate/quorate/apiserver/backends/aggregator"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/internal/must"
)

const aggregatedPath = "/apis/widgets.example.com/v1"

// withWidgets is a server whose group widgets.example.com is answered by another one.
func withWidgets(t *testing.T, serve http.HandlerFunc, change func(*apiserver.Config)) *env {
	t.Helper()
	aggregates, register := startWidgets(t, serve)
	e := newEnv(t, func(c *apiserver.Config) {
		aggregates(c)
		change(c)
	})
	register(e)
	return e
}

// startWidgets starts a server for the group widgets.example.com. register has another one ask it.
func startWidgets(t *testing.T, serve http.HandlerFunc) (change func(*apiserver.Config), register func(*env)) {
	t.Helper()
	backend := httptest.NewTLSServer(serve)
	t.Cleanup(backend.Close)
	builtin, err := kinds.Builtin()
	must.OK(t, err)
	change = func(c *apiserver.Config) {
		c.Aggregator = aggregator.New(aggregator.Config{
			Store: c.Store, Builtin: builtin, Certificate: func() *tls.Certificate { return &tls.Certificate{} }, Log: slog.New(slog.DiscardHandler),
			Resolve: func(context.Context, string, string, int32) (string, error) {
				return backend.Listener.Addr().String(), nil
			},
			Dial: (&net.Dialer{}).DialContext,
		})
	}
	return change, func(e *env) {
		const services = "/apis/apiregistration.k8s.io/v1/apiservices"
		e.post(services, `{"metadata":{"name":"v1.widgets.example.com"},"spec":{"group":"widgets.example.com","version":"v1","groupPriorityMinimum":10,"versionPriority":10,
			"insecureSkipTLSVerify":true,"service":{"namespace":"default","name":"widgets"}}}`)
		available := `{"status":{"conditions":[{"type":"Available","status":"True","lastTransitionTime":"2026-01-02T03:04:05Z"}]}}`
		if w, answer := e.do("PATCH", services+"/v1.widgets.example.com/status", http.Header{"Content-Type": {"application/merge-patch+json"}}, available); w.StatusCode != http.StatusOK {
			t.Fatal(answer)
		}
	}
}

// TestAggregatedUpgrades: changes of the protocol at another server are counted among the streams, for resources
// alone, and no credential of the client goes there.
func TestAggregatedUpgrades(t *testing.T) {
	seen := new(counting)
	ended := make(chan struct{}, 10)
	e := withWidgets(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			fmt.Fprintf(w, "%s, long-running: %d", r.Header.Get("Sec-WebSocket-Protocol"), seen.open.Load())
			return
		}
		conn, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprintf(buf, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\nSec-WebSocket-Protocol: %s\r\n\r\n", r.Header.Get("Sec-WebSocket-Protocol"))
		_ = buf.Flush()
		_, _ = io.Copy(conn, buf)
		ended <- struct{}{}
	}, func(c *apiserver.Config) { c.Observer, c.Limits.Streams = seen, 2 })
	open := func(path, more string) (*tls.Conn, *bufio.Reader, *http.Response) {
		t.Helper()
		conn := e.dial()
		t.Cleanup(func() { _ = conn.Close() })
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\nSec-WebSocket-Protocol: v1.x, base64url.bearer.authorization.k8s.io.c2VjcmV0\r\n%s\r\n", path, more)
		in := bufio.NewReader(conn)
		w, err := http.ReadResponse(in, nil)
		must.OK(t, err)
		return conn, in, w
	}
	first, in, w := open(aggregatedPath+"/widgets/a", "")
	if w.StatusCode != http.StatusSwitchingProtocols || w.Header.Get("Sec-WebSocket-Protocol") != "v1.x" {
		t.Fatalf("%d %v", w.StatusCode, w.Header)
	}
	fmt.Fprint(first, "hello\n")
	if line, err := in.ReadString('\n'); line != "hello\n" {
		t.Fatalf("%q %v", line, err)
	}
	if _, _, w := open(aggregatedPath+"/widgets/a", ""); w.StatusCode != http.StatusTooManyRequests || w.Header.Get("Retry-After") == "" {
		t.Errorf("one too many: %d %v", w.StatusCode, w.Header)
	}
	if _, _, w := open(aggregatedPath, ""); w.StatusCode != http.StatusOK {
		t.Errorf("discovery: %d", w.StatusCode)
	} else if body, err := io.ReadAll(w.Body); string(body) != "v1.x, long-running: 1" {
		t.Errorf("discovery: %q %v", body, err)
	}
	_ = first.NetConn().Close()
	within(t, second, "the stream ends with its client", func() bool { return seen.open.Load() == 0 && len(ended) == 1 })
	if code := seen.last.Load(); code != http.StatusSwitchingProtocols {
		t.Errorf("the code of a stream is %d", code)
	}
	if _, _, w := open(aggregatedPath+"/widgets/a", "Content-Length: 1\r\n\r\nx"); w.StatusCode != http.StatusBadRequest {
		t.Errorf("with a body: %d", w.StatusCode)
	}
	if _, _, w := open(aggregatedPath+"/widgets/a", ""); w.StatusCode != http.StatusSwitchingProtocols {
		t.Errorf("when there is a place again: %d", w.StatusCode)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := e.api.Shutdown(ctx); err != nil {
		t.Errorf("the server does not end: %v", err)
	}
	within(t, second, "the stream ends with the server", func() bool { return seen.open.Load() == 0 })
}

// TestAggregatedWatchesEnd: a watch at another server whose client does not read ends with this server.
func TestAggregatedWatchesEnd(t *testing.T) {
	seen := new(counting)
	var written atomic.Int64
	e := withWidgets(t, func(w http.ResponseWriter, r *http.Request) {
		for b := make([]byte, 32<<10); r.Context().Err() == nil; written.Add(1) {
			if _, err := w.Write(b); err != nil {
				return
			}
		}
	}, func(c *apiserver.Config) { c.Observer = seen })
	e.getUnread(aggregatedPath + "/widgets?watch=true")
	unread(t, seen, 2, &written)
	if err := e.api.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	// crypto/tls gives a client whose buffers are full 5 s for its last alert.
	within(t, patience, "the watches end with the server", func() bool { return seen.open.Load() == 0 })
}

// TestAggregatedQueries: what was authorized is what the other server is asked for.
func TestAggregatedQueries(t *testing.T) {
	e := withWidgets(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.URL.RawQuery) }, func(*apiserver.Config) {})
	for _, x := range []struct {
		query, asked string
		code         int
	}{
		{"%77atch=0&field%53elector=metadata.name%3Da&x=1&x=2", "fieldSelector=metadata.name%3Da&watch=0&x=1&x=2", http.StatusOK},
		{"watch=0&%77atch=1", "", http.StatusBadRequest},
		{"%66ieldSelector=metadata.name!%3Da&fieldSelector=metadata.name%3Da", "", http.StatusBadRequest},
		{"watch=0;x=1", "", http.StatusBadRequest},
		{"a=%zz", "", http.StatusBadRequest},
	} {
		w, body := e.do("GET", aggregatedPath+"/widgets?"+x.query, nil, "")
		if w.StatusCode != x.code || x.code == http.StatusOK && body != x.asked {
			t.Errorf("%s: %d %s, want %d %s", x.query, w.StatusCode, body, x.code, x.asked)
		}
	}
}

// TestHangingServerKeepsNoSeats: requests that another server does not answer give their seats back after a
// second, as long as there are places for them.
func TestHangingServerKeepsNoSeats(t *testing.T) {
	hanging := make(chan struct{})
	change, register := startWidgets(t, func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-hanging:
			fmt.Fprint(w, "at last")
		case <-r.Context().Done():
		}
	})
	e := newFairEnv(t, 100, change, func(c *apiserver.Config) {
		c.Limits.AggregatedWatches = 4 // and as many requests without a seat, of which two are a user's
	})
	register(e)
	e.narrow(t) // one seat
	results := make(chan string, 3)
	for range cap(results) {
		go func() {
			for {
				w, answer := e.do(http.MethodGet, aggregatedPath+"/namespaces/default/widgets", user("narrow"), "")
				// In plain text it is the seat that is missing: one of the others has it for now.
				if w.StatusCode != http.StatusTooManyRequests || w.Header.Get("Content-Type") == "application/json" {
					results <- fmt.Sprint(w.StatusCode, " ", answer)
					return
				}
				time.Sleep(10 * time.Millisecond)
			}
		}()
	}
	if got, want := <-results, `429 {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Too many requests, please try again later.","reason":"TooManyRequests"`; !strings.HasPrefix(got, want) {
		t.Errorf("the one too many: %s", got)
	}
	if w, answer := e.do(http.MethodGet, maps, user("narrow"), ""); w.StatusCode != http.StatusOK {
		t.Errorf("while two wait: %d %s", w.StatusCode, answer)
	}
	close(hanging)
	for range 2 {
		if got := <-results; got != "200 at last" {
			t.Errorf("one of those that wait: %s", got)
		}
	}
}
