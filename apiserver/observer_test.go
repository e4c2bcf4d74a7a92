package apiserver_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/apiserver"
	"github.com/quorate/quorate/apiserver/wire/request"
	"github.com/quorate/quorate/internal/must"
	"golang.org/x/net/websocket"
)

// watchBytes is an Observer that counts what watches send.
type watchBytes struct {
	apiserver.NoObserver
	events, bytes atomic.Int64
}

func (o *watchBytes) WatchEvents(_ *request.Kind, events int, bytes int64) {
	o.bytes.Add(bytes) // first: the test awaits the events and then reads the bytes
	o.events.Add(int64(events))
}

// TestWatchBytes: the observer is told of all bytes of a watch: those that filled a
// buffer before the flush, and those that a WebSocket took at once.
func TestWatchBytes(t *testing.T) {
	const size = 256 << 10
	for _, over := range []string{"http", "WebSocket"} {
		t.Run(over, func(t *testing.T) {
			o := &watchBytes{}
			e := newEnv(t, func(c *apiserver.Config) { c.Observer = o })
			if w, answer := e.do(http.MethodPost, maps, nil, `{"metadata":{"name":"a"},"data":{"k":"`+strings.Repeat("x", size)+`"}}`); w.StatusCode != 201 {
				t.Fatal(clip(answer))
			}
			if over == "http" {
				e.next(e.watch(maps + "?watch=1"))
			} else {
				e.message(e.mustSocket(maps+"?watch=1"), websocket.TextFrame)
			}
			for deadline := time.Now().Add(patience); o.events.Load() == 0; time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("the observer was told of no event")
				}
			}
			if events, bytes := o.events.Load(), o.bytes.Load(); events != 1 || bytes < size || bytes > size+4<<10 {
				t.Errorf("%d events of %d bytes, want one of a little more than %d", events, bytes, size)
			}
		})
	}
}

// ends is an Observer that notes what ended, and whether that was a dry run.
type ends struct {
	watchBytes
	mu   sync.Mutex
	seen []string
}

func (o *ends) RequestDone(k *request.Kind, _ request.End) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if k.Verb != "get" {
		o.seen = append(o.seen, fmt.Sprintf("%s %s/%s %t", k.Verb, k.Resource, k.Subresource, k.DryRun))
	}
}

// TestDryRunsAreCounted: every verb says of a dry run that it is one.
func TestDryRunsAreCounted(t *testing.T) {
	o := &ends{}
	e := newEnv(t, func(c *apiserver.Config) { c.Observer = o })
	if w, answer := e.do(http.MethodPost, maps, nil, `{"metadata":{"name":"a"}}`); w.StatusCode != 201 {
		t.Fatal(answer)
	}
	merge := http.Header{"Content-Type": {"application/merge-patch+json"}}
	apply := http.Header{"Content-Type": {"application/apply-patch+yaml"}}
	o.seen = nil
	for _, r := range []struct {
		method, path, body string
		header             http.Header
		want               string
	}{
		{http.MethodPost, maps + "?dryRun=All", `{"metadata":{"name":"b"}}`, nil, "create configmaps/ true"},
		{http.MethodPut, maps + "/a?dryRun=All", `{"metadata":{"name":"a"}}`, nil, "update configmaps/ true"},
		{http.MethodPatch, maps + "/a?dryRun=All", `{}`, merge, "patch configmaps/ true"},
		{http.MethodPatch, maps + "/a?dryRun=All&fieldManager=x", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}", apply, "apply configmaps/ true"},
		{http.MethodDelete, maps + "/a?dryRun=All", "", nil, "delete configmaps/ true"},
		{http.MethodDelete, maps + "?dryRun=All", "", nil, "deletecollection configmaps/ true"},
		{http.MethodPut, "/api/v1/namespaces/default/finalize?dryRun=All", `{"metadata":{"name":"default"}}`, nil, "update namespaces/finalize true"},
		{http.MethodPut, "/api/v1/namespaces/default/status?dryRun=All", `{"metadata":{"name":"default"}}`, nil, "update namespaces/status true"},
		{http.MethodPut, maps + "/a", `{"metadata":{"name":"a"}}`, nil, "update configmaps/ false"},
	} {
		if w, answer := e.do(r.method, r.path, r.header, r.body); w.StatusCode >= 300 {
			t.Errorf("%s %s: %d %s", r.method, r.path, w.StatusCode, clip(answer))
		}
		must.Await(t, patience, r.method+" "+r.path, func() string {
			o.mu.Lock()
			defer o.mu.Unlock()
			if got := strings.Join(o.seen, "; "); got != r.want {
				return "counted as " + got
			}
			return ""
		})
		o.mu.Lock()
		o.seen = nil
		o.mu.Unlock()
	}
}
