package h2

import (
	"bytes"
	"errors"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
	"golang.org/x/net/http2"
)

// TestDeadlines: a deadline in the past, or that passes, ends reading and writing.
func TestDeadlines(t *testing.T) {
	results := make(chan error, 8)
	s := serve(t, true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		switch r.URL.Path {
		case "/read-past":
			_ = rc.SetReadDeadline(time.Unix(1, 0))
		case "/read":
			_ = rc.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		case "/write-past":
			_ = rc.SetWriteDeadline(time.Unix(1, 0))
			_, err := w.Write(make([]byte, writeBuffer+1))
			results <- err
			return
		case "/write":
			_ = rc.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
			_, err := w.Write(make([]byte, 1<<20))
			results <- err
			return
		case "/server":
			_, err := w.Write(make([]byte, 1<<20))
			results <- err
			return
		}
		_, err := r.Body.Read(make([]byte, 1))
		results <- err
	}), func(s *http.Server) { s.WriteTimeout = 300 * time.Millisecond })
	c := dial(t, s, 100)
	for i, path := range []string{"/read-past", "/read", "/write-past", "/write", "/server"} {
		began := time.Now()
		_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), BlockFragment: block("POST", path), EndHeaders: true})
		err := <-results
		reads := strings.HasPrefix(path, "/read")
		if reads != errors.Is(err, os.ErrDeadlineExceeded) || err == nil {
			t.Errorf("%s: %v", path, err)
		}
		if path == "/server" && time.Since(began) < 250*time.Millisecond {
			t.Errorf("%s after %s", path, time.Since(began))
		}
	}
}

// TestEarlyResets: a client that resets its streams, or has the server reset them, cannot have more handlers at work than it
// may have streams (CVE-2023-39325, CVE-2023-44487; CVE-2025-8671 of other servers).
func TestEarlyResets(t *testing.T) {
	for _, q := range []struct {
		name  string
		reset func(c *raw, id uint32) error
	}{
		{"by the client", func(c *raw, id uint32) error { return c.WriteRSTStream(id, http2.ErrCodeCancel) }},
		{"by the server, for a window of nothing", func(c *raw, id uint32) error {
			return c.WriteRawFrame(http2.FrameWindowUpdate, 0, id, make([]byte, 4))
		}},
		{"by the server, for a window that is too large", func(c *raw, id uint32) error { return c.WriteWindowUpdate(id, 1<<31-1) }},
		{"by the server, for a body behind the end", func(c *raw, id uint32) error { return c.WriteData(id, true, nil) }},
		{"by the server, for a stream that depends on itself", func(c *raw, id uint32) error {
			return c.WritePriority(id, http2.PriorityParam{StreamDep: id})
		}},
	} {
		t.Run(q.name, func(t *testing.T) {
			var now, most atomic.Int64
			end := make(chan struct{})
			s := serve(t, true, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				most.Store(max(most.Load(), now.Add(1)))
				<-end
				now.Add(-1)
			}), func(s *http.Server) { s.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 10} })
			defer close(end)
			c := dial(t, s, 100)
			go func() {
				out := c.beside()
				out.AllowIllegalWrites = true
				for id := uint32(1); ; id += 2 {
					out.get(id, "/")
					if q.reset(out, id) != nil {
						return
					}
				}
			}()
			f, err := c.next()
			for err == nil && f.Header().Type == http2.FrameRSTStream {
				f, err = c.next()
			}
			if g, ok := f.(*http2.GoAwayFrame); !ok || g.ErrCode != http2.ErrCodeEnhanceYourCalm {
				t.Errorf("%v, %v", f, err)
			}
			if most.Load() > 10 {
				t.Errorf("%d handlers", most.Load())
			}
		})
	}
}

// TestUnreadControls: answers to PING do not pile up for a client that does not read.
func TestUnreadControls(t *testing.T) {
	s := serve(t, true, http.NotFoundHandler(), nil)
	c := dial(t, s, 100)
	var pings bytes.Buffer
	f := http2.NewFramer(&pings, nil)
	for range 1000 {
		_ = f.WritePing(false, [8]byte{})
	}
	for range 20_000 {
		if _, err := c.conn.Write(pings.Bytes()); err != nil {
			return
		}
	}
	t.Error("20,000,000 pings were taken")
}

// narrow is a listener whose connections keep little for their clients.
type narrow struct{ net.Listener }

func (l narrow) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		err = c.(*net.TCPConn).SetWriteBuffer(4 << 10)
	}
	return c, err
}

// TestUnreadAnswers: answers without a body do not pile up for a client that does not read, and takes care not to
// have too many streams.
func TestUnreadAnswers(t *testing.T) {
	const enough = 100_000 // more than the buffers of a connection hold, which are small here
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	must.OK(t, err)
	handled := make(chan struct{}, enough)
	s := serveOn(t, narrow{inner}, true, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { handled <- struct{}{} }), nil)
	c := dial(t, s, 100)
	client := c.conn.NetConn().(*net.TCPConn)
	_ = client.SetReadBuffer(4 << 10)
	var requests bytes.Buffer
	f := http2.NewFramer(&requests, nil)
	id := uint32(1)
	for sent := 0; sent < enough; {
		requests.Reset()
		for range 100 {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block("GET", "/"), EndStream: true, EndHeaders: true})
			id += 2
		}
		if _, err := c.conn.Write(requests.Bytes()); err != nil {
			t.Fatal(err)
		}
		for range 100 {
			select {
			case <-handled:
				sent++
			case <-time.After(2 * time.Second):
				// The others wait for this client. When it reads, all are answered.
				_ = client.SetReadBuffer(1 << 20)
				for left := id / 2; left > 0; left-- {
					f, err := c.next() // headers, or a reset of what was a stream too many
					if err != nil {
						t.Fatalf("%d answers of %d are left: %v, %v", left, id/2, f, err)
					}
				}
				return
			}
		}
	}
	t.Errorf("%d requests were handled", enough)
}

// TestHalfAFrame: what a client has asked is answered though only a part of its next frame has come.
func TestHalfAFrame(t *testing.T) {
	s := serve(t, true, http.NotFoundHandler(), nil)
	c := dial(t, s, 100)
	var pings bytes.Buffer
	f := http2.NewFramer(&pings, nil)
	for i := range 3 {
		_ = f.WritePing(false, [8]byte{byte(i)})
	}
	_, _ = c.conn.Write(pings.Bytes()[:pings.Len()-5])
	for i := range 2 {
		f, err := c.next()
		if p, ok := f.(*http2.PingFrame); !ok || !p.IsAck() || p.Data[0] != byte(i) {
			t.Fatalf("%v, %v", f, err)
		}
	}
}

// TestStalledConnection: when a stream's time is over on a connection that takes nothing, the connection ends.
func TestStalledConnection(t *testing.T) {
	ended := make(chan struct{})
	s := serve(t, true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for {
			if _, err := w.Write(make([]byte, 1<<20)); err != nil {
				close(ended)
				return
			}
		}
	}), func(s *http.Server) { s.WriteTimeout = 100 * time.Millisecond })
	c := dial(t, s, 1<<31-1)
	_ = c.WriteWindowUpdate(0, 1<<30)
	_ = c.conn.NetConn().(*net.TCPConn).SetReadBuffer(4 << 10)
	c.get(1, "/")
	select {
	case <-ended:
	case <-time.After(stalledWrite + 10*time.Second):
		t.Error("it waits for ever")
	}
}
