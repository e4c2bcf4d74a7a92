package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/quorate/quorate/apiserver/auth"
)

// byHeader takes the user and the groups from headers.
type byHeader struct{}

func (byHeader) Authenticate(r *http.Request) (*auth.User, error) {
	name := r.Header.Get("User")
	if name == "" {
		return nil, auth.ErrUnauthorized
	}
	return &auth.User{Name: name, Groups: r.Header["Group"]}, nil
}

// TestAdminsOnly: our own administration paths have the door of the API.
func TestAdminsOnly(t *testing.T) {
	h := adminsOnly(byHeader{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	for _, x := range []struct {
		name   string
		header http.Header
		code   int
		text   string
	}{
		{"nobody", http.Header{}, 401, `"message":"Unauthorized"`},
		{"somebody", http.Header{"User": {"bob"}, "Group": {"devs"}}, 403, `User \"bob\" cannot get path \"/quorate/v1/status\": only system:masters may`},
		{"an administrator", http.Header{"User": {"a"}, "Group": {auth.Masters}}, 204, ""},
		{"an administrator as somebody", http.Header{"User": {"a"}, "Group": {auth.Masters}, "Impersonate-User": {"bob"}}, 403, `User \"bob\"`},
		{"somebody as an administrator", http.Header{"User": {"bob"}, "Impersonate-User": {"a"}, "Impersonate-Group": {auth.Masters}}, 403, `User \"bob\" cannot impersonate`},
		{"a group without a user", http.Header{"User": {"a"}, "Group": {auth.Masters}, "Impersonate-Group": {"x"}}, 400, "without impersonating a user"},
	} {
		t.Run(x.name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "/quorate/v1/status", nil)
			r.Header = x.header
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != x.code || !strings.Contains(w.Body.String(), x.text) {
				t.Errorf("%d %s, want %d and %q", w.Code, w.Body, x.code, x.text)
			}
		})
	}
}

// TestBeside: the API sees every path that is not ours, as it came.
func TestBeside(t *testing.T) {
	say := func(who string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(who + " " + r.URL.Path)) })
	}
	h := beside(say("api"), say("own"))
	for path, want := range map[string]string{
		"/":                          "api /",
		"//api/v1":                   "api //api/v1",
		"/api/../quorate/v1/status":  "api /api/../quorate/v1/status",
		"/quorate":                   "api /quorate",
		"/quorate/v1/status":         "own /quorate/v1/status",
		"/debug/pprof/":              "own /debug/pprof/",
		"/api/v1/namespaces/a%2Fb/x": "api /api/v1/namespaces/a/b/x",
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://host"+path, nil))
		if got := w.Body.String(); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}
