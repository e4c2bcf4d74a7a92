package apiserver_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/quorate/quorate/apiserver"
	"github.com/quorate/quorate/apiserver/objects"
	"github.com/quorate/quorate/consistency"
	"github.com/quorate/quorate/proto"
)

// hearing are reads of a node that hears of something while a read waits.
type hearing struct {
	objects.Reads
	news atomic.Pointer[func()]
}

func (l *hearing) Await(ctx context.Context, plan consistency.Plan) (proto.Revision, error) {
	if news := l.news.Swap(nil); news != nil {
		(*news)()
	}
	return l.Reads.Await(ctx, plan)
}

// TestAllowedAgain: who lost his right before the state that a read waits for does not read it.
func TestAllowedAgain(t *testing.T) {
	var node hearing
	served := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }
	e := withWidgets(t, served, func(c *apiserver.Config) {
		node.Reads = c.Reads
		c.Reads = &node
		c.Own = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			at, err := apiserver.Again(r.Context())
			switch {
			case err != nil:
				http.Error(w, err.Error(), http.StatusForbidden)
			case at == 0:
				http.Error(w, "it is not known as of when", http.StatusInternalServerError)
			}
		})
	})
	const bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
	make := func(path, body string) {
		t.Helper()
		if w, answer := e.do(http.MethodPost, path, nil, body); w.StatusCode != http.StatusCreated {
			t.Fatalf("%s: %d %s", path, w.StatusCode, answer)
		}
	}
	bind := func(name string) {
		make(bindings, `{"metadata":{"name":"`+name+`"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"`+name+`"},"subjects":[{"kind":"User","name":"bob"}]}`)
	}
	const role = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
	make(role, `{"metadata":{"name":"maps"},"rules":[{"apiGroups":[""],"resources":["configmaps"],"verbs":["*"]}]}`)
	make(role, `{"metadata":{"name":"masks"},"rules":[{"apiGroups":[""],"resources":["users","groups"],"verbs":["impersonate"]}]}`)
	make(role, `{"metadata":{"name":"other"},"rules":[]}`)
	make(role, `{"metadata":{"name":"own"},"rules":[{"nonResourceURLs":["/quorate/*"],"verbs":["*"]}]}`)
	make(role, `{"metadata":{"name":"widgets"},"rules":[{"apiGroups":["widgets.example.com"],"resources":["*"],"verbs":["*"]}]}`)
	make(maps, `{"metadata":{"name":"a"}}`)
	for _, row := range []struct {
		name, method, path string
		lost               string // the binding that goes meanwhile
		as                 string // impersonated
		code               int
	}{
		{"get", "GET", maps + "/a", "maps", "", 403},
		{"list", "GET", maps, "maps", "", 403},
		{"list from somewhere", "GET", maps + "?resourceVersion=1&resourceVersionMatch=NotOlderThan", "maps", "", 403},
		{"list of any state", "GET", maps + "?resourceVersion=0", "maps", "", 200},
		{"watch", "GET", maps + "?watch=1&timeoutSeconds=1", "maps", "", 403},
		{"watch from somewhere", "GET", maps + "?watch=1&timeoutSeconds=1&resourceVersion=2", "maps", "", 403},
		{"delete of all", "DELETE", maps + "?labelSelector=x", "maps", "", 403},
		{"something else", "GET", maps + "/a", "other", "", 200},
		{"something else, deleted", "DELETE", maps + "?labelSelector=x", "other", "", 200},
		{"an own path", "POST", "/quorate/v1/tokens", "own", "", 403},
		{"an own path, something else", "POST", "/quorate/v1/tokens", "other", "", 200},
		{"an own path as another", "POST", "/quorate/v1/tokens", "masks", "admin", 403},
		{"another server's write", "DELETE", aggregatedPath + "/widgets/a", "widgets", "", 403},
		{"another server's write, something else", "DELETE", aggregatedPath + "/widgets/a", "other", "", 200},
		{"another server's stream", "GET", aggregatedPath + "/widgets/a/log", "widgets", "", 403},
		{"as another", "GET", maps + "/a", "masks", "admin", 403},
		{"as another, who may", "GET", maps + "/a", "other", "admin", 200},
	} {
		t.Run(row.name, func(t *testing.T) {
			for _, name := range []string{"maps", "masks", "other", "own", "widgets"} {
				bind(name)
			}
			lose := func() {
				if w, answer := e.do(http.MethodDelete, bindings+"/"+row.lost, nil, ""); w.StatusCode != http.StatusOK {
					t.Errorf("%d %s", w.StatusCode, answer)
				}
			}
			node.news.Store(&lose)
			header := http.Header{"Test-User": {"bob"}}
			if row.as != "" {
				header["Impersonate-User"], header["Impersonate-Group"] = []string{row.as}, []string{"system:masters"}
			}
			w, answer := e.do(row.method, row.path, header, "")
			if w.StatusCode != row.code {
				t.Errorf("%d %s, want %d", w.StatusCode, answer, row.code)
			}
			if node.news.Load() != nil && !strings.Contains(row.path, "resourceVersion=0") {
				t.Error("it has not waited")
			}
			node.news.Store(nil)
			for _, name := range []string{"maps", "masks", "other", "own", "widgets"} {
				e.do(http.MethodDelete, bindings+"/"+name, nil, "")
			}
		})
	}
}

// TestServedAgain: a node that lags serves a kind whose definition was deleted. What waits for the newest state finds it gone.
func TestServedAgain(t *testing.T) {
	var node hearing
	e := newEnv(t, func(c *apiserver.Config) {
		node.Reads = c.Reads
		c.Reads = &node
	})
	e.lead()
	const path = "/apis/stable.example.com/v1/namespaces/default/routes"
	for _, row := range []struct {
		method, query string
		code          int
	}{
		{"GET", "", 404},
		{"GET", "?limit=1", 404},
		{"GET", "?resourceVersion=1&resourceVersionMatch=NotOlderThan", 404},
		{"GET", "?resourceVersion=0", 200},
		{"GET", "/a", 404},
		{"GET", "?watch=1&timeoutSeconds=1", 404},
		{"DELETE", "", 404},
	} {
		e.define(routes(`{"url":"https://127.0.0.1:1"}`), path)
		gone := func() {
			if w, answer := e.do(http.MethodDelete, definitionsPath+"/routes.stable.example.com", nil, ""); w.StatusCode != http.StatusOK {
				t.Errorf("%d %s", w.StatusCode, answer)
			}
			e.await(path, http.StatusNotFound)
		}
		node.news.Store(&gone)
		w, answer := e.do(row.method, path+row.query, nil, "")
		if w.StatusCode != row.code {
			t.Errorf("%s %s: %d %s, want %d", row.method, row.query, w.StatusCode, answer, row.code)
		}
		if node.news.Swap(nil) != nil {
			t.Fatalf("%s %s has not waited", row.method, row.query)
		}
	}
}
