//go:build linux

package nodes

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"
)

// balancer hands connections on to the servers in turn. With checks it asks them /readyz, and
// closes the connections to one that does not answer: without, a client of a server that stands still
// learns of it only by its own timeouts.
type balancer struct {
	listener net.Listener
	wg       sync.WaitGroup
	stop     context.CancelFunc

	mu      sync.Mutex
	servers []*server
	next    int
	checks  bool
}

type server struct {
	addr  string
	down  bool
	conns map[net.Conn]bool
}

const (
	checkEvery  = 500 * time.Millisecond
	checkWithin = time.Second
)

func newBalancer(t *testing.T, address string, servers ...string) *balancer {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	b := &balancer{listener: l, stop: stop, checks: true}
	for _, s := range servers {
		b.servers = append(b.servers, &server{addr: s, down: true, conns: map[net.Conn]bool{}})
	}
	for _, s := range b.servers {
		b.wg.Go(func() { b.check(ctx, s) })
	}
	b.wg.Go(b.accept)
	t.Cleanup(func() {
		stop()
		l.Close()
		b.mu.Lock()
		for _, s := range b.servers {
			s.closeAll()
		}
		b.mu.Unlock()
		b.wg.Wait()
	})
	return b
}

func (s *server) closeAll() {
	for c := range s.conns {
		c.Close()
	}
}

// setChecks switches the checks on or off. Without them all servers count as ready.
func (b *balancer) setChecks(on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.checks = on
}

// carries reports whether a server has a connection from an address.
func (b *balancer) carries(server, from string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.servers {
		for c := range s.conns {
			if host, _, err := net.SplitHostPort(c.RemoteAddr().String()); s.addr == server && err == nil && host == from {
				return true
			}
		}
	}
	return false
}

func (b *balancer) check(ctx context.Context, s *server) {
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true, // it only asks whether somebody answers
	}
	client := &http.Client{Timeout: checkWithin, Transport: transport}
	for {
		ready := false
		if resp, err := client.Get("https://" + s.addr + "/readyz"); err == nil {
			ready = resp.StatusCode == http.StatusOK
			resp.Body.Close()
		}
		b.mu.Lock()
		s.down = !ready && b.checks
		if s.down {
			s.closeAll()
		}
		b.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-time.After(checkEvery):
		}
	}
}

func (b *balancer) accept() {
	for {
		c, err := b.listener.Accept()
		if err != nil {
			return
		}
		b.wg.Go(func() { b.carry(c) })
	}
}

// pick returns the next server that is not down, and notes the connection.
func (b *balancer) pick(c net.Conn) *server {
	b.mu.Lock()
	defer b.mu.Unlock()
	for range b.servers {
		b.next++
		if s := b.servers[b.next%len(b.servers)]; !s.down {
			s.conns[c] = true
			return s
		}
	}
	return nil
}

func (b *balancer) carry(c net.Conn) {
	defer c.Close()
	s := b.pick(c)
	if s == nil {
		return
	}
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(s.conns, c)
	}()
	to, err := net.DialTimeout("tcp", s.addr, 2*time.Second)
	if err != nil {
		return
	}
	defer to.Close()
	back := make(chan struct{})
	go func() {
		defer close(back)
		_, _ = io.Copy(c, to)
		c.Close()
	}()
	_, _ = io.Copy(to, c)
	to.Close()
	<-back
}
