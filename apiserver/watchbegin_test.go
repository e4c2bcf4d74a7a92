package apiserver_test

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/quorate/quorate/raftstore/memstore"
)

// firstFlush is a response that ends its request with its first flush.
type firstFlush struct {
	header http.Header
	body   bytes.Buffer
	sent   *string // the body at the first flush
	end    context.CancelFunc
}

func (w *firstFlush) Header() http.Header         { return w.header }
func (w *firstFlush) WriteHeader(int)             {}
func (w *firstFlush) Write(b []byte) (int, error) { return w.body.Write(b) }

func (w *firstFlush) Flush() {
	if w.sent == nil {
		body := w.body.String()
		w.sent = &body
	}
	w.end()
}

// TestFirstBookmarkComesWithTheHeaders: a node that dies in between would leave a
// client with a watch that broke at once without a word.
func TestFirstBookmarkComesWithTheHeaders(t *testing.T) {
	e := newEnv(t, nil)
	for query, want := range map[string]string{
		"watch=1&resourceVersion=" + at(e.mem) + "&allowWatchBookmarks=true":                        `{"type":"BOOKMARK"`,
		"watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true": `k8s.io/initial-events-end`,
		"watch=1&resourceVersion=" + at(e.mem):                                                      ``,
	} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		w := &firstFlush{header: http.Header{}, end: cancel}
		e.api.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, maps+"?"+query, nil))
		if w.sent == nil {
			t.Errorf("%s: nothing was sent", query)
		} else if !strings.Contains(*w.sent, want) {
			t.Errorf("%s: first %q was sent, want %s in it", query, *w.sent, want)
		}
	}
}

func at(m *memstore.Store) string { return m.Applied().String() }

// A watch that breaks within its first second and has said nothing behind its
// initial events makes client-go read everything again.
func TestBookmarkBehindInitialEvents(t *testing.T) {
	e := newEnv(t, nil)
	s := e.watch(maps + "?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true")
	if end := e.next(s); !strings.Contains(end, "initial-events-end") {
		t.Fatal(end)
	}
	if next := e.next(s); !strings.HasPrefix(next, `{"type":"BOOKMARK"`) || strings.Contains(next, "initial-events-end") {
		t.Fatal(next)
	}
}
