package h2

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	"golang.org/x/net/http2"
)

// TestShutdown: streams that have begun end well, then the connection does, and no worker is left.
func TestShutdown(t *testing.T) {
	begun, end := make(chan struct{}), make(chan struct{})
	s := serve(t, true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/long" {
			close(begun)
			<-end
		}
		_, _ = w.Write([]byte("done"))
	}), nil)
	c := dial(t, s, 1000)
	c.get(1, "/long")
	<-begun
	down := make(chan error, 1)
	go func() { down <- s.Config.Shutdown(t.Context()) }()
	f, err := c.next()
	if g, ok := f.(*http2.GoAwayFrame); !ok || g.ErrCode != http2.ErrCodeNo || g.LastStreamID != 1 {
		t.Fatalf("%v, %v", f, err)
	}
	c.get(3, "/")
	close(end)
	if got := c.outcome(); got != "headers 1 200 false, data 1 4 true" {
		t.Errorf("%s", got)
	}
	if _, err := c.next(); err == nil {
		t.Error("the connection goes on")
	}
	if err := <-down; err != nil {
		t.Error(err)
	}
	awaitFrames(t, "h2.(*server).work", "h2.(*conn)")
}

// TestUnusedWorkersEnd: what a crowd of requests has started does not wait for the next crowd.
func TestUnusedWorkersEnd(t *testing.T) {
	all := make(chan struct{})
	var begun atomic.Int64
	s := serve(t, true, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if begun.Add(1) == 20 {
			close(all)
		}
		<-all
	}), nil)
	c := dial(t, s, 1000)
	for id := uint32(1); id < 41; id += 2 {
		c.get(id, "/")
	}
	for answers := 0; answers < 20; {
		f, err := c.next()
		must.OK(t, err)
		if h, ok := f.(*http2.MetaHeadersFrame); ok && h.StreamEnded() {
			answers++
		}
		if d, ok := f.(*http2.DataFrame); ok && d.StreamEnded() {
			answers++
		}
	}
	awaitFrames(t, "h2.(*server).work")
}

// TestIdleConnection: a connection without streams ends after the server's IdleTimeout.
func TestIdleConnection(t *testing.T) {
	s := serve(t, true, http.NotFoundHandler(), func(s *http.Server) { s.IdleTimeout = 50 * time.Millisecond })
	c := dial(t, s, 100)
	c.get(1, "/")
	for {
		f, err := c.next()
		must.OK(t, err)
		if g, ok := f.(*http2.GoAwayFrame); ok {
			if g.ErrCode != http2.ErrCodeNo {
				t.Errorf("%v", g)
			}
			break
		}
	}
	if _, err := c.next(); err == nil {
		t.Error("the connection goes on")
	}
}
