package aggregator_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/apiserver/backends/aggregator"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// TestEmptyHostile: what a server answers instead of a list is no empty list, takes no memory and no end of time, and what it
// refuses is told.
func TestEmptyHostile(t *testing.T) {
	list := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) }
	}
	endless := func(start, again string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, start)
			for {
				if _, err := io.WriteString(w, again); err != nil {
					return
				}
			}
		}
	}
	for _, c := range []struct {
		name, want string
		answer     http.HandlerFunc
	}{
		{"no list", "not a list", list(`{"kind":"Status","status":"Success"}`)},
		{"no object", "not a list", list(`[]`)},
		{"no JSON", "cannot be read", list(`<html>`)},
		{"half a list", "cannot be read", list(`{"items":[{"metadata":{"deletionTimestamp":"x"}}`)},
		{"two lists", "not a list", list(`{"items":[],"items":[]}`)},
		{"items that are none", "not a list", list(`{"items":{}}`)},
		{"nothing", "cannot be read", list(``)},
		{"null", "", list(`{"items":null}`)},
		{"an endless name", "longer than", endless(`{"items":[{"metadata":{"name":"`, strings.Repeat("a", 64<<10))},
		{"endless space", "longer than", endless(`{"items":[`, strings.Repeat(" ", 64<<10))},
		{"a long token", "token", list(`{"metadata":{"continue":"` + strings.Repeat("a", 20<<10) + `"},"items":[]}`)},
		{"the same page", "the same page", list(`{"metadata":{"continue":"a"},"items":[]}`)},
		{"forbidden", "you may not", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"kind":"Status","message":"you may not"}`)
		}},
		{"a redirect", ": 302", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://192.0.2.1/", http.StatusFound)
		}},
		{"not there", "", http.NotFound},
		{"another namespace by now", "not that one", list(`{"items":[{"metadata":{"name":"a"}}]}`)},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := newEnv(t, func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.Method != http.MethodGet:
					t.Errorf("%s %s", r.Method, r.URL)
				case r.URL.Path == "/apis/widgets.example.com/v1":
					fmt.Fprint(w, `{"groupVersion":"widgets.example.com/v1","resources":[{"name":"widgets","kind":"W","namespaced":true,"verbs":["list","delete"]},{"name":"..","kind":"W","namespaced":true,"verbs":["list","delete"]}]}`)
				case r.URL.Path == "/apis/widgets.example.com/v1/namespaces/a/widgets":
					c.answer(w, r)
				default:
					http.NotFound(w, r)
				}
			})
			e.put("widgets.example.com", true, nil)
			server := e.awaitNamespaced(1).Servers[0]
			gone := errors.New("not that one")
			left := e.of.Empty(t.Context(), server, "a", &auth.User{Name: "u"}, func(context.Context) error { return gone })
			var got string
			for _, err := range left.Errs {
				got += err.Error()
			}
			if c.want == "" && !left.Nothing() || !strings.Contains(got, c.want) || len(got) > 2000 {
				t.Errorf("%v, want %q", left, c.want)
			}
		})
	}
}

// awaitNamespaced runs the Aggregator until n servers have something in namespaces.
func (e *env) awaitNamespaced(n int) *aggregator.Namespaced {
	e.t.Helper()
	ctx, cancel := context.WithCancel(e.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); e.run(ctx) }()
	defer func() { cancel(); <-done }()
	deadline := time.After(10 * time.Second)
	for {
		is := e.of.Namespaced()
		if len(is.Servers) == n && is.Asked && len(is.Unknown) == 0 {
			return is
		}
		select {
		case <-deadline:
			e.t.Fatalf("%+v", is)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// TestNamespaced: a resource of several versions is asked for in the one of the highest priority.
func TestNamespaced(t *testing.T) {
	e := newEnv(t, func(w http.ResponseWriter, r *http.Request) {
		gv, ok := strings.CutPrefix(r.URL.Path, "/apis/")
		if !ok || strings.Count(gv, "/") != 1 {
			http.NotFound(w, r)
			return
		}
		more := ""
		if strings.HasSuffix(gv, "/v1beta1") {
			more = `,{"name":"olds","kind":"O","namespaced":true,"verbs":["list","delete"]}`
		}
		fmt.Fprintf(w, `{"groupVersion":"%s","resources":[{"name":"widgets","kind":"W","namespaced":true,"verbs":["list","delete"]},{"name":"widgets/status","kind":"W","namespaced":true,"verbs":["delete"]}%s]}`, gv, more)
	})
	if is := e.of.Namespaced(); len(is.Servers) != 0 || !is.Asked {
		t.Errorf("without an APIService: %+v", is)
	}
	e.put("widgets.example.com", true, nil)
	e.put("beta.example.com", true, func(s *apiregistrationv1.APIServiceSpec) {
		s.Group, s.Version, s.VersionPriority = "widgets.example.com", "v1beta1", 5
	})
	if is := e.of.Namespaced(); len(is.Servers) != 0 || is.Asked {
		t.Errorf("before a server was asked: %+v", is)
	}
	is := e.awaitNamespaced(1)
	if got, want := is.Servers[0].About, "widgets.example.com/v1, Resource=widgets\nwidgets.example.com/v1beta1, Resource=olds\n"; got != want || is.Servers[0].Service != "default/widgets:443" {
		t.Errorf("%+v, want %q", is.Servers[0], want)
	}
}

// TestEmptyLarge: a hundred thousand objects that stay are counted by pages.
func TestEmptyLarge(t *testing.T) {
	all := 100_000
	var pages, deletes atomic.Int64
	e := newEnv(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/apis/widgets.example.com/v1":
			fmt.Fprint(w, `{"groupVersion":"widgets.example.com/v1","resources":[{"name":"widgets","kind":"W","namespaced":true,"verbs":["list","delete","deletecollection"]}]}`)
			return
		case r.URL.Path != "/apis/widgets.example.com/v1/namespaces/a/widgets":
			http.NotFound(w, r)
			return
		case r.Method == http.MethodDelete:
			deletes.Add(1)
			return
		}
		pages.Add(1)
		var from, limit int
		for name, into := range map[string]*int{"continue": &from, "limit": &limit} {
			if v := r.URL.Query().Get(name); v != "" {
				*into, _ = strconv.Atoi(v)
			}
		}
		gone := ""
		if deletes.Load() > 0 {
			gone = `"deletionTimestamp":"2026-01-01T00:00:00Z",`
		}
		next := ""
		if from+limit < all {
			next = strconv.Itoa(from + limit)
		}
		one := `{"metadata":{` + gone + `"name":"a","uid":"u","finalizers":["example.com/f"]}},`
		fmt.Fprintf(w, `{"metadata":{"continue":"%s"},"items":[%s]}`, next, strings.TrimSuffix(strings.Repeat(one, min(limit, all-from)), ","))
	})
	e.put("widgets.example.com", true, nil)
	server := e.awaitNamespaced(1).Servers[0]
	for range 2 { // the second time nothing is deleted again
		left := e.of.Empty(t.Context(), server, "a", &auth.User{Name: "u"}, func(context.Context) error { return nil })
		if len(left.Errs) > 0 || left.Resources["widgets.widgets.example.com"] != all || left.Finalizers["example.com/f"] != all {
			t.Fatalf("%+v", left)
		}
		all = 1000
	}
	if n, d := pages.Load(), deletes.Load(); n != 203 || d != 1 {
		t.Errorf("%d pages, %d deletions", n, d)
	}
}
