package apiserver_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver"
	"github.com/quorate/quorate/apiserver/types/kinds"
	"github.com/quorate/quorate/internal/must"
)

// TestKindVanishes removes a kind while it is watched: the watches end after their
// last event, without an error, those of other kinds go on, and who asks again gets
// what an unknown kind gets.
func TestKindVanishes(t *testing.T) {
	all, err := kinds.Builtin()
	must.OK(t, err)
	var rest []*kinds.Resource
	for _, r := range all.All() {
		if r.Plural != "leases" {
			rest = append(rest, r)
		}
	}
	without := kinds.NewRegistry(rest)
	var now atomic.Pointer[kinds.Registry]
	now.Store(all)
	e := newEnv(t, func(c *apiserver.Config) {
		c.Kinds = now.Load
		c.Limits.Bookmark = 30 * time.Millisecond
	})
	const leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
	if w, answer := e.do(http.MethodPost, leases, nil, `{"metadata":{"name":"l"}}`); w.StatusCode != 201 {
		t.Fatal(answer)
	}
	bookmarks := e.watch(leases + "?watch=1&allowWatchBookmarks=true")
	quiet := e.watch(leases + "?watch=1")
	other := e.watch(maps + "?watch=1")
	for _, s := range []*stream{bookmarks, quiet} {
		if first := e.next(s); !strings.HasPrefix(first, `{"type":"ADDED"`) {
			t.Fatal(first)
		}
	}
	// All its objects go first, as when a definition is deleted.
	if w, answer := e.do(http.MethodDelete, leases+"/l", nil, ""); w.StatusCode != 200 {
		t.Fatal(answer)
	}
	now.Store(without)
	for name, s := range map[string]*stream{"with bookmarks": bookmarks, "without": quiet} {
		deleted := false
		for event := e.next(s); event != ""; event = e.next(s) {
			deleted = deleted || strings.HasPrefix(event, `{"type":"DELETED"`)
			if strings.HasPrefix(event, `{"type":"ERROR"`) {
				t.Errorf("%s: %s", name, event)
			}
		}
		if !deleted {
			t.Errorf("%s: the stream ended without the last event", name)
		}
	}
	e.awaitWatches(1)
	if w, answer := e.do(http.MethodGet, leases+"?watch=1", nil, ""); w.StatusCode != 404 {
		t.Errorf("%d %s", w.StatusCode, answer)
	}
	if w, answer := e.do(http.MethodPost, maps, nil, `{"metadata":{"name":"a"}}`); w.StatusCode != 201 {
		t.Fatal(answer)
	}
	if event := e.next(other); !strings.Contains(event, `"name":"a"`) {
		t.Errorf("another kind: %q", event)
	}
}
