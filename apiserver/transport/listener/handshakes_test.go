package listener

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestNewcomerBesideACrowd: who comes to an address where 1,000 connections wait has the
// next turn.
func TestNewcomerBesideACrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(nil, 10_000)
		l.handshakes.free = 1
		come := func() *connection {
			c := l.connection(somewhere{from: netip.MustParseAddr("10.0.0.1")})
			go func() { _, _ = l.handshakes.begin(&tls.ClientHelloInfo{Conn: c}) }()
			synctest.Wait()
			return c
		}
		first := come()
		crowd := make([]*connection, 1000)
		for i := range crowd {
			crowd[i] = come()
		}
		newcomer := come()
		l.handshakes.done(first)
		synctest.Wait()
		if !newcomer.shaking.Load() {
			t.Error("the newcomer waits behind the crowd")
		}
		for _, c := range append(crowd, first, newcomer) {
			c.Close()
		}
	})
}

// TestRetriedHandshakesWait: clients that are asked for another hello are behind the gate
// as the others are, when it has come; until then they hold no place.
func TestRetriedHandshakesWait(t *testing.T) {
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	l := New(s.Listener, 100)
	l.handshakes.free = 1
	s.Listener, s.Config.ConnState, s.Config.ConnContext = l, l.state, connContext
	var now, most, all atomic.Int32
	sign := func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		n := now.Add(1)
		defer now.Add(-1)
		all.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		time.Sleep(20 * time.Millisecond) // the signature
		return nil, nil                   // the server's own
	}
	s.TLS = &tls.Config{GetConfigForClient: l.handshakes.begin, GetCertificate: sign, CurvePreferences: []tls.CurveID{tls.CurveP256}}
	s.StartTLS()
	defer s.Close()
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			c, err := tls.Dial("tcp", s.Listener.Addr().String(), &tls.Config{
				ServerName: "example.com", InsecureSkipVerify: true, CurvePreferences: []tls.CurveID{tls.X25519, tls.CurveP256},
			})
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			if !c.ConnectionState().HelloRetryRequest {
				t.Error("there was no HelloRetryRequest")
			}
		})
	}
	wg.Wait()
	if most.Load() != 1 || all.Load() != 6 {
		t.Errorf("%d of %d handshakes at once, want 1 of 6", most.Load(), all.Load())
	}
}
