package h2

import (
	"net"
	"net/http"
	"sync"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"golang.org/x/net/http2"
)

// turned is a listener whose connections say what they were told of turns.
type turned struct {
	net.Listener
	conns chan *turnedConn
}

func (l *turned) Accept() (net.Conn, error) {
	inner, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &turnedConn{Conn: inner}
	c.changed.L = &c.mu
	l.conns <- c
	return c, nil
}

type turnedConn struct {
	net.Conn
	mu      sync.Mutex
	changed sync.Cond
	held    bool
	times   int // that it was held
}

func (c *turnedConn) Hold()    { c.set(true) }
func (c *turnedConn) Release() { c.set(false) }

func (c *turnedConn) set(held bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if held && !c.held {
		c.times++
	}
	c.held = held
	c.changed.Broadcast()
}

// released waits until a turn was held more than so many times, and none is.
func (c *turnedConn) released(more int) (times int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.held || c.times <= more {
		c.changed.Wait()
	}
	return c.times
}

// TestTurnsOfWindows: a turn is held for a large answer, and not while its stream waits for a window, or when it has
// ended. A small answer holds none.
func TestTurnsOfWindows(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(t, err)
	l := &turned{inner, make(chan *turnedConn, 1)}
	const size = 1 << 20
	s := serveOn(t, l, true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := size
		if r.URL.Path == "/small" {
			n = 1000
		}
		_, _ = w.Write(make([]byte, n))
	}), nil)
	const window = 100_000
	c := dial(t, s, window)
	conn := <-l.conns
	_ = c.WriteWindowUpdate(0, 1<<30)
	read := func(want int, end bool) {
		t.Helper()
		for got, ended := 0, false; got < want || end && !ended; {
			f, err := c.next()
			if err != nil {
				t.Fatalf("%d of %d bytes: %v", got, want, err)
			}
			if d, ok := f.(*http2.DataFrame); ok {
				got, ended = got+len(d.Data()), d.StreamEnded()
			}
		}
	}
	c.get(1, "/small")
	read(1000, true)
	conn.mu.Lock()
	if conn.times != 0 {
		t.Errorf("a small answer has held a turn")
	}
	conn.mu.Unlock()
	c.get(3, "/")
	read(window, false)
	times := conn.released(0) // it waits for a window
	_ = c.WriteWindowUpdate(3, size)
	read(size-window, true)
	times = conn.released(times)
	c.get(5, "/")
	read(window, false)
	times = conn.released(times)
	_ = c.WriteRSTStream(5, http2.ErrCodeCancel) // while it waits
	c.get(7, "/small")
	read(1000, true)
	if conn.released(times-1) != times {
		t.Error("a stream that was reset has held a turn")
	}
}
