package listener

import (
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/internal/must"
)

// TestTurns: users take turns, and the connections of one in their order; a turn that is held has its end.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(nil, 100)
		l.turns.free = 1
		var mu sync.Mutex
		var order []string
		var waits []time.Duration
		l.ObserveTurns(func(d time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			waits = append(waits, d)
		})
		end := map[string]chan bool{} // true: it writes again
		begin := func(user string, number int) {
			c := &connection{in: l, address: "10.0.0.1"}
			name := fmt.Sprint(user, number)
			if user != "guest" {
				c.name.Store(&user)
			}
			ends := make(chan bool)
			end[name] = ends
			go func() {
				for again := true; again; {
					l.turns.take(c, turnBytes)
					mu.Lock()
					order = append(order, name)
					mu.Unlock()
					again = <-ends
					l.turns.done(c, false)
				}
			}()
			synctest.Wait()
		}
		begin("a", 0) // it has the turn
		for i := range 3 {
			begin("a", i+1)
		}
		begin("b", 1)
		begin("guest", 1)
		begin("b", 2)
		for _, step := range []string{"a0", "a1", "b1 again", "guest1", "a2", "b2", "a3", "b1"} {
			name, again := strings.CutSuffix(step, " again")
			time.Sleep(time.Second) // of the bubble's clock
			end[name] <- again
			synctest.Wait()
		}
		if want := []string{"a0", "a1", "b1", "guest1", "a2", "b2", "a3", "b1"}; !slices.Equal(order, want) {
			t.Errorf("%v, want %v", order, want)
		}
		if want := []time.Duration{1, 2, 3, 4, 5, 6, 4}; !slices.EqualFunc(waits, want, func(d, seconds time.Duration) bool { return d == seconds*time.Second }) {
			t.Errorf("they have waited %v, want %v seconds", waits, want)
		}
		if l.turns.free != 1 || len(l.turns.lines) != 0 || l.turns.first != nil || l.turns.last != nil {
			t.Errorf("left behind: %+v", l.turns)
		}
	})
}

// TestHeldTurn: a turn that is held between writes costs no new one, until its bytes are written and others wait.
func TestHeldTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(nil, 100)
		l.turns.free = 1
		holder, other := &connection{in: l, address: "10.0.0.1"}, &connection{in: l, address: "10.0.0.2"}
		write := func(c *connection, n int) {
			l.turns.take(c, n)
			l.turns.done(c, false)
		}
		holder.Hold()
		for range 3 { // nobody waits: it goes on
			write(holder, turnBytes)
		}
		waits := make(chan bool, 1)
		go func() {
			l.turns.take(other, turnBytes)
			waits <- false
		}()
		synctest.Wait()
		if len(waits) != 0 {
			t.Fatal("two have the only turn")
		}
		went := make(chan bool, 1)
		go func() {
			write(holder, 1)
			went <- true
		}()
		<-waits
		synctest.Wait()
		if len(went) != 0 {
			t.Fatal("a turn has no end while others wait")
		}
		l.turns.done(other, false)
		<-went
		if l.turns.free != 0 {
			t.Error("the turn is not held")
		}
		holder.Release()
		holder.Release() // has nothing to release
		if l.turns.free != 1 {
			t.Errorf("%d turns are free, want 1", l.turns.free)
		}
		// One that is closed while it holds a turn gives it back.
		holder.Conn, _ = net.Pipe()
		holder.Hold()
		write(holder, 1)
		_ = holder.Close()
		if l.turns.free != 1 {
			t.Errorf("%d turns are free behind Close, want 1", l.turns.free)
		}
	})
}

// TestReleaseBehindTurn: a turn that has come is its writer's, also before that one has woken.
func TestReleaseBehindTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(nil, 100)
		l.turns.free = 1
		holder, waiter := &connection{in: l, address: "10.0.0.1"}, &connection{in: l, address: "10.0.0.2"}
		l.turns.take(holder, 1)
		written := make(chan struct{})
		go func() {
			l.turns.take(waiter, 1)
			<-written
			l.turns.done(waiter, false)
		}()
		synctest.Wait()
		l.turns.mu.Lock()
		holder.turn.using = false
		l.turns.give(holder)
		l.turns.release(waiter) // as Close does
		l.turns.mu.Unlock()
		synctest.Wait()
		if l.turns.free != 0 || !waiter.turn.held {
			t.Error("it writes without a turn")
		}
		close(written)
		synctest.Wait()
		if l.turns.free != 1 {
			t.Errorf("%d turns are free, want 1", l.turns.free)
		}
	})
}

// TestTurnsOfProcessors: there are as many turns as processors, also when the control group's quota changes.
func TestTurnsOfProcessors(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	l := New(nil, 100)
	begun := make(chan *connection)
	begin := func() *connection {
		c := &connection{in: l, address: "10.0.0.1"}
		go func() {
			l.turns.take(c, 1)
			begun <- c
		}()
		return c
	}
	// queued waits until so many are in line.
	queued := func(want int) {
		t.Helper()
		for began, n := time.Now(), -1; n != want; runtime.Gosched() {
			n = 0
			l.turns.mu.Lock()
			for _, w := range l.turns.lines {
				for c := w.first; c != nil; c = c.turn.after {
					n++
				}
			}
			l.turns.mu.Unlock()
			if time.Since(began) > 10*time.Second {
				t.Fatalf("%d wait, want %d", n, want)
			}
		}
	}
	first := begin()
	<-begun
	second := begin()
	queued(1)
	runtime.GOMAXPROCS(2)
	third := begin() // sees that there are more
	if c := <-begun; c != second {
		t.Error("another one has the second turn than who has waited")
	}
	queued(1)
	runtime.GOMAXPROCS(1)
	fourth := begin() // sees that there are fewer
	queued(2)
	l.turns.done(first, false)
	queued(2)
	for _, c := range []*connection{second, third} {
		l.turns.done(c, false)
		<-begun
	}
	l.turns.done(fourth, false)
	if l.turns.free != 1 || len(l.turns.lines) != 0 {
		t.Errorf("left behind: %+v", l.turns)
	}
}

// bulkPair is a connection that the listener has accepted, and its client's half, with small buffers.
func bulkPair(t testing.TB, l *Listener) (server *connection, client *net.TCPConn) {
	t.Helper()
	conn, err := net.Dial("tcp", l.Addr().String())
	must.OK(t, err)
	client = conn.(*net.TCPConn)
	_ = client.SetReadBuffer(4 << 10)
	accepted, err := l.Accept()
	must.OK(t, err)
	server = accepted.(*connection)
	_ = server.Conn.(*net.TCPConn).SetWriteBuffer(4 << 10)
	t.Cleanup(func() { client.Close(); server.Close() })
	return server, client
}

func bulkListener(t testing.TB, limit int) *Listener {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(t, err)
	l := New(inner, limit)
	l.perAddress = limit
	t.Cleanup(func() { l.Close() })
	return l
}

// TestClientsWithoutTurns: a thousand clients that do not read, or that read a little and then no more, keep no turn
// from one that reads. All turns come back, also when connections end in the middle of their writes.
func TestClientsWithoutTurns(t *testing.T) {
	const silent = 1000 // that do not read
	l := bulkListener(t, 2*silent)
	l.turns.free = 1
	var ended sync.WaitGroup
	answer := make([]byte, 512<<10)
	var clients []*net.TCPConn
	var servers []*connection
	for i := range silent {
		server, client := bulkPair(t, l)
		clients, servers = append(clients, client), append(servers, server)
		ended.Go(func() {
			server.Hold() // as who has more to write
			n, err := server.Write(answer)
			if err == nil {
				t.Errorf("%d bytes were taken by a client that does not read", n)
			}
			server.Release()
		})
		if i%4 == 0 {
			_, _ = client.Read(make([]byte, 1<<10))
		}
	}
	for round := range 3 {
		server, client := bulkPair(t, l)
		_, _ = client.SetReadBuffer(1<<20), server.Conn.(*net.TCPConn).SetWriteBuffer(1<<20)
		ended.Go(func() {
			if n, err := server.Write(answer); n != len(answer) || err != nil {
				t.Errorf("%d: %d bytes: %v", round, n, err)
			}
		})
		_ = client.SetReadDeadline(time.Now().Add(20 * time.Second))
		if n, err := io.ReadFull(client, make([]byte, len(answer))); err != nil {
			t.Fatalf("%d: after %d bytes: %v", round, n, err)
		}
	}
	for i := range silent {
		switch i % 3 {
		case 0:
			clients[i].Close()
		case 1:
			servers[i].Close()
		default:
			_ = servers[i].SetWriteDeadline(time.Unix(1, 0))
		}
	}
	ended.Wait()
	if l.turns.free != 1 || len(l.turns.lines) != 0 {
		t.Errorf("left behind: %+v", l.turns)
	}
}

// TestBulkBytes: what is written in turns arrives as it was written, and there are never more writers than turns.
func TestBulkBytes(t *testing.T) {
	const writers, size = 16, 256 << 10
	l := bulkListener(t, 100)
	l.turns.free = 2
	var wg sync.WaitGroup
	for i := range writers {
		server, client := bulkPair(t, l)
		_, _ = client.SetReadBuffer(64<<10), server.Conn.(*net.TCPConn).SetWriteBuffer(32<<10)
		want := make([]byte, size)
		for j := range want {
			want[j] = byte(j>>8 + j*i)
		}
		wg.Go(func() {
			for rest := want; len(rest) > 0; {
				n := min(len(rest), bulkWrite-1+len(rest)%3) // some wait for turns, some do not
				if i%2 == 0 {
					server.Hold()
				}
				if _, err := server.Write(rest[:n]); err != nil {
					t.Error(err)
				}
				l.turns.mu.Lock()
				if l.turns.free < 0 {
					t.Error("more writers than turns")
				}
				l.turns.mu.Unlock()
				rest = rest[n:]
			}
			server.Release()
		})
		wg.Go(func() {
			got := make([]byte, size)
			if _, err := io.ReadFull(client, got); err != nil || !slices.Equal(got, want) {
				t.Errorf("%d: other bytes arrive: %v", i, err)
			}
		})
	}
	wg.Wait()
	if l.turns.free != 2 {
		t.Errorf("%d turns are left of 2", l.turns.free)
	}
}

// BenchmarkBulkWrite is a full TLS record to a client that reads as fast as it can, beside nobody: in turns, and
// without.
func BenchmarkBulkWrite(b *testing.B) {
	for _, way := range []string{"turns", "plain"} {
		b.Run(way, func(b *testing.B) {
			l := bulkListener(b, 10)
			server, client := bulkPair(b, l)
			_ = client.SetReadBuffer(1 << 20)
			_ = server.Conn.(*net.TCPConn).SetWriteBuffer(1 << 20)
			go io.Copy(io.Discard, client)
			if way == "plain" {
				server.raw = nil
			}
			record := make([]byte, bulkWrite)
			b.SetBytes(bulkWrite)
			for b.Loop() {
				if _, err := server.Write(record); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
