package h2

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// pipes is a listener in memory.
type pipes struct {
	accepted chan net.Conn
	closed   chan struct{}
	once     sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accepted:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// fuzzed is one of the two servers of FuzzFrames.
type fuzzed struct {
	*httptest.Server
	in     *pipes
	client *tls.Config

	of *seen // the connection that is dialed
}

// seen is what handlers of a connection have been given.
type seen struct {
	mu       sync.Mutex
	requests []string
	release  chan struct{} // closed: handlers end
}

type seenKey struct{}

func (s *seen) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.Sort(s.requests)
	return slices.Clone(s.requests)
}

// ServeHTTP notes the request and holds the stream: what frames mean depends on which streams are open.
func (s *fuzzed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var names []string
	for name, values := range r.Header {
		names = append(names, fmt.Sprintf("%q=%q", name, values))
	}
	slices.Sort(names)
	of := r.Context().Value(seenKey{}).(*seen)
	of.mu.Lock()
	of.requests = append(of.requests, fmt.Sprintf("%q %q %q %q %q %d %v", r.Method, r.RequestURI, r.URL, r.Host, r.Proto, r.ContentLength, names))
	of.mu.Unlock()
	<-of.release
	_, _ = io.Copy(w, io.LimitReader(r.Body, 10))
}

// last is the PING behind what is sent.
var last = [8]byte{'t', 'h', 'e', ' ', 'l', 'a', 's', 't'}

// outcome sends frames and tells what the server makes of them.
func (s *fuzzed) outcome(t *testing.T, input []byte, whole bool) (conn string, requests *seen) {
	s.of = &seen{release: make(chan struct{})}
	ours, theirs := net.Pipe()
	s.in.accepted <- theirs
	c := tls.Client(ours, s.client)
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = c.Write(input)
		if !whole {
			_ = c.CloseWrite()
		}
	}()
	var said []string
	gone := map[uint32]bool{}
	in := http2.NewFramer(nil, c)
	for over := false; !over; {
		f, err := in.ReadFrame()
		var late net.Error
		switch {
		case errors.As(err, &late) && late.Timeout():
			t.Fatalf("neither an end nor an answer to PING for %q", input)
		case err != nil:
			said, over = append(said, "end"), true
		}
		switch f := f.(type) {
		case *http2.GoAwayFrame:
			said = append(said, "goaway "+f.ErrCode.String())
			over = f.ErrCode != http2.ErrCodeNo
		case *http2.RSTStreamFrame:
			if !gone[f.StreamID] { // frames behind a reset may be answered by another one, or not any more
				said = append(said, fmt.Sprintf("reset %d %s", f.StreamID, f.ErrCode))
			}
			gone[f.StreamID] = true
		case *http2.PingFrame:
			over = over || f.Data == last
			said = append(said, "ping")
		case *http2.MetaHeadersFrame, *http2.HeadersFrame, *http2.DataFrame:
			// Of refusals.
			if f.Header().Type == http2.FrameHeaders {
				said = append(said, fmt.Sprintf("headers %d", f.Header().StreamID))
			}
		}
	}
	// Which of them comes first is up to the writers.
	slices.Sort(said)
	said = slices.DeleteFunc(said, func(s string) bool {
		return strings.HasPrefix(s, "headers") || strings.HasSuffix(s, "NO_ERROR") && strings.HasPrefix(s, "reset") // of refusals
	})
	refusal := func(s string) bool { return strings.HasPrefix(s, "goaway") && s != "goaway NO_ERROR" }
	if i := slices.IndexFunc(said, refusal); i >= 0 {
		said = said[i : i+1] // the end of the connection may overtake the rest
	} else if slices.Contains(said, "end") {
		said = []string{"end"}
	}
	close(s.of.release)
	_ = ours.Close()
	<-sent
	if !whole {
		said = nil // the end of what is sent may overtake all of it
	}
	return strings.Join(said, ", "), s.of
}

// framesOf makes of a fuzzer's bytes what a client sends: type, flags, stream, length and payload of a frame, again
// and again. Of the type 0x80, the payload is names and values of headers, which are encoded; other high ones end it, and what
// is behind is sent as it is, and need not be whole frames. again says that a stream has HEADERS twice.
func framesOf(data []byte) (sent []byte, whole, again bool) {
	var b, fields bytes.Buffer
	opened := map[uint32]bool{}
	b.WriteString(http2.ClientPreface)
	f := http2.NewFramer(&b, nil)
	f.AllowIllegalWrites = true
	if len(data) == 0 || data[0] != 0xfe {
		_ = f.WriteSettings()
	}
	for len(data) >= 4 {
		kind, flags, id, n := data[0], data[1], uint32(data[2]), int(data[3])
		if kind == 0xff {
			b.Write(data[1:])
			return b.Bytes(), false, again
		}
		data = data[4:]
		n = min(n, len(data))
		payload := data[:n]
		data = data[n:]
		if kind == 0x80 {
			fields.Reset()
			e := hpack.NewEncoder(&fields)
			e.SetMaxDynamicTableSizeLimit(0)
			parts := strings.Split(string(payload), "\xff")
			for i := 0; i+1 < len(parts); i += 2 {
				_ = e.WriteField(hpack.HeaderField{Name: parts[i], Value: parts[i+1]})
			}
			kind, payload = byte(http2.FrameHeaders), fields.Bytes()
		}
		if kind == byte(http2.FrameHeaders) {
			again = again || opened[id]
			opened[id] = true
		}
		_ = f.WriteRawFrame(http2.FrameType(kind), http2.Flags(flags), id, payload)
	}
	_ = f.WritePing(false, last)
	return b.Bytes(), true, again
}

// FuzzFrames: whatever a client sends, our server hands the same requests to the handler as net/http's, resets the same
// streams, ends the connection for the same reason, and nothing is left.
func FuzzFrames(f *testing.F) {
	head := func(flags, id byte, more ...string) []byte {
		p := strings.Join(append([]string{":method", "GET", ":scheme", "https", ":authority", "h", ":path", "/a"}, more...), "\xff")
		return append([]byte{0x80, flags, id, byte(len(p))}, p...)
	}
	frame := func(kind, flags, id byte, payload string) []byte {
		return append([]byte{kind, flags, id, byte(len(payload))}, payload...)
	}
	join := func(b ...[]byte) []byte { return bytes.Join(b, nil) }
	for _, seed := range [][]byte{
		nil, {0xfe, 0, 0, 0}, head(5, 1), join(head(4, 1, "content-length", "3"), frame(0, 1, 1, "abc")),
		head(5, 1, "cookie", "a=b", "cookie", "c", "host", "x", "te", "trailers", "trailer", "a, b", "a", "\r\n"),
		join(head(5, 1, "connection", "close"), head(5, 3, "transfer-encoding", "chunked"), head(5, 5, "A", "b"), head(5, 7, "expect", "100-continue, x")),
		join(head(4, 1), frame(0, 8, 1, "\x02abc\x00\x00"), frame(8, 0, 1, "\x00\x00\x00\x09"), frame(3, 0, 1, "\x00\x00\x00\x08"), frame(0, 1, 1, "x")),
		join(frame(4, 0, 0, "\x00\x04\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00"), frame(4, 1, 0, ""), frame(6, 0, 0, "12345678"), frame(7, 0, 0, "\x00\x00\x00\x00\x00\x00\x00\x00"), head(5, 1)),
		join(frame(2, 0, 3, "\x00\x00\x00\x01\x10"), head(0, 1), frame(9, 4, 1, ""), frame(5, 4, 1, "\x00\x00\x00\x02")),
		join(frame(0x80, 5, 1, ":method\xffCONNECT\xff:authority\xffh:1"), frame(0x80, 5, 3, ":method\xffGET\xff:scheme\xffhttp\xff:path\xff*\xffhost\xffa@b")),
		join(frame(7, 0, 0, "\x00\x00\x00\x00\x00\x00\x00\x00"), frame(0x80, 5, 118, "")), // an even stream behind a GOAWAY
		join(head(4, 1), frame(0x80, 5, 1, ":path\xffx"), []byte("\xff\x00\x00\x04\x08\x00\x00\x00\x00\x00\x7f\xff\xff\xff")),
	} {
		f.Add(seed)
	}
	var servers [2]*fuzzed
	for i := range servers {
		s := &fuzzed{}
		s.in = &pipes{accepted: make(chan net.Conn), closed: make(chan struct{})}
		s.Server = serveOn(f, s.in, i == 0, s, func(c *http.Server) {
			c.ConnContext = func(ctx context.Context, _ net.Conn) context.Context { return context.WithValue(ctx, seenKey{}, s.of) }
		})
		s.client = &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}, ServerName: "h", ClientSessionCache: tls.NewLRUClientSessionCache(1)}
		servers[i] = s
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		input, whole, again := framesOf(data)
		var conns [2]string
		var requests [2]*seen
		for i, s := range servers {
			conns[i], requests[i] = s.outcome(t, input, whole)
		}
		// Handlers begin when they may; the connection may have ended by then.
		for end := time.Now().Add(5 * time.Second); !slices.Equal(requests[0].all(), requests[1].all()) && time.Now().Before(end); {
			runtime.Gosched()
		}
		if own, other := requests[0].all(), requests[1].all(); !sameEnd(conns[0], conns[1], again) || !slices.Equal(own, other) {
			t.Errorf("own      %s, %q\nnet/http %s, %q", conns[0], own, conns[1], other)
		}
	})
}

// sameEnd compares what was said. A connection that breaks off behind a mistake may end before that is said.
func sameEnd(a, b string, again bool) bool {
	const protocol = "goaway PROTOCOL_ERROR"
	// HEADERS again on a stream that was reset: net/http drops them, and goes on, until the reset is written.
	if again && (a == protocol || b == protocol) {
		return true
	}
	return a == b || a == "end" && strings.HasPrefix(b, "goaway") || b == "end" && strings.HasPrefix(a, "goaway")
}
