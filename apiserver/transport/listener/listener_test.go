package listener

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/apiserver/access/auth"
	"github.com/quorate/quorate/internal/must"
)

// serveConnections serves a handler on a bounded listener.
func serveConnections(t *testing.T, limit int, h http.Handler) (*Listener, *httptest.Server) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	l := New(s.Listener, limit)
	s.Listener, s.Config.ConnState, s.Config.ConnContext = l, l.state, connContext
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{GetConfigForClient: l.handshakes.begin}
	s.StartTLS()
	t.Cleanup(s.Close)
	return l, s
}

// byHeader takes the user and the groups from headers.
type byHeader struct{}

func (byHeader) Authenticate(r *http.Request) (*auth.User, error) {
	name := r.Header.Get("User")
	if name == "" {
		return nil, auth.ErrUnauthorized
	}
	return &auth.User{Name: name, Groups: r.Header["Group"]}, nil
}

// dialServer opens a connection of HTTP/1.1.
func dialServer(t *testing.T, s *httptest.Server) *tls.Conn {
	t.Helper()
	c, err := tls.Dial("tcp", s.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
	must.OK(t, err)
	t.Cleanup(func() { c.Close() })
	must.OK(t, c.SetDeadline(time.Now().Add(20*time.Second)))
	return c
}

// somewhere is a connection from an address, on which nothing happens.
type somewhere struct {
	net.Conn
	from netip.Addr
}

func (c somewhere) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(c.from, 1))
}
func (c somewhere) Close() error { return nil }

// TestWhoMakesRoom: which connection goes for a new one, or for one that becomes a
// user's. A step is "open C ADDRESS", "user C NAME", "idle C", "busy C" or "close C", and "-> C" says
// who goes.
func TestWhoMakesRoom(t *testing.T) {
	for _, x := range []struct {
		name  string
		limit int // half of it for the guests of one address, nine tenths for users
		steps string
	}{
		{"the oldest guest of an address that has its share", 4, `
			open a 10.0.0.1
			open b 10.0.0.1
			open c 10.0.0.1 -> a
			open d 10.0.0.1 -> b
			open e 10.0.0.2`},
		{"guests before users, the address with the most first", 4, `
			open u 10.0.0.1
			user u alice
			idle u
			open a 10.0.0.1
			open b 10.0.0.2
			open c 10.0.0.2
			open d 10.0.0.3 -> b
			open e 10.0.0.3 -> d
			open f 10.0.0.4 -> a`},
		{"a guest that has become a user is no guest", 4, `
			open a 10.0.0.1
			user a alice
			open b 10.0.0.1
			user b bob
			open c 10.0.0.1
			open d 10.0.0.1
			open e 10.0.0.1 -> c`},
		{"what has ended is not counted", 4, `
			open a 10.0.0.1
			open b 10.0.0.1
			close a
			close a
			open c 10.0.0.1
			open d 10.0.0.1 -> b`},
		{"an IPv6 host has a network", 4, `
			open a 2001:db8::1
			open b 2001:db8::2
			open c 2001:db8::ffff:3 -> a
			open d 2001:db8:0:1::1`},
		{"an IPv4 address has two forms", 4, `
			open a 10.0.0.1
			open b ::ffff:10.0.0.1
			open c 10.0.0.1 -> a`},
		{"users leave room: the longest idle one goes", 3, `
			open a 10.0.0.1
			user a alice
			idle a
			open b 10.0.0.1
			user b bob
			idle b
			busy a
			idle a
			open c 10.0.0.1
			user c carol -> b`},
		{"all users are at work: the newest of who has the most", 4, `
			open a 10.0.0.1
			user a alice
			open b 10.0.0.1
			user b mallory
			open c 10.0.0.1
			user c mallory
			open d 10.0.0.1
			user d bob -> c
			open e 10.0.0.1
			user e mallory -> e
			open f 10.0.0.1
			user f carol -> f`},
		{"the user who has more than a quarter, before whom is idle: idle ones first, then the newest", 8, `
			open a 10.0.0.1
			user a alice
			idle a
			open m1 10.0.0.2
			user m1 mallory
			open m2 10.0.0.2
			user m2 mallory
			open m3 10.0.0.2
			user m3 mallory
			open m4 10.0.0.2
			user m4 mallory
			idle m2
			open b 10.0.0.3
			user b bob
			open c 10.0.0.3
			user c carol
			open d 10.0.0.3
			user d dave -> m2
			open e 10.0.0.3
			user e eve -> m4
			open m5 10.0.0.2
			user m5 mallory -> m5
			open f 10.0.0.3
			user f frank -> m3
			open g 10.0.0.3
			user g grace -> a`},
		{"one that is said to be idle after its end", 3, `
			open a 10.0.0.1
			user a alice
			close a
			idle a
			open b 10.0.0.1
			user b bob
			open c 10.0.0.1
			user c bob
			open d 10.0.0.1
			user d bob -> d`},
		{"a bound of one", 1, `
			open a 10.0.0.1
			open b 10.0.0.2 -> a
			user b bob
			open c 10.0.0.2 -> c
			idle b
			open d 10.0.0.2 -> b`},
	} {
		t.Run(x.name, func(t *testing.T) {
			l := New(nil, x.limit)
			conns := map[string]*connection{}
			for step := range strings.Lines(strings.TrimSpace(x.steps)) {
				step = strings.TrimSpace(step)
				do, want, _ := strings.Cut(step, " -> ")
				words := strings.Fields(do)
				c := conns[words[1]]
				var victim *connection
				switch words[0] {
				case "open":
					c = l.connection(somewhere{from: netip.MustParseAddr(words[2])})
					conns[words[1]] = c
					victim = l.add(c)
				case "user":
					victim = l.known(c, words[2], nil)
				case "idle":
					l.moved(c, http.StateIdle)
				case "busy":
					l.moved(c, http.StateActive)
				case "close":
					c.Close()
				}
				if victim != conns[want] {
					t.Fatalf("%s: another one went", step)
				}
			}
			for _, c := range conns {
				c.Close()
			}
			if l.guests.count+l.users.count+l.idle.conns.Len()+len(l.guests.holders)+len(l.users.holders) != 0 {
				t.Errorf("all have ended, and there are %d guests, %d users, %d idle", l.guests.count, l.users.count, l.idle.conns.Len())
			}
		})
	}
}

// TestExpelConnections: when a certificate is refused from now on, what is open with it
// ends, and nothing else.
func TestExpelConnections(t *testing.T) {
	l := New(nil, 10)
	refused, kept := &x509.Certificate{}, &x509.Certificate{}
	conns := map[string]*connection{}
	for name, leaf := range map[string]*x509.Certificate{"refused": refused, "busy": refused, "kept": kept, "token": nil, "guest": nil} {
		c := l.connection(somewhere{from: netip.MustParseAddr("10.0.0.1")})
		conns[name] = c
		l.add(c)
		if name != "guest" {
			l.known(c, "quorate-admin", leaf)
		}
	}
	l.moved(conns["refused"], http.StateIdle)
	l.Expel(func(leaf *x509.Certificate) error {
		if leaf == refused {
			return errors.New("removed")
		}
		return nil
	})
	for name, open := range map[string]bool{"refused": false, "busy": false, "kept": true, "token": true, "guest": true} {
		l.mu.Lock()
		if counted := conns[name].holder != nil; counted != open {
			t.Errorf("%s: open is %v", name, counted)
		}
		l.mu.Unlock()
	}
}

// TestExpelKeys: the connections go on which somebody had a token of a key that has ended,
// guests among them: they may be about to be known.
func TestExpelKeys(t *testing.T) {
	l := New(nil, 100)
	conns := map[string]*connection{}
	many := make([]string, maxConnectionKeys+5)
	for i := range many {
		many[i] = fmt.Sprint("fine", i)
	}
	for name, keys := range map[string][]string{
		"none": nil, "fine": {"fine"}, "ended": {"ended"}, "both": {"fine", "ended", "fine"}, "many": many, "as many as are known": many[:maxConnectionKeys], "guest": {"ended"},
	} {
		c := l.connection(somewhere{from: netip.MustParseAddr("10.0.0.1")})
		conns[name] = c
		l.add(c)
		if name != "guest" {
			l.known(c, "robot", nil)
		}
		ctx := context.WithValue(t.Context(), connectionKey{}, c)
		for i, key := range keys {
			if first := NoteKey(ctx, key); first != !slices.Contains(keys[:i], key) {
				t.Errorf("%s: %s is new: %v", name, key, first)
			}
			if NoteKey(ctx, key) {
				t.Errorf("%s: %s is new again", name, key)
			}
		}
	}
	if NoteKey(t.Context(), "fine") {
		t.Error("a request without a connection")
	}
	l.ExpelKeys(func(key string) bool { return key != "ended" })
	for name, c := range conns {
		want := name == "none" || name == "fine" || name == "as many as are known"
		l.mu.Lock()
		if open := c.holder != nil; open != want {
			t.Errorf("%s: open is %v", name, open)
		}
		l.mu.Unlock()
	}
}

// TestConnectionLimit: a silent connection goes for a new one, one that was
// authenticated does not, on HTTP/1.1 and HTTP/2.
func TestConnectionLimit(t *testing.T) {
	door := greeter{Authenticator: byHeader{}}
	l, s := serveConnections(t, 3, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = door.Authenticate(r)
		_, _ = io.WriteString(w, "here")
	}))
	ask := func(c *http.Client) error {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, nil)
		if err != nil {
			return err
		}
		r.Header.Set("User", "alice")
		resp, err := c.Do(r)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	}
	for _, http2 := range []bool{false, true} {
		dials := 0
		transport := &http.Transport{
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: http2,
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				dials++
				return new(net.Dialer).DialContext(ctx, network, address)
			},
		}
		user := &http.Client{Transport: transport, Timeout: 20 * time.Second}
		must.OK(t, ask(user))
		silent := dialServer(t, s)
		for range 5 {
			next := dialServer(t, s)
			if _, err := silent.Read(make([]byte, 1)); err != io.EOF && !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the older silent one: %v, want its end", err)
			}
			if err := ask(user); err != nil || dials != 1 {
				t.Errorf("the user: %v, %d connections", err, dials)
			}
			silent = next
		}
		silent.Close()
		transport.CloseIdleConnections()
	}
	must.Await(t, 10*time.Second, "no connection is counted", func() string {
		l.mu.Lock()
		defer l.mu.Unlock()
		if open, idle := l.guests.count+l.users.count, l.idle.count; open != 0 || idle != 0 {
			return fmt.Sprintf("%d, and %d idle", open, idle)
		}
		return ""
	})
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
		must.OK(t, err)
		n, err := io.Copy(io.Discard, r.Body)
		if n == 0 || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: %d bytes, then %v; want an unexpected end", path, n, err)
		}
	}
}

// TestConnectionLimitOfDescriptors: what is asked for, but never all descriptors.
func TestConnectionLimitOfDescriptors(t *testing.T) {
	got := []int{Limit(1), Limit(1 << 40)}
	if got[0] != 1 || got[1] < 1 || got[1] >= 1<<40 || !slices.IsSorted(got) {
		t.Error(got)
	}
}

// TestHandshakesTakeTurns: a crowd at one address does not keep another address from its
// turn, nor a newcomer at its own, and who has gone has none.
func TestHandshakesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(nil, 100)
		l.handshakes.free = 1
		var mu sync.Mutex
		var order []string
		conns := map[string]*connection{}
		come := func(name, address string) {
			c := l.connection(somewhere{from: netip.MustParseAddr(address)})
			conns[name] = c
			go func() {
				_, err := l.handshakes.begin(&tls.ClientHelloInfo{Conn: c})
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					name += " refused"
				}
				order = append(order, name)
			}()
			synctest.Wait()
		}
		for _, name := range []string{"a1", "a2", "a3", "a4"} {
			come(name, "10.0.0.1")
		}
		come("b1", "10.0.0.2")
		come("b2", "10.0.0.2")
		come("c1", "10.0.0.3")
		conns["c1"].Close()
		synctest.Wait()
		answer := func(name string) {
			l.handshakes.done(conns[name])
			synctest.Wait()
		}
		answer("a1")
		answer("a4")
		conns["b2"].Close() // in the middle of its handshake
		synctest.Wait()
		answer("a3")
		time.Sleep(readHeaderTimeout + time.Second)
		answer("b1")
		conns["a2"].Close()
		come("d1", "10.0.0.4")
		answer("d1")
		want := "a1 c1 refused a4 b2 a3 b1 a2 refused d1"
		if got := strings.Join(order, " "); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if h := l.handshakes; h.free != 1 || len(h.lines)+h.turns.Len() != 0 {
			t.Errorf("all have ended, and %d may go, %d wait", h.free, len(h.lines))
		}
	})
}
