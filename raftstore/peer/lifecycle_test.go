package peer

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quorate/quorate/internal/must"
	"github.com/quorate/quorate/proto"
)

// TestRotation: leaves and CAs are exchanged while calls go on; none fails, and
// the old credentials are worth nothing afterwards.
func TestRotation(t *testing.T) {
	older, newer := newAuthority(t), newAuthority(t)
	wa, wb := newWallet(older.issue("a", nil), older.pool()), newWallet(older.issue("b", nil), older.pool())
	from, _ := startHost(t, older, "a", func(c *Config) { c.Credentials = wa })
	at, _ := startHost(t, older, "b", func(c *Config) { c.Credentials = wb })
	ctx := inTime(t)

	stop, stopped := make(chan struct{}), make(chan struct{})
	var calls atomic.Int64
	go func() {
		defer close(stopped)
		p := peerOf(t, from, "b", at.Addr())
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := p.LeaderLost(ctx, &proto.LeaderLostRequest{}); err != nil {
				t.Errorf("a call failed during the rotation: %v", err)
				return
			}
			calls.Add(1)
		}
	}()
	// Each step is followed by calls on the old connection and by a fresh one.
	step := func(what string) {
		t.Helper()
		if !streams(from, "b", at) || !streams(at, "a", from) {
			t.Errorf("%s: a fresh stream is refused", what)
		}
		if n := calls.Load(); what != "" {
			await(t, "calls go on after: "+what, func() bool { return calls.Load() > n+5 })
		}
	}
	step("start")
	wa.leaf.Store(older.issue("a", nil))
	step("new leaf of the old CA")
	both := func() *x509.CertPool {
		p := older.pool()
		p.AddCert(newer.cert)
		return p
	}
	wa.roots.Store(both())
	step("a trusts both CAs")
	wb.roots.Store(both())
	step("b trusts both CAs")
	wa.leaf.Store(newer.issue("a", nil))
	step("a has a leaf of the new CA")
	wb.leaf.Store(newer.issue("b", nil))
	step("b has a leaf of the new CA")
	wa.roots.Store(newer.pool())
	wb.roots.Store(newer.pool())
	step("both trust the new CA only")
	close(stop)
	<-stopped

	late, _ := startHost(t, older, "c", func(c *Config) { c.Credentials = newWallet(older.issue("c", nil), both()) })
	if streams(late, "b", at) {
		t.Error("a leaf of the old CA is still accepted")
	}
}

// TestSenderIsChecked: a peer cannot speak to Raft in another node's name.
func TestSenderIsChecked(t *testing.T) {
	a := newAuthority(t)
	from, _ := startHost(t, a, "a", nil)
	at, _ := startHost(t, a, "b", nil)
	from.Found("b", "", at.Addr())
	sender, receiver := NewTransport(from), NewTransport(at)
	receiver.Admit(nil)
	defer sender.Close()
	defer receiver.Close()
	go respond(receiver, &raft.RequestVoteResponse{Term: 9})
	for said, ok := range map[string]bool{"a": true, "c": false, "": false} {
		var resp raft.RequestVoteResponse
		err := sender.RequestVote("b", "", &raft.RequestVoteRequest{RPCHeader: raft.RPCHeader{ID: []byte(said), Addr: []byte(said + "@h:1")}}, &resp)
		if (err == nil) != ok || ok && resp.Term != 9 {
			t.Errorf("message in the name of %q: %v, %+v", said, err, resp)
		}
	}
}

// respond answers every request with resp until the transport is closed.
func respond(t *Transport, resp any) {
	for {
		select {
		case rpc := <-t.Consumer():
			rpc.Respond(resp, nil)
		case <-t.done:
			return
		}
	}
}

// TestClose: whatever is under way, Close returns, and nothing is left behind.
func TestClose(t *testing.T) {
	before := runtime.NumGoroutine()
	func() {
		a := newAuthority(t)
		from, _ := startHost(t, a, "a", nil)
		at, _ := startHost(t, a, "b", nil)
		from.Found("b", "", at.Addr())
		sender := NewTransport(from)
		NewTransport(at).Admit(nil)
		busy := make(chan error, 4)
		// A request that nobody consumes, a pipeline, a stream of calls, a
		// watched connection, a half-open handshake.
		go func() {
			busy <- sender.AppendEntries("b", "", &raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{ID: []byte("a")}}, &raft.AppendEntriesResponse{})
		}()
		p, err := sender.AppendEntriesPipeline("b", "")
		must.OK(t, err)
		go func() {
			var err error
			for err == nil {
				_, err = p.AppendEntries(&raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{ID: []byte("a")}}, &raft.AppendEntriesResponse{})
			}
			busy <- err
		}()
		s, err := peerOf(t, from, "b", at.Addr()).Exchange(context.Background())
		must.OK(t, err)
		must.OK(t, s.Send(&proto.PeerRequest{Id: 1}))
		if _, err := s.Recv(); err != nil {
			t.Fatal(err)
		}
		go func() {
			_, err := s.Recv()
			busy <- err
		}()
		go func() {
			from.WatchConn(context.Background(), "b", at.Addr(), func() {})
			busy <- errors.New("watch is over")
		}()
		half, err := net.Dial("tcp", at.Addr())
		must.OK(t, err)
		defer half.Close()

		for _, h := range []*Host{at, from} {
			if err := h.Close(); err != nil {
				t.Error(err)
			}
			if err := h.Close(); err != nil {
				t.Errorf("closed twice: %v", err)
			}
		}
		for range 4 {
			if err := <-busy; err == nil {
				t.Error("a call on a closed host succeeded")
			}
		}
		// The transports were not closed: they end with their layers.
		if _, err := from.Conn("b", at.Addr()); !errors.Is(err, ErrClosed) {
			t.Errorf("Conn of a closed host: %v", err)
		}
		if _, err := from.Layer().Dial(raft.ServerAddress(at.Addr()), time.Second); err == nil {
			t.Error("dialled from a closed host")
		}
	}()
	await(t, "all goroutines have ended", func() bool { return runtime.NumGoroutine() <= before })
}

// TestCloseBeforeServe: connections that wait for Serve do not hold up Close.
func TestCloseBeforeServe(t *testing.T) {
	a := newAuthority(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(t, err)
	h, err := New(Config{NodeID: "b", Credentials: newWallet(a.issue("b", nil), a.pool()), Listener: l})
	must.OK(t, err)
	from, _ := startHost(t, a, "a", nil)
	conn, err := from.Conn("b", h.Addr())
	must.OK(t, err)
	conn.Connect()
	await(t, "the connection waits", func() bool {
		h.conns.mu.Lock()
		defer h.conns.mu.Unlock()
		return len(h.conns.established) == 1
	})
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	h.Serve() // does nothing
}

// TestWatchConn: the end of a peer is seen within moments, its return too.
func TestWatchConn(t *testing.T) {
	a := newAuthority(t)
	from, _ := startHost(t, a, "a", nil)
	at, _ := startHost(t, a, "b", nil)
	addr := at.Addr()
	ctx, cancel := context.WithCancel(context.Background())
	lost, over := make(chan time.Time, 10), make(chan struct{})
	go func() {
		defer close(over)
		from.WatchConn(ctx, "b", addr, func() { lost <- time.Now() })
	}()
	ready := func() bool {
		_, err := peerOf(t, from, "b", addr).LeaderLost(inTime(t), &proto.LeaderLostRequest{})
		return err == nil
	}
	await(t, "b is reached", ready)
	for range 2 {
		if from.Refused(ctx, addr) {
			t.Error("Refused while b serves")
		}
		began := time.Now()
		must.OK(t, at.Close())
		select {
		case when := <-lost:
			t.Logf("lost after %v", when.Sub(began))
		case <-time.After(10 * time.Second):
			t.Fatal("the loss was not reported")
		}
		if !from.Refused(ctx, addr) {
			t.Error("not Refused after b's end")
		}
		at, _ = startHost(t, a, "b", func(c *Config) {
			l, err := net.Listen("tcp", addr)
			must.OK(t, err)
			c.Listener.Close()
			c.Listener = l
		})
		await(t, "b is reached again", ready)
	}
	cancel()
	<-over
	if n := len(lost); n != 0 {
		t.Errorf("%d losses were reported too many", n)
	}
}

// TestWatchConnNeverUp: a peer that ends before the first connection to it was up
// is lost as well, once.
func TestWatchConnNeverUp(t *testing.T) {
	a := newAuthority(t)
	from, _ := startHost(t, a, "a", nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(t, err)
	addr := l.Addr().String()
	l.Close()
	ctx, cancel := context.WithCancel(context.Background())
	lost, over := make(chan struct{}, 10), make(chan struct{})
	go func() {
		defer close(over)
		from.WatchConn(ctx, "b", addr, func() { lost <- struct{}{} })
	}()
	select {
	case <-lost:
	case <-time.After(10 * time.Second):
		t.Fatal("the loss was not reported")
	}
	at, _ := startHost(t, a, "b", func(c *Config) {
		l, err := net.Listen("tcp", addr)
		must.OK(t, err)
		c.Listener.Close()
		c.Listener = l
	})
	await(t, "b is reached", func() bool {
		_, err := peerOf(t, from, "b", addr).LeaderLost(inTime(t), &proto.LeaderLostRequest{})
		return err == nil
	})
	if n := len(lost); n != 0 {
		t.Errorf("%d losses were reported too many", n)
	}
	must.OK(t, at.Close())
	select {
	case <-lost:
	case <-time.After(10 * time.Second):
		t.Fatal("the second loss was not reported")
	}
	cancel()
	<-over
}

// TestRefused: only a dial that is refused counts.
func TestRefused(t *testing.T) {
	a := newAuthority(t)
	h, _ := startHost(t, a, "a", nil)
	listen := func(serve func(net.Conn)) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must.OK(t, err)
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				serve(c)
			}
		}()
		return l.Addr().String()
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(t, err)
	go func() { // dies while it has the connection
		c, err := l.Accept()
		if err == nil {
			l.Close()
			c.(*net.TCPConn).SetLinger(0)
			c.Close()
		}
	}()
	gone := unheard(t)
	for name, c := range map[string]struct {
		ctx  context.Context
		addr string
		want bool
	}{
		"nobody listens":        {context.Background(), gone, true},
		"a hung process":        {context.Background(), listen(func(net.Conn) {}), false},
		"an overloaded process": {context.Background(), listen(func(c net.Conn) { c.Close() }), false},
		"context ended":         {ended, gone, false},
		"no such name":          {context.Background(), "host.invalid:1", false},
		"not an address":        {context.Background(), "nonsense", false},
	} {
		if got := h.Refused(c.ctx, c.addr); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	await(t, "a process that died while it had the connection", func() bool {
		return h.Refused(context.Background(), l.Addr().String())
	})
}

// unheard is an address at which nobody listens, and nobody can: its port is taken. That of a
// listener that was closed is given to the next one who asks for any.
func unheard(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	must.OK(t, err)
	t.Cleanup(func() { syscall.Close(fd) })
	must.OK(t, syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	at, err := syscall.Getsockname(fd)
	must.OK(t, err)
	return fmt.Sprintf("127.0.0.1:%d", at.(*syscall.SockaddrInet4).Port)
}

// TestConnIsShared: one connection per node and address.
func TestConnIsShared(t *testing.T) {
	a := newAuthority(t)
	from, _ := startHost(t, a, "a", nil)
	b1, _ := startHost(t, a, "b", nil)
	b2, _ := startHost(t, a, "b", nil)
	first, err := from.Conn("b", b1.Addr())
	must.OK(t, err)
	if again, _ := from.Conn("b", b1.Addr()); again != first {
		t.Error("a second connection to the same place")
	}
	call := func() error {
		_, err := proto.NewPeerClient(first).LeaderLost(inTime(t), &proto.LeaderLostRequest{})
		return err
	}
	must.OK(t, call())
	moved, err := from.Conn("b", b2.Addr())
	if err != nil || moved == first {
		t.Fatalf("after a move: same %v, %v", moved == first, err)
	}
	if err := call(); status.Code(err) != codes.Canceled {
		t.Errorf("a call on the connection to the old address: %v", err)
	}
	if _, err := proto.NewPeerClient(moved).LeaderLost(inTime(t), &proto.LeaderLostRequest{}); err != nil {
		t.Error(err)
	}
	anyone, err := from.Conn("", b1.Addr())
	if err != nil || anyone == moved {
		t.Fatal("any peer at an address shares the connection of a node")
	}
	if _, err := proto.NewPeerClient(anyone).LeaderLost(inTime(t), &proto.LeaderLostRequest{}); err != nil {
		t.Error(err)
	}
	from.forget("b")
	if fresh, _ := from.Conn("b", b2.Addr()); fresh == moved {
		t.Error("a forgotten connection came back")
	}
	if _, err := from.Conn("not valid", b2.Addr()); err == nil || !strings.Contains(err.Error(), "not valid") {
		t.Errorf("a bad node id: %v", err)
	}
}

// TestNewRefuses: New refuses what cannot work.
func TestNewRefuses(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(t, err)
	defer l.Close()
	w := &wallet{}
	for name, c := range map[string]Config{
		"no node":        {Credentials: w, Listener: l},
		"bad node":       {NodeID: "a/b", Credentials: w, Listener: l},
		"no credentials": {NodeID: "a", Listener: l},
		"no listener":    {NodeID: "a", Credentials: w},
	} {
		if _, err := New(c); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
