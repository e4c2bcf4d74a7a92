package node

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/quorate/quorate/apiserver/auth"
)

func say(who string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(who + " " + r.URL.Path)) })
}

// TestNoted: who changes the cluster is in the log, who looks at it is not.
func TestNoted(t *testing.T) {
	var log bytes.Buffer
	h := noted(slog.New(slog.NewTextHandler(&log, nil)), say("done"))
	for method, want := range map[string]string{
		http.MethodGet:    "",
		http.MethodPost:   "level=INFO msg=administration method=POST path=/quorate/v1/tokens user=alice from=192.0.2.1:1234",
		http.MethodDelete: "level=INFO msg=administration method=DELETE path=/quorate/v1/tokens user=alice from=192.0.2.1:1234",
	} {
		log.Reset()
		r := httptest.NewRequest(method, "/quorate/v1/tokens", nil)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r.WithContext(auth.WithUser(t.Context(), &auth.User{Name: "alice"})))
		if got := log.String(); w.Body.String() != "done /quorate/v1/tokens" || (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, the log says %q", method, w.Body, got)
		}
	}
}

// TestBeside: the API sees every path but that of the join, as it came.
func TestBeside(t *testing.T) {
	h := beside(say("api"), say("join"))
	for path, want := range map[string]string{
		"/":                          "api /",
		"//api/v1":                   "api //api/v1",
		"/api/../quorate/v1/status":  "api /api/../quorate/v1/status",
		"/quorate":                   "api /quorate",
		"/quorate/v1/status":         "api /quorate/v1/status",
		"/quorate/join":              "join /quorate/join",
		"/quorate/join/":             "api /quorate/join/",
		"/debug/pprof/":              "api /debug/pprof/",
		"/api/v1/namespaces/a%2Fb/x": "api /api/v1/namespaces/a/b/x",
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://host"+path, nil))
		if got := w.Body.String(); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}
