package health

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

func get(t *testing.T, h http.Handler, target string) (int, string, http.Header) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
	return w.Code, w.Body.String(), w.Header()
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func TestTexts(t *testing.T) {
	good := Check{Name: "apply", Check: func(context.Context) error { return nil }}
	bad := Check{Name: "quorum", Check: func(context.Context) error { return errors.New("no leader") }}
	known := Check{Name: "storage", Alias: "etcd", Check: func(context.Context) error { return nil }}
	h := New(Config{Livez: []Check{good}, Readyz: []Check{good, bad}, Healthz: []Check{good, known}, Log: quiet()})
	for _, c := range []struct {
		target string
		code   int
		body   string
	}{
		{"/livez", 200, "ok"},
		{"/livez/", 200, "ok"},
		{"/livez?verbose", 200, "[+]ping ok\n[+]apply ok\nlivez check passed\n"},
		{"/livez?verbose=true&exclude=apply", 200, "[+]ping ok\n[+]apply excluded: ok\nlivez check passed\n"},
		{"/livez?verbose&exclude=x&exclude=a", 200, "[+]ping ok\n[+]apply ok\nwarn: some health checks cannot be excluded: no matches for \"a\",\"x\"\nlivez check passed\n"},
		{"/livez/apply", 200, "ok"},
		{"/livez/quorum", 404, "404 page not found\n"},
		{"/healthz", 200, "ok"},
		{"/healthz/storage", 200, "ok"},
		{"/healthz/etcd", 200, "ok"},
		{"/healthz?verbose", 200, "[+]ping ok\n[+]apply ok\n[+]storage ok\n[+]etcd ok\nhealthz check passed\n"},
		{"/healthz?verbose&exclude=etcd", 200, "[+]ping ok\n[+]apply ok\n[+]storage excluded: ok\n[+]etcd excluded: ok\nhealthz check passed\n"},
		{"/healthz?verbose&exclude=storage&exclude=etcd", 200, "[+]ping ok\n[+]apply ok\n[+]storage excluded: ok\n[+]etcd excluded: ok\nhealthz check passed\n"},
		{"/readyz", 500, "[+]ping ok\n[+]apply ok\n[-]quorum failed: reason withheld\n[+]shutdown ok\nreadyz check failed\n"},
		{"/readyz?exclude=quorum", 200, "ok"},
		{"/readyz?exclude=quorum&exclude=apply&verbose", 200, "[+]ping ok\n[+]apply excluded: ok\n[+]quorum excluded: ok\n[+]shutdown ok\nreadyz check passed\n"},
		{"/readyz/quorum", 500, "internal server error: reason withheld\n"},
		{"/readyz/ping", 200, "ok"},
		{"/other", 404, "404 page not found\n"},
	} {
		code, body, header := get(t, h, c.target)
		if code != c.code || body != c.body {
			t.Errorf("%s: %d %q, want %d %q", c.target, code, body, c.code, c.body)
		}
		if got := header.Get("Content-Type"); got != "text/plain; charset=utf-8" {
			t.Errorf("%s: Content-Type %q", c.target, got)
		}
		if got := header.Get("X-Content-Type-Options"); got != "nosniff" {
			t.Errorf("%s: X-Content-Type-Options %q", c.target, got)
		}
	}
}

func TestMethodNotAllowed(t *testing.T) {
	w := httptest.NewRecorder()
	New(Config{}).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/livez", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", w.Code)
	}
}

func TestReveal(t *testing.T) {
	bad := Check{Name: "quorum", Check: func(context.Context) error { return errors.New("no leader") }}
	h := New(Config{Readyz: []Check{bad}, Reveal: func(context.Context) bool { return true }, Log: quiet()})
	if code, body, _ := get(t, h, "/readyz/quorum"); code != 500 || body != "internal server error: no leader\n" {
		t.Errorf("revealed: %d %q", code, body)
	}
}

func TestShutdownFailsReadinessOnly(t *testing.T) {
	h := New(Config{Log: quiet()})
	h.Shutdown()
	if code, body, _ := get(t, h, "/readyz"); code != 500 || body != "[+]ping ok\n[-]shutdown failed: reason withheld\nreadyz check failed\n" {
		t.Errorf("readyz: %d %q", code, body)
	}
	for _, path := range []string{"/livez", "/healthz"} {
		if code, _, _ := get(t, h, path); code != 200 {
			t.Errorf("%s: %d", path, code)
		}
	}
}

func TestStartupGrace(t *testing.T) {
	bad := Check{Name: "replay", Check: func(context.Context) error { return errors.New("not yet") }}
	h := New(Config{Livez: []Check{bad}, Readyz: []Check{bad}, StartupGrace: time.Hour, Log: quiet()})
	if code, _, _ := get(t, h, "/livez"); code != 200 {
		t.Errorf("livez within the grace: %d", code)
	}
	if code, _, _ := get(t, h, "/readyz"); code != 500 {
		t.Errorf("the grace must not make a node ready: %d", code)
	}
	h = New(Config{Livez: []Check{bad}, Log: quiet()})
	if code, _, _ := get(t, h, "/livez"); code != 500 {
		t.Errorf("livez without a grace: %d", code)
	}
}

func TestBarrierIsBounded(t *testing.T) {
	var seen atomic.Int32
	h := New(Config{
		Readyz: []Check{Barrier("read-index", 10*time.Millisecond, func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})},
		Observe: func(name, kind string, ok bool) {
			if name == "read-index" && kind == "readyz" && !ok {
				seen.Add(1)
			}
		},
		Log: quiet(),
	})
	start := time.Now()
	if code, _, _ := get(t, h, "/readyz"); code != 500 {
		t.Errorf("readyz: %d", code)
	}
	//wall: the check has ten milliseconds, and would wait for ever without them
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("took %s", took)
	}
	if seen.Load() != 1 {
		t.Error("the failure was not observed")
	}
}
