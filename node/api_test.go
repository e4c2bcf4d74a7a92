package node

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quorate/quorate/apiserver/access/audit"
	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/internal/must"
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

// TestJoinsAreAudited: who asked for the cluster's secret, and whether it was given, is in the audit log; the token and
// the secret are not.
func TestJoinsAreAudited(t *testing.T) {
	dir := t.TempDir()
	policy, file := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	must.OK(t, os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n- level: RequestResponse\n"), 0o600))
	log, err := audit.Open(audit.Config{PolicyFile: policy, Path: file})
	must.OK(t, err)
	h := audited(log, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.WriteHeader(http.StatusBadRequest)
		}
		fmt.Fprint(w, `{"secrets":["s3cret"]}`)
	}))
	for _, method := range []string{http.MethodPost, http.MethodGet} {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(method, "/quorate/join", strings.NewReader(`{"secret":"s3cret"}`)))
	}
	must.OK(t, log.Close())
	b, err := os.ReadFile(file)
	must.OK(t, err)
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	if len(lines) != 2 || strings.Contains(string(b), "s3cret") {
		t.Fatalf("%d lines: %s", len(lines), b)
	}
	for i, verb := range []string{`"verb":"post"`, `"verb":"get"`} {
		for _, want := range []string{verb, `"stage":"ResponseComplete"`, `"requestURI":"/quorate/join"`, `"username":"system:anonymous"`, `"sourceIPs":["192.0.2.1"]`, fmt.Sprintf(`"code":%d`, []int{200, 400}[i])} {
			if !strings.Contains(lines[i], want) {
				t.Errorf("%s lacks %s", lines[i], want)
			}
		}
	}
}
