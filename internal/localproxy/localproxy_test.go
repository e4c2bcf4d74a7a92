package localproxy

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/internal/standins"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	isReady = iota
	isUnready
	isSilent
)

// fake is a node that says its name to its clients, and then sends back what it gets.
type fake struct {
	net.Listener
	health atomic.Int32
}

func newFake(t *testing.T) *fake {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(t, err)
	f := &fake{Listener: l}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.WriteString(c, f.Addr().String()+"\n")
				io.Copy(c, c)
			}()
		}
	}()
	return f
}

func (f *fake) Ask(ctx context.Context) (bool, error) {
	switch f.health.Load() {
	case isReady:
		return true, nil
	case isUnready:
		return false, nil
	}
	<-ctx.Done()
	return false, ctx.Err()
}

func (f *fake) Close() {}

// run starts a Balancer over fakes and returns where it listens.
func run(t *testing.T, cfg Config, fakes ...*fake) (*Balancer, string) {
	t.Helper()
	byAddress := map[string]*fake{}
	for _, f := range fakes {
		cfg.Nodes = append(cfg.Nodes, f.Addr().String())
		byAddress[f.Addr().String()] = f
	}
	cfg.Probe = func(a string) Probe { return byAddress[a] }
	if cfg.Every == 0 {
		cfg.Every = 20 * time.Millisecond
	}
	b := New(cfg)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- b.Run(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ran; err != nil {
			t.Error(err)
		}
	})
	return b, l.Addr().String()
}

// client is a connection through a Balancer, and the node that it leads to.
type client struct {
	net.Conn
	in   *bufio.Reader
	node string
}

func connect(t *testing.T, at string) *client {
	t.Helper()
	c, err := net.Dial("tcp", at)
	must.OK(t, err)
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(10 * time.Second))
	in := bufio.NewReader(c)
	name, err := in.ReadString('\n')
	must.OK(t, err)
	return &client{c, in, strings.TrimSpace(name)}
}

// works reports whether bytes come back.
func (c *client) works() bool {
	if _, err := io.WriteString(c, "x\n"); err != nil {
		return false
	}
	line, err := c.in.ReadString('\n')
	return err == nil && line == "x\n"
}

func (b *Balancer) healthOf(address string) health {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := b.nodes[address]; n != nil {
		return n.health
	}
	return -1
}

// TestBalancer: connections are spread; those to a node that does not answer end, and new ones go to the
// others; one that is not ready gets no new ones, and loses those that it has after a time, unless there
// is no other.
func TestBalancer(t *testing.T) {
	a, b, c := newFake(t), newFake(t), newFake(t)
	fakes := []*fake{a, b, c}
	lb, at := run(t, Config{Unready: 200 * time.Millisecond}, fakes...)
	for _, f := range fakes {
		standins.Await(t, "not all are ready", func() bool { return lb.healthOf(f.Addr().String()) == ready })
	}
	clients := map[string][]*client{}
	for range 6 {
		c := connect(t, at)
		clients[c.node] = append(clients[c.node], c)
	}
	for _, f := range fakes {
		if n := len(clients[f.Addr().String()]); n != 2 {
			t.Errorf("%d of 6 connections are at one of 3 nodes", n)
		}
	}
	a.health.Store(isSilent)
	for _, c := range clients[a.Addr().String()] {
		if _, err := c.in.ReadByte(); !errors.Is(err, io.EOF) {
			t.Errorf("a connection to a node that is dead: %v", err)
		}
	}
	for range 4 {
		if c := connect(t, at); c.node == a.Addr().String() {
			t.Error("a new connection went to a node that is dead")
		}
	}
	b.health.Store(isUnready)
	standins.Await(t, "b is not known to be unready", func() bool { return lb.healthOf(b.Addr().String()) == unready })
	if !clients[b.Addr().String()][0].works() {
		t.Error("a connection ended as soon as its node was not ready")
	}
	if c2 := connect(t, at); c2.node != c.Addr().String() {
		t.Error("a new connection went to a node that is not ready")
	}
	for _, c := range clients[b.Addr().String()] {
		if _, err := c.in.ReadByte(); !errors.Is(err, io.EOF) {
			t.Errorf("a connection to a node that is not ready for long: %v", err)
		}
	}
	// A cluster without a quorum: all that are left are not ready, and are used.
	c.health.Store(isUnready)
	standins.Await(t, "c is not known to be unready", func() bool { return lb.healthOf(c.Addr().String()) == unready })
	kept := connect(t, at)
	standins.Await(t, "time does not pass", func() bool {
		lb.mu.Lock()
		defer lb.mu.Unlock()
		//wall: a time that must have passed, not a bound
		return time.Since(lb.nodes[c.Addr().String()].since) > 300*time.Millisecond
	})
	if !kept.works() || kept.node == a.Addr().String() {
		t.Error("a connection ended although no node is ready")
	}
	a.health.Store(isReady)
	standins.Await(t, "a does not come back", func() bool { return lb.healthOf(a.Addr().String()) == ready })
	if c := connect(t, at); c.node != a.Addr().String() {
		t.Error("a new connection went to a node that is not ready, and another is")
	}
}

// TestHealthIsLogged: each change of a node's health is a line, also one that a dial has found out, and a
// line without an error has none.
func TestHealthIsLogged(t *testing.T) {
	var said strings.Builder
	b := New(Config{Nodes: []string{"127.0.0.1:1"}, Log: slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
			return slog.Attr{}
		}
		return a
	}}))})
	n := b.nodes["127.0.0.1:1"]
	b.learn(n, true, nil)
	b.cannotDial(n, errors.New("refused"))
	b.cannotDial(n, errors.New("refused"))
	b.learn(n, true, nil)
	b.learn(n, false, nil)
	want := `msg="a node is failing" node=127.0.0.1:1 was=ready "connections ended"=0 err=refused
msg="a node is ready" node=127.0.0.1:1 was=failing "connections ended"=0
msg="a node is not ready" node=127.0.0.1:1 was=ready "connections ended"=0
`
	if said.String() != want {
		t.Errorf("got\n%s, want\n%s", &said, want)
	}
}

// TestItself: a proxy does not connect to itself, whether its address came by the name in --server or in an
// EndpointSlice, and its clients go to the other nodes.
func TestItself(t *testing.T) {
	for _, listen := range []string{"127.0.0.1:0", "0.0.0.0:0", "[::]:0"} {
		t.Run(listen, func(t *testing.T) {
			l, err := net.Listen("tcp", listen)
			must.OK(t, err)
			counted := &counting{Listener: l}
			_, port, _ := net.SplitHostPort(l.Addr().String())
			itself, named := "127.0.0.1:"+port, "localhost:"+port
			a := newFake(t)
			b := New(Config{Nodes: []string{named, itself, a.Addr().String()}, Seeds: []string{named}, Itself: l.Addr(), Every: 20 * time.Millisecond})
			asks := b.cfg.Probe
			b.cfg.Probe = func(address string) Probe {
				if address == a.Addr().String() {
					return a
				}
				return asks(address)
			}
			ctx, cancel := context.WithCancel(context.Background())
			ran := make(chan error, 1)
			go func() { ran <- b.Run(ctx, counted) }()
			t.Cleanup(func() {
				cancel()
				if err := <-ran; err != nil {
					t.Error(err)
				}
			})
			if got := b.Nodes(); slices.Contains(got, itself) {
				t.Errorf("it is a node of its own: %v", got)
			}
			standins.Await(t, "it takes itself for a node that is well", func() bool { return b.healthOf(named) == dead })
			b.SetNodes([]string{itself, a.Addr().String()})
			for range 8 {
				if c := connect(t, itself); c.node != a.Addr().String() {
					t.Errorf("connected to %s", c.node)
				}
			}
			// Nobody is left but itself.
			b.SetNodes([]string{named})
			a.Listener.Close()
			if c, err := b.Dial(ctx, "tcp", ""); err == nil || !strings.Contains(err.Error(), errItself.Error()) {
				t.Errorf("it has dialled itself: %v, %v", c, err)
			}
			if n := counted.accepted.Load(); n != 8 {
				t.Errorf("it has accepted %d connections, of which 8 are clients'", n)
			}
		})
	}
}

// counting counts what it accepts.
type counting struct {
	net.Listener
	accepted atomic.Int64
}

func (c *counting) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.accepted.Add(1)
	}
	return conn, err
}

// TestIsItself: an address is the listener's when the port is, and the address is or leads to this host.
func TestIsItself(t *testing.T) {
	for _, x := range []struct {
		listener, address string
		want              bool
	}{
		{"127.0.0.1:7998", "127.0.0.1:7998", true},
		{"127.0.0.1:7998", "localhost:7998", true},
		{"127.0.0.1:7998", "[::ffff:127.0.0.1]:7998", true},
		{"127.0.0.1:7998", "127.0.0.1:7999", false},
		{"127.0.0.1:6443", "127.0.0.2:6443", false}, // a node on the same host
		{"127.0.0.1:6443", "192.0.2.1:6443", false},
		{"127.0.0.1:7998", "node.invalid:7998", false}, // names are looked up when they are dialled
		{"0.0.0.0:7998", "127.0.0.2:7998", true},
		{"[::]:7998", "127.0.0.1:7998", true},
		{"0.0.0.0:7998", "192.0.2.1:7998", false},
		{"192.0.2.7:6443", "192.0.2.7:6443", true},
		{"192.0.2.7:6443", "192.0.2.8:6443", false},
		{"192.0.2.7:6443", "127.0.0.1:6443", false},
	} {
		listener := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(x.listener))
		if got := IsItself(listener, x.address); got != x.want {
			t.Errorf("%s at %s: %t", x.address, x.listener, got)
		}
	}
	if IsItself(nil, "127.0.0.1:7998") {
		t.Error("without a listener")
	}
}

// TestBytes: what one side has said arrives, also after it has said that this was all.
func TestBytes(t *testing.T) {
	_, at := run(t, Config{}, newFake(t))
	c := connect(t, at)
	text := strings.Repeat("0123456789abcdef", 64<<10)
	go func() {
		io.WriteString(c, text)
		c.Conn.(*net.TCPConn).CloseWrite()
	}()
	got, err := io.ReadAll(c.in)
	if err != nil || string(got) != text {
		t.Errorf("%d of %d bytes came back, %v", len(got), len(text), err)
	}
}

// TestSeeds: while none of the listed nodes is well, connections go to those that the host was told of, and
// not any more when one is.
func TestSeeds(t *testing.T) {
	seed, listed, other := newFake(t), newFake(t), newFake(t)
	lb, at := run(t, Config{Seeds: []string{seed.Addr().String()}}, seed, listed, other)
	lb.SetNodes([]string{listed.Addr().String(), other.Addr().String()})
	leadsTo := func(all ...*fake) func() bool {
		return func() bool {
			c := connect(t, at)
			defer c.Close()
			return slices.ContainsFunc(all, func(f *fake) bool { return f.Addr().String() == c.node })
		}
	}
	if !leadsTo(listed, other)() {
		t.Error("a seed goes before nodes that are well")
	}
	listed.health.Store(isSilent)
	other.health.Store(isSilent)
	standins.Await(t, "connections go to nodes that do not answer", leadsTo(seed))
	if got := lb.Nodes(); slices.Contains(got, seed.Addr().String()) {
		t.Errorf("the seed is listed: %v", got)
	}
	seed.health.Store(isSilent)
	standins.Await(t, "a seed that does not answer goes before nodes of the list", leadsTo(listed, other))
	seed.health.Store(isReady)
	listed.health.Store(isUnready)
	standins.Await(t, "connections do not go to a node of the list", leadsTo(listed))
}

// TestNodesChange: a node that is no member keeps its connections, and is forgotten after them; one that cannot be
// dialled is passed over; more connections than allowed are closed.
func TestNodesChange(t *testing.T) {
	a, b := newFake(t), newFake(t)
	lb, at := run(t, Config{MaxConnections: 2}, a, b)
	first := connect(t, at)
	keep, other := a, b
	if first.node == b.Addr().String() {
		keep, other = b, a
	}
	lb.SetNodes([]string{other.Addr().String()})
	if c := connect(t, at); c.node != other.Addr().String() || !first.works() {
		t.Errorf("connected to %s", c.node)
	}
	third, err := net.Dial("tcp", at)
	must.OK(t, err)
	defer third.Close()
	if n, err := third.Read(make([]byte, 1)); n > 0 || err == nil {
		t.Error("a third connection was passed")
	}
	if got := lb.Nodes(); !slices.Equal(got, []string{other.Addr().String()}) {
		t.Errorf("the nodes are %v", got)
	}
	first.Close()
	standins.Await(t, "a node that is gone is not forgotten", func() bool { return lb.healthOf(keep.Addr().String()) == -1 })
	lb.SetNodes(nil)
	if len(lb.Nodes()) != 1 {
		t.Error("an empty list was taken")
	}
	var many []string
	for i := range 2 * maxNodes {
		many = append(many, fmt.Sprintf("127.0.0.1:%d", i+1))
	}
	lb.cfg.Probe = func(string) Probe { return new(fake) }
	lb.SetNodes(many)
	if n := len(lb.Nodes()); n > maxNodes {
		t.Errorf("%d nodes", n)
	}
	// Nobody listens at any of them.
	if c, err := lb.Dial(t.Context(), "tcp", "ignored:1"); err == nil {
		c.Close()
		t.Error("dialled a node that does not listen")
	}
}

// TestReadyz asks servers as nodes are.
func TestReadyz(t *testing.T) {
	var code atomic.Int32
	code.Store(200)
	hang := make(chan struct{})
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if code.Load() == 0 {
			select {
			case <-hang:
			case <-r.Context().Done():
			}
			return
		}
		if r.URL.Path != "/readyz" || r.Header.Get("Authorization") != "" {
			t.Errorf("asked for %s with %v", r.URL, r.Header)
		}
		w.WriteHeader(int(code.Load()))
	}))
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	defer s.Close()
	defer close(hang)
	p := newReadyz(s.Listener.Addr().String(), new(net.Dialer))
	defer p.Close()
	for status, want := range map[int32]bool{200: true, 401: true, 403: true, 500: false, 503: false, 429: false} {
		code.Store(status)
		if ok, err := p.Ask(t.Context()); ok != want || err != nil {
			t.Errorf("%d: %v, %v", status, ok, err)
		}
	}
	code.Store(0)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := p.Ask(ctx); err == nil {
		t.Error("a node that does not answer")
	}
}

// api is a node that has EndpointSlices.
type api struct {
	*httptest.Server
	mu      sync.Mutex
	slice   discoveryv1.EndpointSlice
	changed chan struct{}
	lists   int
}

func (a *api) set(nodes ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	name := "https"
	a.slice = discoveryv1.EndpointSlice{TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"}, AddressType: "IPv4"}
	a.slice.Name, a.slice.Namespace = "kubernetes", "default"
	for _, n := range nodes {
		host, port, _ := net.SplitHostPort(n)
		var p int32
		fmt.Sscan(port, &p)
		a.slice.Ports = []discoveryv1.EndpointPort{{Name: &name, Port: &p}}
		a.slice.Endpoints = append(a.slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{host}})
	}
	close(a.changed)
	a.changed = make(chan struct{})
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/readyz" {
		return
	}
	if r.URL.Path != "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices" || r.Header.Get("Authorization") != "Bearer secret" ||
		r.URL.Query().Get("labelSelector") != "kubernetes.io/service-name=kubernetes" {
		http.Error(w, r.URL.String(), http.StatusForbidden)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	a.mu.Lock()
	slice, changed := a.slice, a.changed
	if r.URL.Query().Get("watch") == "" {
		a.lists++
		a.mu.Unlock()
		json.NewEncoder(w).Encode(discoveryv1.EndpointSliceList{TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSliceList"}, Items: []discoveryv1.EndpointSlice{slice}})
		return
	}
	a.mu.Unlock()
	for { // what has changed since the list was read comes at once
		json.NewEncoder(w).Encode(map[string]any{"type": "MODIFIED", "object": slice})
		w.(http.Flusher).Flush()
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
		a.mu.Lock()
		slice, changed = a.slice, a.changed
		a.mu.Unlock()
	}
}

// TestMembers: the list is read by the kubeconfig's credential as soon as there is one, through the
// nodes that are known, followed, and kept for the next start, which knows only others.
func TestMembers(t *testing.T) {
	a := &api{changed: make(chan struct{})}
	a.Server = httptest.NewUnstartedServer(a)
	a.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	a.StartTLS()
	defer a.Close()
	self := a.Listener.Addr().String()
	_, port, _ := net.SplitHostPort(self)
	a.set(self)
	dir := t.TempDir()
	kubeconfig, file := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "nodes.json")

	start := func(nodes []string) (*Balancer, func()) {
		b := New(Config{Nodes: nodes, Every: 50 * time.Millisecond})
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must.OK(t, err)
		ctx, cancel := context.WithCancel(context.Background())
		m := &Members{Kubeconfig: kubeconfig, File: file, Balancer: b, Log: slog.New(slog.DiscardHandler)}
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := b.Run(ctx, l); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() { m.Run(ctx) })
		return b, func() { cancel(); wg.Wait() }
	}
	b, stop := start([]string{self, "127.0.0.1:1"})
	standins.Kubeconfig(t, dir, a.Certificate())
	standins.Await(t, "the list was not read", func() bool { return slices.Equal(b.Nodes(), []string{self}) })
	a.set(self, "127.0.0.2:"+port)
	want := []string{self, "127.0.0.2:" + port}
	standins.Await(t, "the list was not followed", func() bool { return slices.Equal(b.Nodes(), want) })
	a.set()
	a.set(self, "127.0.0.2:"+port, "127.0.0.3:"+port)
	want = append(want, "127.0.0.3:"+port)
	standins.Await(t, "the file was not written", func() bool { kept, err := ReadMembers(file); return err == nil && slices.Equal(kept, want) })
	stop()
	if a.mu.Lock(); a.lists != 1 {
		t.Errorf("the list was read %d times, not followed", a.lists)
	}
	a.mu.Unlock()
	left, err := filepath.Glob(file + ".*")
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}

	kept, err := ReadMembers(file)
	must.OK(t, err)
	a.set(self)
	b, stop = start(append(kept, "127.0.0.1:1"))
	standins.Await(t, "the list was not read by the nodes of the file", func() bool { return slices.Equal(b.Nodes(), []string{self}) })
	stop()
}

func TestReadMembers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "nodes.json")
	if nodes, err := ReadMembers(file); err != nil || nodes != nil {
		t.Errorf("no file: %v, %v", nodes, err)
	}
	for text, want := range map[string]string{
		`{"version":1,"nodes":["a:1"]}`: "",
		`{"version":2,"nodes":["a:1"]}`: "version 2",
		`{`:                             "unexpected end",
		`{"version":1,"nodes":["a"]}`:   "must be host:port",
		`{"version":1,"nodes":[""]}`:    "must be host:port",
		strings.Repeat(" ", maxFile+1):  file,
		`{"version":1,"nodes":["a:1"` + strings.Repeat(`,"a:1"`, maxNodes) + `]}`: "at most",
	} {
		must.OK(t, os.WriteFile(file, []byte(text), 0o600))
		_, err := ReadMembers(file)
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), file)) {
			t.Errorf("%.60s: %v, want %q", text, err, want)
		}
	}
}
