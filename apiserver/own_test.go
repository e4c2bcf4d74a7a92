package apiserver_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/apiserver"
	"github.com/quorate/quorate/apiserver/access/audit"
	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/internal/must"
)

// audited opens an audit log with everything in it. The returned function closes it
// and reads what fields says of each line.
func audited(t *testing.T) (*audit.Log, func(func(auditLine) string) []string) {
	t.Helper()
	dir := t.TempDir()
	policy, file := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	must.OK(t, os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n- level: RequestResponse\n"), 0o600))
	log, err := audit.Open(audit.Config{PolicyFile: policy, Path: file})
	must.OK(t, err)
	return log, func(fields func(auditLine) string) (lines []string) {
		must.OK(t, log.Close())
		f, err := os.Open(file)
		must.OK(t, err)
		defer f.Close()
		for s := bufio.NewScanner(f); s.Scan(); {
			var e auditLine
			must.OK(t, json.Unmarshal(s.Bytes(), &e))
			if line := fields(e); line != "" {
				lines = append(lines, line)
			}
		}
		return lines
	}
}

type auditLine struct {
	Stage, Verb, RequestURI string
	User                    struct{ Username string }
	ResponseStatus          struct{ Code int }
	RequestObject           any
	ResponseObject          any
	Annotations             map[string]string
}

// TestOwnPaths: our own paths have the door of the API: authentication, roles, audit.
// What they answer is in no audit log, for it may be a secret.
func TestOwnPaths(t *testing.T) {
	log, lines := audited(t)
	e := newEnv(t, func(c *apiserver.Config) {
		c.Audit = log
		c.Own = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s sends %q (%v)", auth.UserFrom(r.Context()).Name, body, err)
		})
		c.LongRunning = func(path string) bool { return path == "/quorate/v1/snapshot" }
	})
	const rbac = "/apis/rbac.authorization.k8s.io/v1/"
	for _, x := range []struct{ name, user, role, rules string }{
		{"backup", "bob", "backup", `{"nonResourceURLs":["/quorate/v1/snapshot"],"verbs":["get"]}`},
		{"cluster-reader", "rita", "cluster-reader", `{"apiGroups":["*"],"resources":["*"],"verbs":["get","list","watch"]},{"nonResourceURLs":["*"],"verbs":["get"]}`},
		{"root", "root", "everything", `{"apiGroups":["*"],"resources":["*"],"verbs":["*"]},{"nonResourceURLs":["*"],"verbs":["*"]}`},
	} {
		for path, object := range map[string]string{
			rbac + "clusterroles":        fmt.Sprintf(`{"metadata":{"name":%q},"rules":[%s]}`, x.role, x.rules),
			rbac + "clusterrolebindings": fmt.Sprintf(`{"metadata":{"name":%q},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":%q},"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":%q}]}`, x.name, x.role, x.user),
		} {
			if w, answer := e.do(http.MethodPost, path, nil, object); w.StatusCode != http.StatusCreated {
				t.Fatal(clip(answer))
			}
		}
	}
	for name, path := range map[string]string{"bob": "/quorate/v1/snapshot", "rita": "/quorate/v1/status", "root": "/quorate/v1/status"} {
		must.Await(t, patience, name+"'s role", func() string {
			_, answer := e.do(http.MethodGet, path, user(name), "")
			if !strings.HasPrefix(answer, name+" sends") {
				return answer
			}
			return ""
		})
	}
	for _, x := range []struct {
		method, path, body string
		header             http.Header
		code               int
		text               string
	}{
		{"GET", "/quorate/v1/status", "", nil, 200, "admin sends"},
		{"POST", "/quorate/v1/tokens", "a body", nil, 200, `admin sends "a body" (<nil>)`},
		{"GET", "/quorate/v1/snapshot", "", user("bob"), 200, "bob sends"},
		{"POST", "/quorate/v1/snapshot", "", user("bob"), 403, `User \"bob\" cannot post path \"/quorate/v1/snapshot\"`},
		{"POST", "/quorate/v1/tokens", "", user("bob"), 403, `User \"bob\" cannot post path \"/quorate/v1/tokens\"`},
		{"GET", "/quorate/v1/status", "", user("rita"), 200, "rita sends"},
		{"GET", "/quorate/v1/snapshot", "", user("rita"), 403, `User \"rita\" cannot get path \"/quorate/v1/snapshot\"`},
		{"GET", "/quorate/v1/tokens", "", user("rita"), 403, `User \"rita\" cannot get path`},
		{"GET", "/debug/pprof/heap", "", user("rita"), 403, `User \"rita\" cannot get path`},
		{"GET", "/quorate/v1/snapshot", "", user("root"), 200, "root sends"},
		{"POST", "/quorate/v1/tokens", "", user("root"), 200, "root sends"},
		{"GET", "/debug/pprof/heap", "", user("eve"), 403, `User \"eve\" cannot get path \"/debug/pprof/heap\"`},
		{"GET", "/debug/pprof/heap", "", http.Header{"Test-Unauthorized": {"1"}}, 401, "Unauthorized"},
		{"GET", "/debug/pprof/heap", "", http.Header{"Impersonate-User": {"eve"}}, 403, `User \"eve\"`},
		{"GET", "/quorate/v1/status", "", http.Header{"Test-User": {"eve"}, "Impersonate-User": {"admin"}}, 403, "cannot impersonate"},
	} {
		w, answer := e.do(x.method, x.path, x.header, x.body)
		if w.StatusCode != x.code || !strings.Contains(answer, x.text) {
			t.Errorf("%s %s: %d %s, want %d %s", x.method, x.path, w.StatusCode, clip(answer), x.code, x.text)
		}
	}
	got := lines(func(l auditLine) string {
		if strings.HasPrefix(l.RequestURI, "/apis") {
			return ""
		}
		if l.RequestObject != nil || l.ResponseObject != nil {
			t.Errorf("%+v holds bodies", l)
		}
		return strings.Join([]string{l.Stage, l.User.Username, l.Verb, l.RequestURI, fmt.Sprint(l.ResponseStatus.Code), l.Annotations["authorization.k8s.io/decision"]}, " ")
	})
	// Those of the wait for the role come first.
	for len(got) > 0 && !strings.Contains(got[0], "admin") {
		got = got[1:]
	}
	want := []string{
		"ResponseComplete admin get /quorate/v1/status 200 allow",
		"ResponseComplete admin post /quorate/v1/tokens 200 allow",
		"ResponseStarted bob get /quorate/v1/snapshot 200 allow",
		"ResponseComplete bob get /quorate/v1/snapshot 200 allow",
		"ResponseStarted bob post /quorate/v1/snapshot 403 forbid",
		"ResponseComplete bob post /quorate/v1/snapshot 403 forbid",
		"ResponseComplete bob post /quorate/v1/tokens 403 forbid",
		"ResponseComplete rita get /quorate/v1/status 200 allow",
		"ResponseStarted rita get /quorate/v1/snapshot 403 forbid",
		"ResponseComplete rita get /quorate/v1/snapshot 403 forbid",
		"ResponseComplete rita get /quorate/v1/tokens 403 forbid",
		"ResponseComplete rita get /debug/pprof/heap 403 forbid",
		"ResponseStarted root get /quorate/v1/snapshot 200 allow",
		"ResponseComplete root get /quorate/v1/snapshot 200 allow",
		"ResponseComplete root post /quorate/v1/tokens 200 allow",
		"ResponseComplete eve get /debug/pprof/heap 403 forbid",
		"ResponseComplete system:anonymous get /debug/pprof/heap 401 ",
		"ResponseComplete admin get /debug/pprof/heap 403 forbid",
		"ResponseComplete eve get /quorate/v1/status 403 ",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestWhoAnswersIsForUsers: who is nobody does not hear which node answers, and whether
// it leads.
func TestWhoAnswersIsForUsers(t *testing.T) {
	e := newEnv(t, func(c *apiserver.Config) { c.Authenticator = orNobody{} })
	for name, x := range map[string]struct {
		header http.Header
		says   bool
	}{
		"nobody":           {http.Header{"Test-Anonymous": {"1"}}, false},
		"a bad credential": {http.Header{"Test-Unauthorized": {"1"}}, false},
		"a user":           {user("eve"), true},
	} {
		w, _ := e.do(http.MethodGet, "/version", x.header, "")
		if node, role := w.Header.Get(apiserver.HeaderNode), w.Header.Get(apiserver.HeaderRole); (node != "") != x.says || (role != "") != x.says {
			t.Errorf("%s: node %q, role %q", name, node, role)
		}
	}
}

// TestOwnDeletionsAreAudited: what the node's own loops delete has an event, as if a
// controller had sent a request.
func TestOwnDeletionsAreAudited(t *testing.T) {
	log, lines := audited(t)
	e := newEnv(t, func(c *apiserver.Config) { c.Audit, c.GarbageCollector = log, true })
	if w, answer := e.do(http.MethodPost, "/api/v1/namespaces", nil, `{"metadata":{"name":"gone"}}`); w.StatusCode != http.StatusCreated {
		t.Fatal(clip(answer))
	}
	for path, object := range map[string]string{
		"/api/v1/namespaces/gone/configmaps": `{"metadata":{"name":"a"}}`,
		maps:                                 `{"metadata":{"name":"orphan","ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"none","uid":"u"}]}}`,
	} {
		if w, answer := e.do(http.MethodPost, path, nil, object); w.StatusCode != http.StatusCreated {
			t.Fatal(clip(answer))
		}
	}
	if w, answer := e.do(http.MethodDelete, "/api/v1/namespaces/gone", nil, ""); w.StatusCode != http.StatusOK {
		t.Fatal(clip(answer))
	}
	e.runControllers()
	for _, path := range []string{"/api/v1/namespaces/gone", maps + "/orphan"} {
		must.Await(t, patience, path+" is gone", func() string {
			if w, answer := e.do(http.MethodGet, path, nil, ""); w.StatusCode != http.StatusNotFound {
				return answer
			}
			return ""
		})
	}
	got := lines(func(l auditLine) string {
		if !strings.HasPrefix(l.User.Username, "system:serviceaccount:kube-system:") || l.ResponseStatus.Code != 200 {
			return ""
		}
		return l.User.Username + " " + l.Verb + " " + l.RequestURI
	})
	slices.Sort(got)
	want := []string{
		"system:serviceaccount:kube-system:generic-garbage-collector delete /api/v1/namespaces/default/configmaps/orphan",
		"system:serviceaccount:kube-system:namespace-controller delete /api/v1/namespaces/gone/configmaps/a",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestEventsEnd: what is refused before it is known who asks has an event, as upstream, and the event of a request whose
// connection goes on is completed with that.
func TestEventsEnd(t *testing.T) {
	log, read := audited(t)
	var end func()
	e := newEnv(t, func(c *apiserver.Config) {
		c.Audit = log
		c.LongRunning = func(path string) bool { return path == "/quorate/tunnel" }
		c.Own = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusAccepted)
			end = apiserver.EndLater(r.Context())
		})
	})
	for _, x := range []struct {
		path string
		code int
	}{{"/api/v1/pods?timeout=x", 400}, {"/api/v1//pods", 404}, {"/quorate/tunnel", 202}, {"/version", 404}} {
		if w, answer := e.do("GET", x.path, nil, ""); w.StatusCode != x.code {
			t.Errorf("%s: %d %s", x.path, w.StatusCode, answer)
		}
	}
	end()
	got := read(func(e auditLine) string {
		return fmt.Sprintf("%s %s %s %d by %s", e.Stage, e.Verb, e.RequestURI, e.ResponseStatus.Code, e.User.Username)
	})
	want := []string{
		"ResponseComplete list /api/v1/pods?timeout=x 400 by ",
		"ResponseComplete get /api/v1//pods 404 by ",
		"ResponseStarted get /quorate/tunnel 202 by admin",
		"ResponseComplete get /version 404 by admin",
		"ResponseComplete get /quorate/tunnel 101 by admin",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
