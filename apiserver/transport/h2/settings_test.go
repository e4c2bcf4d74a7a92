package h2

import (
	"bytes"
	"math"
	"net/http"
	"slices"
	"testing"

	"github.com/quorate/quorate/internal/must"
	"golang.org/x/net/http2"
)

// pinged sends a PING and returns its answer, or what else ends a stream or the connection before it.
func (c *raw) pinged() string {
	_ = c.WritePing(false, [8]byte{1})
	for {
		f, err := c.next()
		if err != nil {
			return "end"
		}
		switch f := f.(type) {
		case *http2.PingFrame:
			return "ping"
		case *http2.RSTStreamFrame:
			return "reset " + f.ErrCode.String()
		case *http2.GoAwayFrame:
			return "goaway " + f.ErrCode.String()
		}
	}
}

func (c *raw) initialWindow(n uint32) {
	_ = c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: n})
}

// TestInitialWindowIsCheap: a client that sends one initial window after the other does not have the server look at all
// streams for each of them (CVE-2026-78669).
func TestInitialWindowIsCheap(t *testing.T) {
	const streams, frames = 100, 1000
	for _, q := range []struct {
		name    string
		waits   bool // the streams have something to send
		granted bool // the first one has a window that the others have not, and is reset
		first   uint32
		then    [2]uint32 // in turn
		most    int       // looks at streams
	}{
		{name: "streams that do not wait", first: 1 << 20, then: [2]uint32{100, 200}},
		{name: "the largest window is gone", granted: true, first: 100, then: [2]uint32{math.MaxInt32 - 1, math.MaxInt32}, most: streams},
		{name: "streams that wait for another window", waits: true, then: [2]uint32{0, 0}},
		// Frames that are read together wake at their end, and 64 are read together, or what is in a buffer of 4 KiB.
		{name: "streams that wait for a window that is taken back", waits: true, then: [2]uint32{1, 0}, most: streams * frames / 10},
	} {
		t.Run(q.name, func(t *testing.T) {
			s, own := serveKnown(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if q.waits {
					_, _ = w.Write(make([]byte, writeBuffer+1))
				}
				<-r.Context().Done()
			}), nil)
			client := dial(t, s, q.first)
			c := own.only(t)
			for i := range uint32(streams) {
				client.get(2*i+1, "/")
			}
			open := streams
			if q.granted {
				_ = client.WriteWindowUpdate(1, math.MaxInt32-q.first)
				_ = client.WriteRSTStream(1, http2.ErrCodeCancel)
				open--
			}
			await(t, "streams", func() bool {
				return c.look(func() bool {
					return len(c.streams) == open && c.lastID == 2*streams-1 && (!q.waits || len(c.forOwn) == open)
				})
			})
			var before int
			c.look(func() bool { before = c.looks; return true })
			var b bytes.Buffer // one TLS record
			out := http2.NewFramer(&b, nil)
			for i := range frames {
				_ = out.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: q.then[i%2]})
			}
			_, _ = client.conn.Write(b.Bytes())
			if got := client.pinged(); got != "ping" {
				t.Fatal(got)
			}
			c.look(func() bool {
				if n := c.looks - before; n > q.most {
					t.Errorf("%d looks at %d streams for %d frames, want %d at the most", n, streams, frames, q.most)
				}
				return true
			})
		})
	}
}

// TestInitialWindowWakes: streams that wait go on when the initial window has grown, each as far as it was granted.
func TestInitialWindowWakes(t *testing.T) {
	const streams, size = 20, writeBuffer + 1
	s := serve(t, true, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, size)) }), nil)
	c := dial(t, s, 0)
	_ = c.WriteWindowUpdate(0, streams*size)
	for i := range uint32(streams) {
		c.get(2*i+1, "/")
	}
	_ = c.WriteWindowUpdate(1, 7)
	got := map[uint32]int{}
	for _, window := range []int{0, 10, 5, 1000, size} {
		c.initialWindow(uint32(window))
		wants := func(id uint32) int {
			want := max(window, got[id])
			if id == 1 {
				want = max(window+7, got[id])
			}
			return min(want, size)
		}
		for {
			behind := slices.ContainsFunc([]uint32{1, 3, 2*streams - 1}, func(id uint32) bool { return got[id] < wants(id) })
			all := 0
			for i := range uint32(streams) {
				all += wants(2*i+1) - got[2*i+1]
			}
			if all == 0 && !behind {
				break
			}
			f, err := c.next()
			if err != nil {
				t.Fatalf("window %d: %d bytes are missing: %v", window, all, err)
			}
			if d, ok := f.(*http2.DataFrame); ok {
				if got[d.StreamID] += len(d.Data()); got[d.StreamID] > wants(d.StreamID) {
					t.Fatalf("window %d: %d bytes on stream %d", window, got[d.StreamID], d.StreamID)
				}
			}
		}
	}
}

// TestInitialWindowTooLarge: a window beyond 2^31-1 ends the connection if the settings have made it so, and its stream if
// that was WINDOW_UPDATE (RFC 9113, 6.9.1 and 6.9.2).
func TestInitialWindowTooLarge(t *testing.T) {
	const most, first = math.MaxInt32, 1000
	const sends = 600
	const ends = "goaway FLOW_CONTROL_ERROR"
	for _, q := range []struct {
		name string
		send func(*raw)
		want string
	}{
		{"as large as it may be", func(c *raw) { _ = c.WriteWindowUpdate(1, most-first); c.initialWindow(first) }, "ping"},
		{"a byte more", func(c *raw) { _ = c.WriteWindowUpdate(1, most-first); c.initialWindow(first + 1) }, ends},
		{"a byte more, by WINDOW_UPDATE", func(c *raw) { c.initialWindow(first + 1); _ = c.WriteWindowUpdate(1, most-first) }, "reset FLOW_CONTROL_ERROR"},
		{"smaller before", func(c *raw) { c.initialWindow(0); _ = c.WriteWindowUpdate(1, most); c.initialWindow(1) }, ends},
		{"smaller before, and as large again", func(c *raw) {
			_ = c.WriteWindowUpdate(1, most-first)
			c.initialWindow(0)
			c.initialWindow(first)
		}, "ping"},
		{"for a moment", func(c *raw) {
			_ = c.WriteWindowUpdate(1, most-first)
			c.initialWindow(first + 1)
			c.initialWindow(first)
		}, ends},
		{"the stream is gone", func(c *raw) {
			_ = c.WriteWindowUpdate(1, most-first)
			_ = c.WriteRSTStream(1, http2.ErrCodeCancel)
			c.initialWindow(most)
		}, "ping"},
		{"the stream is gone, and another one has enough", func(c *raw) {
			c.get(3, "/hold")
			_ = c.WriteWindowUpdate(1, most-first)
			_ = c.WriteWindowUpdate(3, 1)
			_ = c.WriteRSTStream(1, http2.ErrCodeCancel)
			c.initialWindow(most)
		}, ends},
		{"what was sent counts", func(c *raw) { c.sent(sends); _ = c.WriteWindowUpdate(3, most-first+sends); c.initialWindow(first) }, "ping"},
		{"what was sent counts, and a byte more", func(c *raw) {
			c.sent(sends)
			_ = c.WriteWindowUpdate(3, most-first+sends)
			c.initialWindow(first + 1)
		}, ends},
		{"the largest one has sent", func(c *raw) {
			c.sent(0)
			_ = c.WriteWindowUpdate(3, sends)
			c.initialWindow(0)
			c.initialWindow(first)
		}, "ping"},
	} {
		t.Run(q.name, func(t *testing.T) {
			s := serve(t, true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/send" {
					_, _ = w.Write(make([]byte, sends))
					w.(http.Flusher).Flush()
				}
				<-r.Context().Done()
			}), nil)
			c := dial(t, s, first)
			c.get(1, "/hold")
			q.send(c)
			if got := c.pinged(); got != q.want {
				t.Errorf("%s, want %s", got, q.want)
			}
		})
	}
}

// sent opens stream 3 and waits until it has sent so many bytes.
func (c *raw) sent(n int) {
	c.get(3, "/send")
	for n > 0 {
		f, err := c.next()
		must.OK(c.t, err)
		if d, ok := f.(*http2.DataFrame); ok {
			n -= len(d.Data())
		}
	}
}
