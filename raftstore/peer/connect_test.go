package peer

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
)

func TestNodeIDOf(t *testing.T) {
	for _, c := range []struct {
		uris []string
		want proto.NodeID // "" means refused
	}{
		{[]string{"quorate://peer/abc-1"}, "abc-1"},
		{[]string{"https://example.com/x", "quorate://peer/abc"}, "abc"},
		{nil, ""},
		{[]string{"https://example.com/x"}, ""},
		{[]string{"quorate://admin/abc"}, ""},
		{[]string{"quorate://peer/"}, ""},
		{[]string{"quorate://peer"}, ""},
		{[]string{"quorate://peer/a/b"}, ""},
		{[]string{"quorate://peer/a?x=1"}, ""},
		{[]string{"quorate://peer/a#f"}, ""},
		{[]string{"quorate://u@peer/a"}, ""},
		{[]string{"quorate://peer:1/a"}, ""},
		{[]string{"quorate://peer/a%20b"}, ""},
		{[]string{"quorate://peer/a", "quorate://peer/b"}, ""},
		{[]string{"quorate://peer/a", "quorate://admin/a"}, ""},
		{[]string{"quorate://peer/" + strings.Repeat("x", 129)}, ""},
	} {
		cert := &x509.Certificate{}
		for _, s := range c.uris {
			u, err := url.Parse(s)
			must.OK(t, err)
			cert.URIs = append(cert.URIs, u)
		}
		got, err := nodeIDOf(cert)
		if got != c.want || (err == nil) != (c.want != "") || err != nil && !errors.Is(err, ErrNotPeer) {
			t.Errorf("%q: %q, %v; want %q", c.uris, got, err, c.want)
		}
	}
}

// TestWhoMayConnect dials a good host with spoiled credentials, and with good
// ones a host whose credentials are spoiled: both ends must notice, on both
// protocols.
func TestWhoMayConnect(t *testing.T) {
	good, other := newAuthority(t), newAuthority(t)
	uri := func(s string) func(*x509.Certificate) {
		return func(c *x509.Certificate) {
			u, err := url.Parse(s)
			must.OK(t, err)
			c.URIs = []*url.URL{u}
		}
	}
	for name, c := range map[string]struct {
		leaf *tls.Certificate
		ok   bool
	}{
		"a peer":             {good.issue("x", nil), true},
		"another CA":         {other.issue("x", nil), false},
		"another role":       {good.issue("x", uri("quorate://client/x")), false},
		"no URI":             {good.issue("x", func(c *x509.Certificate) { c.URIs = nil }), false},
		"another node":       {good.issue("y", nil), false},
		"expired":            {good.issue("x", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Second) }), false},
		"not yet valid":      {good.issue("x", func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Hour) }), false},
		"for servers only":   {good.issue("x", func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[1:] }), false},
		"for clients only":   {good.issue("x", func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[:1] }), false},
		"no certificate":     {&tls.Certificate{}, false},
		"no certificate yet": {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			x, _ := startHost(t, good, "x", func(cfg *Config) { cfg.Credentials = newWallet(c.leaf, good.pool()) })
			b, e := startHost(t, good, "b", nil)
			outward := accepts(t, x, "b", b)
			inward := accepts(t, b, "x", x)
			both := [2]bool{outward, inward}
			want := [2]bool{c.ok, c.ok}
			switch name {
			case "for servers only":
				want[1] = true // as a server it is good
			case "for clients only":
				want[0] = true
			}
			if both != want {
				t.Errorf("dialling out and in succeeded: %v, want %v", both, want)
			}
			if id, _ := e.caller.Load().(proto.NodeID); want[0] && id != "x" {
				t.Errorf("the handler saw caller %q", id)
			}
		})
	}
}

// accepts reports whether from can make a call and a Raft stream to the node
// id, which must agree.
func accepts(t *testing.T, from *Host, id proto.NodeID, at *Host) bool {
	t.Helper()
	_, err := peerOf(t, from, id, at.Addr()).LeaderLost(inTime(t), &proto.LeaderLostRequest{Term: 3})
	call := err == nil
	if err != nil && status.Code(err) != codes.Unavailable && status.Code(err) != codes.PermissionDenied {
		t.Errorf("call: %v", err)
	}
	stream := streams(from, id, at)
	// A stream says who sends only in its messages: TestSenderIsChecked.
	if call != stream && status.Code(err) != codes.PermissionDenied {
		t.Errorf("a call gives %v, a Raft stream succeeds: %v", err, stream)
	}
	return call
}

// streams reports whether a Raft stream to the node id carries a byte.
func streams(from *Host, id proto.NodeID, at *Host) bool {
	l := at.Layer()
	defer l.Close()
	got := make(chan bool, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			got <- false
			return
		}
		defer c.Close()
		var b [1]byte
		_, err = io.ReadFull(c, b[:])
		got <- err == nil && b[0] == '!'
	}()
	c, err := from.Layer().DialNode(id, at.Addr(), 5*time.Second)
	if err != nil {
		return false
	}
	defer c.Close()
	if _, err := c.Write([]byte("!")); err != nil {
		return false
	}
	// Either the other end takes the byte, or it closes the connection.
	closed := make(chan struct{})
	go func() {
		_, _ = c.Read(make([]byte, 1))
		close(closed)
	}()
	select {
	case ok := <-got:
		return ok
	case <-closed:
		select {
		case ok := <-got:
			return ok
		default:
			return false
		}
	}
}

func TestWrongNodeIsNamed(t *testing.T) {
	a := newAuthority(t)
	from, _ := startHost(t, a, "a", nil)
	at, _ := startHost(t, a, "b", nil)
	if _, err := from.Layer().Dial(nodeAddress("c", at.Addr()), 5*time.Second); !errors.Is(err, ErrWrongNode) {
		t.Errorf("dial c at b's address: %v, want %v", err, ErrWrongNode)
	}
	if _, err := from.Layer().Dial(nodeAddress("", at.Addr()), 5*time.Second); err != nil {
		t.Errorf("dial any peer: %v", err)
	}
}

// TestMetadata: what a call says about its caller must agree with the
// certificate, and the cluster must be this one.
func TestMetadata(t *testing.T) {
	a := newAuthority(t)
	ours := proto.ClusterID("ours")
	at, _ := startHost(t, a, "b", func(c *Config) { c.Cluster = func() proto.ClusterID { return ours } })
	fresh, _ := startHost(t, a, "f", nil)
	for _, c := range []struct {
		name    string
		cluster proto.ClusterID
		lie     proto.NodeID
		term    codes.Code // of Peer.CurrentTerm
		hello   codes.Code
		change  codes.Code
		stream  bool
	}{
		{name: "same cluster", cluster: "ours", stream: true},
		{name: "no cluster yet", term: codes.FailedPrecondition, change: codes.FailedPrecondition, stream: true},
		{name: "another cluster", cluster: "theirs", term: codes.FailedPrecondition, change: codes.FailedPrecondition},
		{name: "another node's name", cluster: "ours", lie: "c", term: codes.PermissionDenied, hello: codes.PermissionDenied, change: codes.PermissionDenied, stream: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			from, _ := startHost(t, a, "a", func(cfg *Config) { cfg.Cluster = func() proto.ClusterID { return c.cluster } })
			if c.lie != "" {
				from.cfg.NodeID = c.lie // before the first call
			}
			conn, err := from.Conn("b", at.Addr())
			must.OK(t, err)
			ctx := inTime(t)
			m := proto.NewMembershipClient(conn)
			_, term := proto.NewPeerClient(conn).LeaderLost(ctx, &proto.LeaderLostRequest{})
			_, helloErr := m.Hello(ctx, &proto.HelloRequest{})
			_, join := m.Join(ctx, &proto.JoinRequest{})
			_, change := m.Change(ctx, &proto.ChangeRequest{})
			for _, r := range []struct {
				method string
				err    error
				want   codes.Code
			}{{"LeaderLost", term, c.term}, {"Hello", helloErr, c.hello}, {"Join", join, c.hello}, {"Change", change, c.change}} {
				if got := status.Code(r.err); got != r.want {
					t.Errorf("%s: %v, want %v", r.method, r.err, r.want)
				}
			}
			if c.term == codes.FailedPrecondition && !strings.Contains(term.Error(), "ours") {
				t.Errorf("the refusal does not name the cluster: %v", term)
			}
			s, err := proto.NewPeerClient(conn).Exchange(ctx)
			if err == nil {
				_ = s.Send(&proto.PeerRequest{Id: 1}) // the refusal shows in Recv
				_, err = s.Recv()
			}
			if got := status.Code(err); got != c.term {
				t.Errorf("Exchange: %v, want %v", err, c.term)
			}
			if got := streams(from, "b", at); got != c.stream {
				t.Errorf("a Raft stream succeeds: %v, want %v", got, c.stream)
			}
			// A node without a cluster takes part in any.
			if _, err := peerOf(t, from, "f", fresh.Addr()).LeaderLost(ctx, &proto.LeaderLostRequest{}); status.Code(err) == codes.FailedPrecondition {
				t.Errorf("a node without a cluster refused: %v", err)
			}
		})
	}
}

// TestMetadataTwice: a second value for a key does not slip in behind the first.
func TestMetadataTwice(t *testing.T) {
	a := newAuthority(t)
	at, _ := startHost(t, a, "b", nil)
	from, _ := startHost(t, a, "a", nil)
	ctx := metadata.AppendToOutgoingContext(inTime(t), metaNode, "c")
	_, err := peerOf(t, from, "b", at.Addr()).LeaderLost(ctx, &proto.LeaderLostRequest{})
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("two node names: %v", err)
	}
}

// TestGarbage sends what is no handshake, and handshakes with the wrong
// protocol; the port closes the connection and goes on.
func TestGarbage(t *testing.T) {
	a := newAuthority(t)
	at, _ := startHost(t, a, "b", func(c *Config) { c.HandshakeTimeout = 500 * time.Millisecond })
	from, _ := startHost(t, a, "a", nil)
	plain := func(data string) func() (net.Conn, error) {
		return func() (net.Conn, error) {
			c, err := net.Dial("tcp", at.Addr())
			if err == nil {
				_, _ = c.Write([]byte(data))
			}
			return c, err
		}
	}
	overTLS := func(alpn []string, maxVersion uint16, data string) func() (net.Conn, error) {
		return func() (net.Conn, error) {
			cfg := from.clientTLS("", "")
			cfg.NextProtos, cfg.VerifyConnection = alpn, nil
			cfg.MinVersion, cfg.MaxVersion = tls.VersionTLS12, maxVersion
			raw, err := net.Dial("tcp", at.Addr())
			if err != nil {
				return nil, err
			}
			c := tls.Client(raw, cfg)
			_, _ = c.Write([]byte(data))
			return raw, nil
		}
	}
	for name, dial := range map[string]func() (net.Conn, error){
		"HTTP":             plain("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"zeros":            plain(strings.Repeat("\x00", 4096)),
		"half a hello":     plain("\x16\x03\x01\x02\x00\x01"),
		"nothing":          plain(""),
		"unknown ALPN":     overTLS([]string{"http/1.1"}, tls.VersionTLS13, ""),
		"no ALPN":          overTLS(nil, tls.VersionTLS13, ""),
		"TLS 1.2":          overTLS([]string{alpnGRPC}, tls.VersionTLS12, ""),
		"a wrong preface":  overTLS([]string{alpnRaft}, tls.VersionTLS13, "\xff\xff\xff"),
		"half a preface":   overTLS([]string{alpnRaft}, tls.VersionTLS13, "\x01\xff"),
		"no HTTP/2":        overTLS([]string{alpnGRPC}, tls.VersionTLS13, strings.Repeat("x", 100)),
		"no Raft consumer": overTLS([]string{alpnRaft}, tls.VersionTLS13, "\x01\x00"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := dial()
			must.OK(t, err)
			defer c.Close()
			c.SetReadDeadline(time.Now().Add(10 * time.Second))
			if _, err := io.Copy(io.Discard, c); errors.Is(err, errDeadline) {
				t.Error("the connection is still open")
			}
		})
	}
	t.Cleanup(func() {
		if !accepts(t, from, "b", at) {
			t.Error("a good peer is refused afterwards")
		}
		await(t, "all connections are accounted for", func() bool {
			at.conns.mu.Lock()
			defer at.conns.mu.Unlock()
			return at.conns.pending.Len() == 0 && len(at.conns.established) <= 1 // the call above
		})
	})
}

// TestHalfOpen: many connections that never finish their handshake are bounded,
// and good peers are served all the while.
func TestHalfOpen(t *testing.T) {
	const attackers, pending = 500, 32
	a := newAuthority(t)
	at, _ := startHost(t, a, "b", func(c *Config) {
		c.MaxPendingHandshakes = pending
		c.HandshakeTimeout = 30 * time.Second // eviction must do it, not the clock
	})
	from, _ := startHost(t, a, "a", nil)
	before := memory()
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	for i := range attackers {
		c, err := net.Dial("tcp", at.Addr())
		must.OK(t, err)
		_, _ = c.Write([]byte("\x16\x03\x01\x02\x00\x01\x00")) // the beginning of a hello
		conns = append(conns, c)
		if i%100 == 99 && !streams(from, "b", at) {
			t.Fatalf("a good peer is refused after %d half-open connections", i+1)
		}
	}
	at.conns.mu.Lock()
	n := at.conns.pending.Len()
	at.conns.mu.Unlock()
	if n > pending {
		t.Errorf("%d pending handshakes, the bound is %d", n, pending)
	}
	if grown := memory() - before; grown > 16<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
	closed := 0
	for _, c := range conns[:attackers-pending] {
		c.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := io.Copy(io.Discard, c); !errors.Is(err, errDeadline) {
			closed++
		}
	}
	if want := attackers - pending; closed != want {
		t.Errorf("%d of %d old half-open connections were closed", closed, want)
	}
}

// errDeadline is what a read gives when nothing came in time.
var errDeadline = os.ErrDeadlineExceeded

func memory() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestSlowHandshake: a handshake that trickles in is cut when its time is over,
// however regular the bytes come.
func TestSlowHandshake(t *testing.T) {
	a := newAuthority(t)
	at, _ := startHost(t, a, "b", func(c *Config) { c.HandshakeTimeout = 200 * time.Millisecond })
	c, err := net.Dial("tcp", at.Addr())
	must.OK(t, err)
	defer c.Close()
	hello := append([]byte{0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3}, make([]byte, 600)...)
	began := time.Now()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for _, b := range hello {
		<-tick.C
		if _, err := c.Write([]byte{b}); err != nil {
			//wall: a handshake has 200 milliseconds here, and the bytes come for six seconds
			if d := time.Since(began); d > 5*time.Second {
				t.Errorf("cut after %v", d)
			}
			return
		}
	}
	t.Error("the connection was never cut")
}

// TestConnectionCaps: beyond the caps, authenticated connections are refused,
// and a place is free again once one is closed.
func TestConnectionCaps(t *testing.T) {
	for name, caps := range map[string]struct{ total, perIP int }{"total": {3, 100}, "per address": {100, 3}} {
		t.Run(name, func(t *testing.T) {
			a := newAuthority(t)
			at, _ := startHost(t, a, "b", func(c *Config) { c.MaxConns, c.MaxConnsPerIP = caps.total, caps.perIP })
			from, _ := startHost(t, a, "a", nil)
			l := at.Layer()
			var open []net.Conn
			for range 3 {
				c, err := from.Layer().DialNode("b", at.Addr(), 5*time.Second)
				must.OK(t, err)
				defer c.Close()
				in, err := l.Accept()
				must.OK(t, err)
				defer in.Close()
				open = append(open, in)
			}
			extra, err := from.Layer().DialNode("b", at.Addr(), 5*time.Second)
			must.OK(t, err)
			defer extra.Close()
			extra.SetReadDeadline(time.Now().Add(10 * time.Second))
			if _, err := extra.Read(make([]byte, 1)); err == nil || errors.Is(err, errDeadline) {
				t.Fatalf("one connection too many: %v", err)
			}
			open[0].Close() // the accepting end: its place is free at once
			again, err := from.Layer().DialNode("b", at.Addr(), 5*time.Second)
			must.OK(t, err)
			defer again.Close()
			in, err := l.Accept()
			must.OK(t, err)
			in.Close()
		})
	}
}
