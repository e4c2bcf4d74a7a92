package clients

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/test/harness/cluster"
)

// Timing of the balancer's look at its backends.
const (
	checkEvery  = 250 * time.Millisecond
	checkWithin = 2 * time.Second
	dialWithin  = time.Second
)

// balancer is the load balancer that users put in front of the API ports: it
// knows nothing but TCP, gives each connection to the next node whose /readyz
// says ok, and leaves open connections alone.
type balancer struct {
	listener net.Listener
	backends []*backend
	next     atomic.Uint64

	stop context.CancelFunc
	wg   sync.WaitGroup
	mu   sync.Mutex
	open map[net.Conn]struct{}
	end  bool
}

type backend struct {
	url   string
	addr  string
	check *http.Client
	up    atomic.Bool
}

// startBalancer starts a balancer in front of all nodes and ends it with the
// test.
func startBalancer(t *testing.T, c *cluster.Cluster) *balancer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	b := &balancer{listener: l, stop: cancel, open: map[net.Conn]struct{}{}}
	for _, n := range c.Nodes() {
		config, err := n.TLS()
		if err != nil {
			t.Fatal(err)
		}
		b.backends = append(b.backends, newBackend(n, config))
	}
	for _, back := range b.backends {
		back.look(ctx)
		b.wg.Go(func() { back.watch(ctx) })
	}
	b.wg.Go(b.accept)
	t.Cleanup(b.close)
	return b
}

func newBackend(n *cluster.Node, config *tls.Config) *backend {
	// A new connection for each look, as balancers do: it also shows whether there
	// is a listener.
	transport := &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}
	return &backend{
		url: n.API + "/readyz", addr: strings.TrimPrefix(n.API, "https://"),
		check: &http.Client{Transport: transport, Timeout: checkWithin},
	}
}

func (b *backend) watch(ctx context.Context) {
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			b.look(ctx)
		}
	}
}

func (b *backend) look(ctx context.Context) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.url, nil)
	if err != nil {
		b.up.Store(false)
		return
	}
	resp, err := b.check.Do(req)
	if err != nil {
		b.up.Store(false)
		return
	}
	resp.Body.Close()
	b.up.Store(resp.StatusCode == http.StatusOK)
}

// url is where clients go.
func (b *balancer) url() string { return "https://" + b.listener.Addr().String() }

func (b *balancer) accept() {
	for {
		conn, err := b.listener.Accept()
		if err != nil {
			return
		}
		b.wg.Go(func() { b.serve(conn) })
	}
}

// serve joins a connection to one of a backend. One that refuses is passed over.
func (b *balancer) serve(front net.Conn) {
	if !b.track(front) {
		return
	}
	defer b.drop(front)
	first := b.next.Add(1)
	for i := range b.backends {
		back := b.backends[(int(first)+i)%len(b.backends)]
		if !back.up.Load() {
			continue
		}
		conn, err := net.DialTimeout("tcp", back.addr, dialWithin)
		if err != nil {
			continue
		}
		if b.track(conn) {
			b.join(front, conn)
			b.drop(conn)
		}
		return
	}
}

// join copies both ways until either side is done.
func (b *balancer) join(x, y net.Conn) {
	var wg sync.WaitGroup
	for _, way := range [][2]net.Conn{{x, y}, {y, x}} {
		wg.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			x.Close()
			y.Close()
		})
	}
	wg.Wait()
}

func (b *balancer) track(c net.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.end {
		c.Close()
		return false
	}
	b.open[c] = struct{}{}
	return true
}

func (b *balancer) drop(c net.Conn) {
	c.Close()
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.open, c)
}

func (b *balancer) close() {
	b.stop()
	b.listener.Close()
	b.mu.Lock()
	b.end = true
	for c := range b.open {
		c.Close()
	}
	b.mu.Unlock()
	b.wg.Wait()
}
