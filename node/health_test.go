package node

import (
	"bytes"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/health"
)

// TestBlockedLog: a node that cannot log is not alive, and says so without logging.
func TestBlockedLog(t *testing.T) {
	var blocked time.Duration
	var lines bytes.Buffer
	n := &Node{cfg: &Config{LogBlocked: func() time.Duration { return blocked }}, log: slog.New(slog.NewTextHandler(&lines, nil))}
	h := health.New(health.Config{Livez: []health.Check{n.logCheck()}, Log: n.logUnlessBlocked()})
	livez := func() (int, string) {
		a := httptest.NewRecorder()
		h.ServeHTTP(a, httptest.NewRequest("GET", "/livez?verbose", nil))
		return a.Code, a.Body.String()
	}
	if code, body := livez(); code != 200 || !strings.Contains(body, "[+]log ok\n") {
		t.Fatalf("nothing was logged: %d %s", code, body)
	}
	blocked = 3 * time.Minute
	if code, body := livez(); code != 500 || !strings.Contains(body, "[-]log failed: reason withheld\n") || lines.Len() > 0 {
		t.Fatalf("blocked for long: %d %s, and it logged %q", code, body, &lines)
	}
	blocked = 0
	if code, body := livez(); code != 200 {
		t.Fatalf("read again: %d %s", code, body)
	}
}
