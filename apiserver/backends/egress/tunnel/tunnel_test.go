package tunnel

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/yamux"
	"github.com/quorate/quorate/apiserver/backends/egress"
	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/internal/standins"
)

var quiet = slog.New(slog.DiscardHandler)

// errDirect is what dials say that no tunnel has taken.
var errDirect = errors.New("dialled directly")

// api is a node with a Server.
type api struct {
	*Server
	http       *httptest.Server
	kubeconfig string
	forbidden  atomic.Bool
	unanswered atomic.Bool  // nobody knows whether a tunnel may stay
	waiting    atomic.Int64 // those who ask then
	open       atomic.Int64 // those that were opened and have not ended, as Config.Opened is told
	log        lines
}

// lines are what was logged.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) with(parts ...string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(line, p) }) {
			n++
		}
	}
	return n
}

func newAPI(t *testing.T) *api {
	t.Helper()
	a := &api{}
	a.Server = NewServer(Config{
		Allowed: func(r *http.Request) bool {
			if a.unanswered.Load() {
				a.waiting.Add(1)
				<-r.Context().Done()
				return false
			}
			_, bounded := r.Context().Deadline()
			return bounded && r.Context().Err() == nil && !a.forbidden.Load()
		},
		Opened: func(*http.Request) func() {
			a.open.Add(1)
			return func() { a.open.Add(-1) }
		},
		Recheck: 5 * time.Millisecond,
		Direct:  func(context.Context, string, string) (net.Conn, error) { return nil, errDirect },
		Log:     slog.New(slog.NewTextHandler(&a.log, nil)),
	})
	a.http = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" || a.forbidden.Load() {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		a.Server.ServeHTTP(w, r)
	}))
	a.http.EnableHTTP2 = true
	a.http.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	a.http.StartTLS()
	t.Cleanup(a.http.Close)
	t.Cleanup(a.Server.Close)
	a.kubeconfig = standins.Kubeconfig(t, t.TempDir(), a.http.Certificate())
	return a
}

// run runs an agent that offers the kubelet of w1 to one node.
func (a *api) run(t *testing.T, set func(*Agent)) (stop func()) {
	t.Helper()
	agent := &Agent{Node: "w1", Name: "w1", Kubeconfig: a.kubeconfig, Servers: func() []string { return []string{a.http.Listener.Addr().String()} }, Log: quiet}
	set(agent)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { agent.Run(ctx) })
	stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(stop)
	return stop
}

func (a *api) has(table map[string]*session, name string) *session {
	a.mu.Lock()
	defer a.mu.Unlock()
	return table[name]
}

// TestKubelet: the kubelet of the node that is named is dialled through the tunnel of that node, and
// nothing else; a tunnel that ends is opened again, and its connections end with it.
func TestKubelet(t *testing.T) {
	a := newAPI(t)
	at := standins.Echo(t)
	port := netip.MustParseAddrPort(at).Port()
	a.run(t, func(g *Agent) { g.KubeletPort = port })
	standins.Await(t, "no tunnel", func() bool { return a.has(a.nodes, "w1") != nil })
	named := egress.WithNode(t.Context(), "w1")
	c, err := a.Dial(named, "tcp", at)
	must.OK(t, err)
	defer c.Close()
	text := strings.Repeat("0123456789abcdef", 128<<10) // 2 MiB, larger than the window
	go func() {
		io.WriteString(c, text)
		c.Close() // what was sent arrives all the same
	}()
	if c.RemoteAddr().String() != at {
		t.Errorf("the connection says that it leads to %v", c.RemoteAddr())
	}
	if got, err := io.ReadAll(io.LimitReader(c, int64(len(text)))); err != nil || string(got) != text {
		t.Errorf("%d of %d bytes came back, %v", len(got), len(text), err)
	}
	for address, ctx := range map[string]context.Context{at: t.Context(), "127.0.0.1:1": egress.WithNode(t.Context(), "w2")} {
		if _, err := a.Dial(ctx, "tcp", address); !errors.Is(err, errDirect) {
			t.Errorf("%s: %v", address, err)
		}
	}
	// What the agent does not offer: another port, other hosts, where clouds hand out credentials, names.
	var refused *refusal
	for _, address := range []string{"127.0.0.1:22", "169.254.169.254:80", fmt.Sprintf("192.0.2.1:%d", port), "[fe80::1]:80", "metadata.internal:80", "localhost:" + fmt.Sprint(port), "", strings.Repeat("x", maxText)} {
		if _, err := a.Dial(named, "tcp", address); !errors.As(err, &refused) {
			t.Errorf("%.30s: %v", address, err)
		}
	}
	if _, err := a.Dial(named, "tcp", strings.Repeat("x", maxText+1)); err == nil {
		t.Error("an address without a bound")
	}

	held, err := a.Dial(named, "tcp", at)
	must.OK(t, err)
	before := a.has(a.nodes, "w1")
	before.Close()
	if _, err := held.Read(make([]byte, 1)); err == nil {
		t.Error("a connection has outlived its tunnel")
	}
	standins.Await(t, "the tunnel was not opened again", func() bool { x := a.has(a.nodes, "w1"); return x != nil && x != before })
	if n := len(a.has(a.nodes, "w1").streams); n != 0 {
		t.Errorf("%d connections are counted", n)
	}
	standins.Await(t, "the end of a tunnel was not told, or that of an open one was", func() bool { return a.open.Load() == 1 })
	a.Close()
	if n := a.open.Load(); n != 0 {
		t.Errorf("%d tunnels are open behind the end of their server", n)
	}
}

// TestSameName: of two agents of one name the second takes the tunnel; the node says which, and the first
// knows why and waits for longer than if it had been cut.
func TestSameName(t *testing.T) {
	a := newAPI(t)
	var first lines
	a.run(t, func(g *Agent) { g.Log = slog.New(slog.NewTextHandler(&first, nil)) })
	standins.Await(t, "no tunnel", func() bool { return a.has(a.nodes, "w1") != nil })
	before := a.has(a.nodes, "w1")
	a.run(t, func(*Agent) {})
	standins.Await(t, "the second has no tunnel", func() bool { x := a.has(a.nodes, "w1"); return x != nil && x != before })
	second := a.has(a.nodes, "w1")
	standins.Await(t, "the node does not say why a tunnel has ended", func() bool {
		return a.log.with("level=WARN", "a tunnel has ended", `why="`+anotherAgent+`"`, "from="+before.from.String(), "by="+second.from.String()) == 1
	})
	standins.Await(t, "the agent does not know why its tunnel has ended", func() bool {
		return first.with("level=WARN", "a tunnel is not open", anotherAgent, "127.0.0.1") == 1
	})
	if a.has(a.nodes, "w1") != second {
		t.Error("the first has come back at once")
	}
}

// TestSameAgent: an agent that opens its tunnel again before the node knows that the one before was cut is
// no other one.
func TestSameAgent(t *testing.T) {
	a := newAPI(t)
	g := &Agent{Kubeconfig: a.kubeconfig, Log: quiet, id: "x"}
	for range 2 {
		c, err := g.open(t.Context(), a.http.Listener.Addr().String(), nodesPath+"w1")
		must.OK(t, err)
		t.Cleanup(func() { c.Close() })
	}
	standins.Await(t, "the node does not say why a tunnel has ended", func() bool {
		return a.log.with("level=INFO", "a tunnel has ended", `why="its agent has opened it again"`) == 1
	})
}

// TestPause: the pause grows while tunnels are refused or live shortly, at once for one that another agent
// has taken, and is short again for one that has lived.
func TestPause(t *testing.T) {
	cut, taken := io.EOF, &replaced{"by another"}
	for name, x := range map[string]struct {
		before time.Duration
		lived  time.Duration
		err    error
		want   time.Duration
	}{
		"the first was cut":            {0, time.Hour, cut, again},
		"the first was refused":        {0, 0, cut, again},
		"refused again":                {again, 0, cut, 2 * again},
		"lived shortly":                {4 * time.Second, time.Second, cut, 8 * time.Second},
		"refused for long":             {againMax, 0, cut, againMax},
		"cut after a long refusal":     {againMax, 2 * againMax, cut, again},
		"taken by another":             {0, time.Hour, taken, againTaken},
		"taken again":                  {againTaken, againMax / 2, taken, 2 * againTaken},
		"taken again and again":        {againMax, 2 * againMax, taken, againMax},
		"cut after it was taken":       {againMax, 2 * againMax, cut, again},
		"refused, and taken when open": {again, 0, taken, againTaken},
	} {
		if got := pause(x.before, x.lived, x.err); got != x.want {
			t.Errorf("%s: %v, want %v", name, got, x.want)
		}
	}
}

// TestRefusal: an agent whose tunnel is refused says what the node says of it, as people read it.
func TestRefusal(t *testing.T) {
	for answer, want := range map[string]string{
		`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"nodes \"w1\" is forbidden","reason":"Forbidden","details":{"name":"` + strings.Repeat("x", maxText) + `"},"code":403}`: `the node answered 403 Forbidden: nodes "w1" is forbidden`,
		"no tunnel\n":      "the node answered 403 Forbidden: no tunnel",
		`{"kind":"Other"}`: `the node answered 403 Forbidden: {"kind":"Other"}`,
	} {
		s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			io.WriteString(w, answer)
		}))
		g := &Agent{Kubeconfig: standins.Kubeconfig(t, t.TempDir(), s.Certificate()), Log: quiet}
		if _, err := g.open(t.Context(), s.Listener.Addr().String(), nodesPath+"w1"); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		s.Close()
	}
	var endless standins.Endless
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		io.Copy(w, &endless)
	}))
	defer s.Close()
	g := &Agent{Kubeconfig: standins.Kubeconfig(t, t.TempDir(), s.Certificate()), Log: quiet}
	if _, err := g.open(t.Context(), s.Listener.Addr().String(), nodesPath+"w1"); err == nil || endless.Taken() > 32<<20 {
		t.Errorf("an answer without an end: %d bytes were taken, %.200v", endless.Taken(), err)
	}
}

// TestNetworks: addresses in networks that an agent offers are dialled through it, others directly.
// The agent dials none that is link-local or its own, whatever its networks are.
func TestNetworks(t *testing.T) {
	g := &Agent{Node: "w1", KubeletPort: 10250, Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}}
	own := []net.Addr{&net.IPNet{IP: net.IPv4(192, 0, 2, 7), Mask: net.CIDRMask(24, 32)}, &net.IPNet{IP: net.IPv4(127, 0, 0, 1), Mask: net.CIDRMask(8, 32)}, &net.IPNet{IP: net.ParseIP("fe80::1"), Mask: net.CIDRMask(64, 128)}}
	for address, want := range map[string]bool{
		"10.1.2.3:443": true, "192.0.2.7:10250": true, "127.0.0.1:10250": true, "127.0.0.1:22": false, "127.0.0.2:10250": false,
		"169.254.169.254:80": false, "[fe80::1]:10250": false, "[::1]:80": false, "0.0.0.0:80": false, "224.0.0.1:80": false, "[2001:db8::1]:80": true,
		"255.255.255.255:80": false,
	} {
		if got := g.offers(netip.MustParseAddrPort(address), own); got != want {
			t.Errorf("%s: %v", address, got)
		}
	}
	g.Networks = nil
	if g.offers(netip.MustParseAddrPort("10.1.2.3:443"), own) {
		t.Error("without networks")
	}

	a := newAPI(t)
	stop := a.run(t, func(g *Agent) { g.Node, g.Networks = "", []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")} })
	standins.Await(t, "no tunnel", func() bool { return a.has(a.offers, "w1") != nil })
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	// Nobody answers there. That the agent was asked is enough.
	if _, err := a.Dial(ctx, "tcp", "192.0.2.1:443"); errors.Is(err, errDirect) || err == nil {
		t.Errorf("an address that an agent offers: %v", err)
	}
	// A caller that refuses addresses is asked about those that no tunnel leads to.
	refusedByCaller := errors.New("refused by the caller")
	if _, err := a.Or(func(context.Context, string, string) (net.Conn, error) { return nil, refusedByCaller })(t.Context(), "tcp", "127.0.0.1:443"); !errors.Is(err, refusedByCaller) {
		t.Errorf("an address that the caller refuses: %v", err)
	}
	for _, address := range []string{"198.51.100.1:443", "hook.example:443"} {
		if _, err := a.Dial(t.Context(), "tcp", address); !errors.Is(err, errDirect) {
			t.Errorf("%s: %v", address, err)
		}
	}
	stop()
	standins.Await(t, "a tunnel whose agent has ended stays", func() bool { return a.has(a.offers, "w1") == nil })
	if _, err := a.Dial(t.Context(), "tcp", "192.0.2.1:443"); !errors.Is(err, errDirect) {
		t.Errorf("without an agent: %v", err)
	}
}

// upgrade opens a tunnel by hand.
func (a *api) upgrade(t *testing.T, path string) (net.Conn, *http.Response) {
	t.Helper()
	c := a.http.Client().Transport.(*http.Transport).Clone()
	c.TLSClientConfig.NextProtos = []string{"http/1.1"}
	c.ForceAttemptHTTP2 = false
	conn, err := net.Dial("tcp", a.http.Listener.Addr().String())
	must.OK(t, err)
	c.DialContext = func(context.Context, string, string) (net.Conn, error) { return conn, nil }
	r, err := http.NewRequest(http.MethodGet, a.http.URL+path, nil)
	must.OK(t, err)
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", protocol)
	r.Header.Set("Authorization", "Bearer secret")
	w, err := c.RoundTrip(r)
	must.OK(t, err)
	t.Cleanup(func() { w.Body.Close(); conn.Close() })
	if w.StatusCode != http.StatusSwitchingProtocols {
		return nil, w
	}
	return &both{conn, w.Body.(io.ReadWriteCloser)}, w
}

// both speaks TLS, and has the addresses of what is below.
type both struct {
	net.Conn
	tls io.ReadWriteCloser
}

func (b *both) Read(p []byte) (int, error)  { return b.tls.Read(p) }
func (b *both) Write(p []byte) (int, error) { return b.tls.Write(p) }
func (b *both) Close() error                { return b.tls.Close() }

// TestHostileAgents: an agent that answers nothing, nonsense or for ever, opens streams or ends in the
// middle costs a dial its time, and the node nothing.
func TestHostileAgents(t *testing.T) {
	dial := func(a *api, within time.Duration) error {
		ctx, cancel := context.WithTimeout(egress.WithNode(context.Background(), "w1"), within)
		defer cancel()
		c, err := a.Dial(ctx, "tcp", "127.0.0.1:10250")
		if err == nil {
			c.Close()
		}
		return err
	}
	for name, x := range map[string]struct {
		answer string
		want   string
	}{
		"silence":        {want: context.DeadlineExceeded.Error()},
		"a long refusal": {answer: "\x01\xff\xff" + strings.Repeat("x", 70_000), want: "at most"},
		"half a refusal": {answer: "\x01\x00\x10half", want: context.DeadlineExceeded.Error()},
		"a refusal":      {answer: "\x01\x00\x02no", want: `the agent: "no"`},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t)
			c, _ := a.upgrade(t, nodesPath+"w1")
			session, err := yamux.Server(c, config())
			must.OK(t, err)
			defer session.Close()
			go func() {
				for {
					s, err := session.AcceptStream()
					if err != nil {
						return
					}
					go io.WriteString(s, x.answer)
				}
			}()
			standins.Await(t, "no tunnel", func() bool { return a.has(a.nodes, "w1") != nil })
			// More than may be opened at once, if a failed one were not given back.
			for range maxStreams/64 + 2 {
				within := 10 * time.Second
				if x.want == context.DeadlineExceeded.Error() {
					within = 100 * time.Millisecond
				}
				if err := dial(a, within); err == nil || !strings.Contains(err.Error(), x.want) {
					t.Fatalf("%v, want %q", err, x.want)
				}
			}
			if x := a.has(a.nodes, "w1"); x != nil && (len(x.streams) != 0 || len(x.opening) != 0) {
				t.Errorf("%d and %d are counted", len(x.streams), len(x.opening))
			}
		})
	}
	t.Run("garbage", func(t *testing.T) {
		a := newAPI(t)
		c, _ := a.upgrade(t, nodesPath+"w1")
		io.WriteString(c, strings.Repeat("garbage ", 100))
		standins.Await(t, "a tunnel with garbage stays", func() bool { return a.has(a.nodes, "w1") == nil })
		if err := dial(a, time.Second); !errors.Is(err, errDirect) {
			t.Error(err)
		}
	})
	// Each is answered by a goroutine of its own, and those wait for an agent that does not read the answers.
	t.Run("pings without an end", func(t *testing.T) {
		a := newAPI(t)
		c, _ := a.upgrade(t, nodesPath+"w1")
		standins.Await(t, "no tunnel", func() bool { return a.has(a.nodes, "w1") != nil })
		before := runtime.NumGoroutine()
		ping := strings.Repeat("\x00\x02\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00", 4096)
		for range 100 {
			if _, err := io.WriteString(c, ping); err != nil {
				break // as it should be
			}
			if n := runtime.NumGoroutine() - before; n > 2*maxPings {
				t.Fatalf("%d goroutines answer pings", n)
			}
		}
		standins.Await(t, "the tunnel stays", func() bool { return a.has(a.nodes, "w1") == nil })
	})
	t.Run("streams of its own", func(t *testing.T) {
		a := newAPI(t)
		session := a.session(t)
		if _, err := session.OpenStream(); err != nil && !session.IsClosed() {
			t.Fatal(err)
		}
		standins.Await(t, "an agent may open streams", func() bool { return a.has(a.nodes, "w1") == nil })
	})
	t.Run("a user who may not have it any more", func(t *testing.T) {
		a := newAPI(t)
		c, _ := a.upgrade(t, nodesPath+"w1")
		standins.Await(t, "no tunnel", func() bool { return a.has(a.nodes, "w1") != nil })
		a.forbidden.Store(true)
		if _, err := io.Copy(io.Discard, c); err != nil {
			t.Error(err)
		}
	})
	t.Run("another takes its place", func(t *testing.T) {
		a := newAPI(t)
		first, _ := a.upgrade(t, nodesPath+"w1")
		standins.Await(t, "no tunnel", func() bool { return a.has(a.nodes, "w1") != nil })
		a.upgrade(t, nodesPath+"w1")
		first.SetReadDeadline(time.Now().Add(5 * time.Second))
		if _, err := io.Copy(io.Discard, first); err != nil {
			t.Errorf("the first one goes on: %v", err)
		}
	})
	t.Run("the end", func(t *testing.T) {
		a := newAPI(t)
		c, _ := a.upgrade(t, nodesPath+"w1")
		standins.Await(t, "no tunnel", func() bool { return a.has(a.nodes, "w1") != nil })
		a.unanswered.Store(true)
		standins.Await(t, "nobody asks whether the tunnel may stay", func() bool { return a.waiting.Load() > 0 })
		began := time.Now()
		a.Server.Close()
		//wall: the question that nobody needs ends after askTime
		if took := time.Since(began); took > askTime/2 {
			t.Errorf("the end has waited %v for an answer that nobody needs", took)
		}
		if _, err := io.Copy(io.Discard, c); err != nil {
			t.Error(err)
		}
		if _, w := a.upgrade(t, nodesPath+"w1"); w.StatusCode != http.StatusServiceUnavailable {
			t.Error(w.Status)
		}
	})
}

// TestRequests: what is no tunnel is refused before anything is upgraded.
func TestRequests(t *testing.T) {
	a := newAPI(t)
	for path, code := range map[string]int{
		nodesPath: 400, nodesPath + "a/b": 400, nodesPath + strings.Repeat("x", 254): 400, Path: 400, networksPath: 400,
		networksPath + "?agent=a": 400, networksPath + "?agent=a&network=nonsense": 400,
		networksPath + "?agent=a" + strings.Repeat("&network=10.0.0.0/8", maxNetworks+1): 400,
		networksPath + "?agent=a&network=10.0.0.0/8":                                     101, nodesPath + "w1": 101,
	} {
		if _, w := a.upgrade(t, path); w.StatusCode != code {
			t.Errorf("%.60s: %s, want %d", path, w.Status, code)
		}
	}
	r, err := http.NewRequest(http.MethodGet, a.http.URL+nodesPath+"w1", nil)
	must.OK(t, err)
	r.Header.Set("Authorization", "Bearer secret")
	w, err := a.http.Client().Do(r)
	must.OK(t, err)
	w.Body.Close()
	if w.StatusCode != http.StatusUpgradeRequired || w.ProtoMajor != 2 {
		t.Errorf("over HTTP/2: %s %s", w.Proto, w.Status)
	}
	for user, path := range map[string]string{"system:node:w1": nodesPath + "w1"} {
		for other, want := range map[string]bool{path: true, nodesPath + "w2": false, path + "/": false, networksPath: false, nodesPath: false} {
			if OwnNode(user, other) != want {
				t.Errorf("%s of %s: %v", other, user, !want)
			}
		}
	}
	if OwnNode("system:node:", nodesPath) || OwnNode("w1", nodesPath+"w1") {
		t.Error("a user that is no node")
	}
}

// TestText: what either side reads is bounded.
func TestText(t *testing.T) {
	for in, want := range map[string]string{"\x00\x02hi": "hi", "\x00\x00": ""} {
		if got, err := readText(bufio.NewReader(strings.NewReader(in))); got != want || err != nil {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "\x00", "\x00\x05hi", "\xff\xff"} {
		if got, err := readText(strings.NewReader(in)); err == nil {
			t.Errorf("%q: %q", in, got)
		}
	}
}

// TestGuarded: pings are counted wherever the reads cut the frames, and what looks like one in data, or is
// an answer, is none.
func TestGuarded(t *testing.T) {
	frame := func(kind, flags byte, length uint32, data string) string {
		return string(binary.BigEndian.AppendUint32([]byte{0, kind, 0, flags, 0, 0, 0, 1}, length)) + data
	}
	ping, answer := frame(2, 1, 7, ""), frame(2, 2, 7, "")
	noise := frame(0, 0, uint32(100*len(ping)), strings.Repeat(ping, 100)) + frame(1, 0, 1<<20, "") + strings.Repeat(answer, 100)
	for _, cut := range []int{1, 5, 12, 13, 1 << 20} {
		in := noise + strings.Repeat(ping+noise, maxPings)
		for _, more := range []string{"", ping} {
			g, all := &guarded{}, in+more
			ok := true
			for ok && all != "" {
				n := min(cut, len(all))
				ok = g.pass([]byte(all[:n]))
				all = all[n:]
			}
			if ok != (more == "") {
				t.Errorf("in pieces of %d, with %d pings more: %t", cut, len(more)/len(ping), ok)
			}
			g.since = g.since.Add(-2 * writeTime)
			if ok && !g.pass([]byte(ping)) {
				t.Error("pings of earlier are counted")
			}
		}
	}
}

// TestAgentWord: what is kept of a header with a tunnel is bounded.
func TestAgentWord(t *testing.T) {
	for _, n := range []int{0, 26, maxAgentWord, maxAgentWord + 1, 100_000} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set(agentHeader, strings.Repeat("x", n))
		want := n
		if n > maxAgentWord {
			want = 0
		}
		if got := len(agentOf(r)); got != want {
			t.Errorf("of %d bytes %d are kept, want %d", n, got, want)
		}
	}
}

// session is the agent's side of a tunnel to the kubelet of w1, without an agent.
func (a *api) session(t *testing.T) *yamux.Session {
	t.Helper()
	c, _ := a.upgrade(t, nodesPath+"w1")
	session, err := yamux.Server(c, config())
	must.OK(t, err)
	t.Cleanup(func() { _ = session.Close() })
	standins.Await(t, "no tunnel", func() bool { return a.has(a.nodes, "w1") != nil })
	return session
}
