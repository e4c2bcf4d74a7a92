package main

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

// serveConnections serves a handler on a bounded listener.
func serveConnections(t *testing.T, limit int, h http.Handler) (*connections, *httptest.Server) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	l := newConnections(s.Listener, limit)
	s.Listener, s.Config.ConnState = l, l.state
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return l, s
}

// dialServer opens a connection of HTTP/1.1.
func dialServer(t *testing.T, s *httptest.Server) *tls.Conn {
	t.Helper()
	c, err := tls.Dial("tcp", s.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestConnectionLimit: above the limit the connection goes that has been idle for
// longest; one that is at work stays; if all are at work, the newest goes.
func TestConnectionLimit(t *testing.T) {
	release, begun := make(chan struct{}), make(chan struct{}, 10)
	l, s := serveConnections(t, 3, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			begun <- struct{}{}
			<-release
		}
		_, _ = io.WriteString(w, "here")
	}))
	buffer := make([]byte, 1000)
	ask := func(c net.Conn, path string) { _, _ = io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n") }
	answered := func(c net.Conn) bool {
		n, err := c.Read(buffer)
		return err == nil && strings.HasSuffix(string(buffer[:n]), "here")
	}
	var conns []*tls.Conn
	for range 3 {
		c := dialServer(t, s)
		ask(c, "/")
		if !answered(c) {
			t.Fatal("no answer below the limit")
		}
		conns = append(conns, c)
	}
	ask(conns[0], "/wait")
	<-begun
	conns = append(conns, dialServer(t, s))
	if _, err := conns[1].Read(buffer); err != io.EOF {
		t.Errorf("the longest idle one: %v, want its end", err)
	}
	for _, i := range []int{2, 3} {
		ask(conns[i], "/wait")
		<-begun
	}
	if c, err := tls.Dial("tcp", s.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true}); err == nil {
		t.Error("one more than may be at work")
		c.Close()
	}
	close(release)
	for _, i := range []int{0, 2, 3} {
		if !answered(conns[i]) {
			t.Errorf("connection %d was at work and has no answer", i)
		}
	}
	for _, c := range conns {
		c.Close()
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		l.mu.Lock()
		open, idle := l.open, l.idle.Len()
		l.mu.Unlock()
		if open == 0 && idle == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d connections are counted, %d idle, and none is there", open, idle)
		}
	}
}

// TestCutIsNoForgery: a client whose answer is cut by a deadline sees an early end, not
// a record with a wrong MAC, whether the cut hits a write or comes between two.
func TestCutIsNoForgery(t *testing.T) {
	_, s := serveConnections(t, 10, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cut := func() { _ = http.NewResponseController(w).SetWriteDeadline(time.Unix(1, 0)) }
		if r.URL.Path == "/within" {
			timer := time.AfterFunc(100*time.Millisecond, cut)
			defer timer.Stop()
		}
		for i := 0; ; i++ {
			if r.URL.Path == "/between" && i == 3 {
				cut()
			}
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				panic(http.ErrAbortHandler)
			}
		}
	}))
	for _, path := range []string{"/within", "/between"} {
		c := dialServer(t, s)
		if _, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if path == "/within" {
			time.Sleep(300 * time.Millisecond) // the server writes into full buffers until it is cut
		}
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, r.Body)
		if n == 0 || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: %d bytes, then %v; want an unexpected end", path, n, err)
		}
	}
}

// TestConnectionLimitOfDescriptors: what is asked for, but never all descriptors.
func TestConnectionLimitOfDescriptors(t *testing.T) {
	got := []int{connectionLimit(1), connectionLimit(1 << 40)}
	if got[0] != 1 || got[1] < 1 || got[1] >= 1<<40 || !slices.IsSorted(got) {
		t.Error(got)
	}
}
