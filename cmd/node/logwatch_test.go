package main

import (
	"io"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/health"
)

// TestBlockedLog stops reading what a process logs: after two minutes it is not alive
// any more, and says so without logging.
func TestBlockedLog(t *testing.T) {
	r, pipe := io.Pipe()
	var ahead atomic.Int64
	w := &watchedLog{Writer: pipe, now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }}
	log := slog.New(slog.NewTextHandler(w, nil))
	h := health.New(health.Config{Livez: []health.Check{w.check()}, Log: w.unlessBlocked(log)})
	livez := func() (int, string) {
		a := httptest.NewRecorder()
		h.ServeHTTP(a, httptest.NewRequest("GET", "/livez?verbose", nil))
		return a.Code, a.Body.String()
	}
	if code, body := livez(); code != 200 || !strings.Contains(body, "[+]log ok\n") {
		t.Fatalf("nothing was logged: %d %s", code, body)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		log.Info("nobody reads this")
	}()
	for w.begun.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	if code, body := livez(); code != 200 {
		t.Fatalf("blocked for a moment: %d %s", code, body)
	}
	ahead.Store(int64(blockedLogAfter + time.Second))
	if code, body := livez(); code != 500 || !strings.Contains(body, "[-]log failed: reason withheld\n") {
		t.Fatalf("blocked for long: %d %s", code, body)
	}
	go func() { _, _ = io.Copy(io.Discard, r) }()
	<-done
	if code, body := livez(); code != 200 {
		t.Fatalf("read again: %d %s", code, body)
	}
	_ = pipe.Close()
}
