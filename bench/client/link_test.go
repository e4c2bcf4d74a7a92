package client

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
)

// TestLink: a connection that is gone, as servers close idle ones, is another one with the next request.
func TestLink(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.RemoteAddr) }))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	l := NewLink(Node{Name: "n1", API: s.URL}, &tls.Config{RootCAs: roots}, time.Minute)
	var from [3]bytes.Buffer
	for i := range from {
		if i == 2 {
			conn, err := l.Conn(t.Context())
			must.OK(t, err)
			must.OK(t, conn.Close())
		}
		if _, err := l.Do(t.Context(), Request{Method: http.MethodGet, Path: "/"}, &from[i]); err != nil {
			t.Fatal(err)
		}
	}
	if a, b, c := from[0].String(), from[1].String(), from[2].String(); a != b || b == c {
		t.Errorf("requests came from %s, %s and, with the connection closed, %s", a, b, c)
	}
	if err := CloseLinks([]*Link{l}); err != nil {
		t.Error(err)
	}
	s.Close()
	if _, err := NewLink(l.node, l.config, time.Minute).Conn(t.Context()); err == nil {
		t.Error("a server that is gone was connected to")
	}
}
