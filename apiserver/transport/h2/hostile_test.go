package h2

import (
	"bytes"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/quorate/quorate/internal/must"
	"golang.org/x/net/http2"
)

// serveKnown is serve by this package, and its insides.
func serveKnown(t testing.TB, h http.Handler, configure func(*http.Server)) (*httptest.Server, *server) {
	t.Helper()
	own := &server{conns: map[*conn]struct{}{}}
	return serve(t, false, h, func(s *http.Server) {
		if configure != nil {
			configure(s)
		}
		own.http = s
		own.configure()
	}), own
}

// only is the server's only connection.
func (s *server) only(t *testing.T) *conn {
	t.Helper()
	var found *conn
	await(t, "a connection", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for c := range s.conns {
			found = c
		}
		return len(s.conns) == 1
	})
	return found
}

// look calls f with the connection's lock.
func (c *conn) look(f func() bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return f()
}

func await(t *testing.T, what string, f func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.After(20 * time.Second); !f(); {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("no %s", what)
		}
	}
}

// drain reads until the connection ends.
func (c *raw) drain() { _, _ = io.Copy(io.Discard, c.conn) }

// TestFewWakes: a frame that grants a byte wakes one stream, not all that wait.
func TestFewWakes(t *testing.T) {
	const streams, frames = 100, 100
	s, own := serveKnown(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, initialWindow))
		w.(http.Flusher).Flush()
	}), nil)
	for _, q := range []struct {
		name   string
		window uint32 // of streams
		waits  func(*conn) int
	}{
		{"for the connection's window", 1 << 20, func(c *conn) int { return len(c.forWindow) }},
		{"for their own windows", 0, func(c *conn) int { return len(c.forOwn) }},
	} {
		client := dial(t, s, q.window)
		go client.drain()
		c := own.only(t)
		for i := range uint32(streams + 1) {
			client.get(2*i+1, "/") // the first one uses up the connection's window, if it has one of its own
		}
		await(t, "streams that wait", func() bool { return c.look(func() bool { return q.waits(c) >= streams }) })
		granted := func() (n int64) { // by frames that were seen, and if there is a stream for it, taken
			if q.window == 0 {
				return c.sendWindow
			}
			for _, st := range c.streams {
				n -= st.window()
			}
			return n
		}
		var began int
		var before int64
		c.look(func() bool { began, before = c.wakes, granted(); return true })
		for i := range int64(frames) {
			_ = client.WriteWindowUpdate(0, 1)
			await(t, "window", func() bool { return c.look(func() bool { return granted() == before+i+1 }) })
		}
		c.look(func() bool {
			if n := c.wakes - began; n > 2*frames {
				t.Errorf("%s: %d wake-ups for %d frames", q.name, n, frames)
			}
			return true
		})
		_ = client.conn.Close()
		await(t, "end", func() bool { own.mu.Lock(); defer own.mu.Unlock(); return len(own.conns) == 0 })
	}
}

// TestTurnsAreHandedOn: streams that are reset while they wait for the connection's window, or have just been woken, keep
// none of it from the others.
func TestTurnsAreHandedOn(t *testing.T) {
	const streams = 60
	s, own := serveKnown(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 10_000)) }), nil)
	client := dial(t, s, 1<<20)
	c := own.only(t)
	for i := range uint32(streams) {
		client.get(2*i+1, "/")
	}
	await(t, "streams that wait", func() bool { return c.look(func() bool { return len(c.forWindow) >= streams-7 }) })
	go client.drain()
	var b bytes.Buffer
	out := http2.NewFramer(&b, nil)
	for range streams / 2 {
		// The first one is woken, and reset before it does anything.
		var first uint32
		c.look(func() bool { first = c.forWindow[0].id; return true })
		_ = out.WriteWindowUpdate(0, 1)
		_ = out.WriteRSTStream(first, http2.ErrCodeCancel)
		_, _ = client.conn.Write(b.Bytes())
		b.Reset()
		await(t, "stream that takes the window", func() bool {
			return c.look(func() bool {
				return c.streams[first] == nil && c.sendWindow == 0 && len(c.forWindow) == len(c.streams)
			})
		})
	}
	_ = client.beside().WriteWindowUpdate(0, 10_000*streams)
	await(t, "end of the others", func() bool { return c.look(func() bool { return len(c.streams) == 0 }) })
}

// TestUnreadHeaders: answers without a body need no window, and do not pile up for a client that does not read.
func TestUnreadHeaders(t *testing.T) {
	s, own := serveKnown(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Etag", strings.Repeat("x", 1000))
	}), nil)
	client := dial(t, s, 0)
	c := own.only(t)
	b := block("HEAD", "/")
	for id := uint32(1); id < 2_000_000; id += 2 {
		if client.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: b, EndStream: true, EndHeaders: true}) != nil {
			return // too many answers, which do not wait
		}
		c.look(func() bool {
			if n := len(c.out); n > 2*maxOut+maxControl*20 {
				t.Fatalf("%d bytes wait after %d requests", n, id/2)
			}
			return true
		})
	}
	t.Error("a client that does not read may go on")
}

// TestBehindGoAway: what a client has sent before it has read the GOAWAY ends nothing that is still served.
func TestBehindGoAway(t *testing.T) {
	for _, own := range []bool{true, false} {
		begun, end := make(chan struct{}), make(chan struct{})
		s := serve(t, own, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			close(begun)
			<-end
			_, _ = w.Write([]byte("done"))
		}), nil)
		c := dial(t, s, 1000)
		c.get(1, "/long")
		<-begun
		down := make(chan error, 1)
		go func() { down <- s.Config.Shutdown(t.Context()) }()
		if f, err := c.next(); err != nil || f.Header().Type != http2.FrameGoAway {
			t.Fatalf("%v, %v", f, err)
		}
		_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: block("POST", "/"), EndHeaders: true})
		_ = c.WriteData(3, false, []byte("a body"))
		_ = c.WriteWindowUpdate(3, 100)
		_ = c.WriteData(3, true, []byte("its end"))
		_ = c.WriteRSTStream(3, http2.ErrCodeCancel)
		_ = c.WritePing(false, [8]byte{7})
		if f, err := c.next(); err != nil || f.Header().Type != http2.FramePing {
			t.Fatalf("own %v: %v, %v", own, f, err)
		}
		close(end)
		if got := c.outcome(); got != "headers 1 200 false, data 1 4 true" {
			t.Errorf("own %v: %s", own, got)
		}
		_ = c.conn.Close()
		if err := <-down; err != nil {
			t.Error(err)
		}
	}
}

// TestConnectionBehindShutdown: a connection whose handshake has ended after Shutdown is not served for ever.
func TestConnectionBehindShutdown(t *testing.T) {
	s, own := serveKnown(t, http.NotFoundHandler(), nil)
	own.shutDown()
	c := dial(t, s, 100)
	if f, err := c.next(); err != nil || f.Header().Type != http2.FrameGoAway {
		t.Errorf("%v, %v", f, err)
	}
}

// TestBodyBehind: the buffer of a body whose reader is always a little behind does not grow with the body.
func TestBodyBehind(t *testing.T) {
	st, chunk := &stream{}, make([]byte, 1000)
	st.addToBody(chunk)
	for range 100_000 {
		st.addToBody(chunk)
		st.bodyRead += len(chunk)
	}
	if n := cap(st.body); n > 10*len(chunk) {
		t.Errorf("%d bytes for %d that are not read", n, len(st.body)-st.bodyRead)
	}
}

// TestStalledWriteEnds: the handler that writes for the connection is let go in time, also if its stream was reset.
func TestStalledWriteEnds(t *testing.T) {
	ended := make(chan struct{})
	s, own := serveKnown(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // as watches do
		for {
			if _, err := w.Write(make([]byte, 1<<20)); err != nil {
				return
			}
		}
	}), func(s *http.Server) { s.WriteTimeout = 500 * time.Millisecond })
	client := dial(t, s, 1<<31-1)
	_ = client.WriteWindowUpdate(0, 1<<30)
	client.get(1, "/")
	c := own.only(t)
	stalled := func() bool {
		return c.look(func() bool { return c.writing && !c.writeBy.IsZero() && time.Until(c.writeBy) < 300*time.Millisecond })
	}
	await(t, "a write that does not end", stalled)
	_ = client.WriteRSTStream(1, http2.ErrCodeCancel)
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatal("the handler waits for ever")
	}
	await(t, "end of the connection", func() bool { own.mu.Lock(); defer own.mu.Unlock(); return len(own.conns) == 0 })
}

// TestRefusalsDoNotWait: a refusal is none of the handler's answers, which somebody may count, so it leaves nothing
// that waits for a client.
func TestRefusalsDoNotWait(t *testing.T) {
	s := serve(t, true, http.NotFoundHandler(), func(s *http.Server) { s.MaxHeaderBytes = 1000 })
	var many []string
	for range 40 {
		many = append(many, "a", "some value")
	}
	for _, b := range [][]byte{block("GET", "/", "connection", "close"), block("GET", "/", many...)} {
		c := dial(t, s, 0)
		_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: b, EndStream: true, EndHeaders: true})
		if got := c.outcome(); !strings.HasSuffix(got, "false, reset 1 ENHANCE_YOUR_CALM") {
			t.Errorf("%s", got)
		}
	}
}

// TestFieldsAreBounded: a request has so many header fields at most.
func TestFieldsAreBounded(t *testing.T) {
	s := serve(t, true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.Header) > maxFields {
			t.Errorf("%d fields", len(r.Header))
		}
	}), nil)
	for extra, want := range map[int]string{0: "200", 1: "431"} {
		var many []string
		for i := range maxFields + extra {
			many = append(many, fmt.Sprint("a", i), "")
		}
		c := dial(t, s, 1<<16)
		_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block("GET", "/", many...), EndStream: true, EndHeaders: true})
		if got := c.outcome(); !strings.HasPrefix(got, "headers 1 "+want) {
			t.Errorf("%d more: %s", extra, got)
		}
	}
}

// TestWaitingAnswersForgetRequests: an answer that waits for its client's window keeps nothing of its request.
func TestWaitingAnswersForgetRequests(t *testing.T) {
	const streams = 10
	var mu sync.Mutex
	var requests []weak.Pointer[http.Request]
	s, own := serveKnown(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		requests = append(requests, weak.Make(r))
		mu.Unlock()
		_, _ = w.Write([]byte("x"))
	}), nil)
	client := dial(t, s, 0)
	go client.drain()
	c := own.only(t)
	for i := range uint32(streams) {
		client.get(2*i+1, "/")
	}
	wait := func() bool { return len(c.forOwn) == streams }
	await(t, "answers that wait", func() bool { return c.look(wait) })
	await(t, "request that is gone", func() bool {
		runtime.GC()
		mu.Lock()
		defer mu.Unlock()
		return len(requests) == streams && !slices.ContainsFunc(requests, func(p weak.Pointer[http.Request]) bool { return p.Value() != nil })
	})
	if !c.look(wait) {
		t.Error("the answers have not waited")
	}
}

// TestLateStreams: a request that its client has reset before it was handled keeps no headers, and the handler
// that starts when another ends has no label of that one.
func TestLateStreams(t *testing.T) {
	end, last := make(chan struct{}), make(chan string, 1)
	s, own := serveKnown(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/last" {
			var b bytes.Buffer
			_ = pprof.Lookup("goroutine").WriteTo(&b, 1)
			last <- b.String()
			return
		}
		<-end
		pprof.SetGoroutineLabels(pprof.WithLabels(t.Context(), pprof.Labels("whose", "the-first-one")))
	}), func(s *http.Server) { s.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 1} })
	client := dial(t, s, 100)
	c := own.only(t)
	for id := uint32(1); id < 7; id += 2 {
		client.get(id, "/")
		_ = client.WriteRSTStream(id, http2.ErrCodeCancel)
	}
	client.get(7, "/last")
	await(t, "late streams", func() bool { return c.look(func() bool { return len(c.late) == 3 }) })
	c.look(func() bool {
		for _, st := range c.late {
			if st.closed != (st.request == nil) {
				t.Errorf("stream %d: closed %v, request %v", st.id, st.closed, st.request)
			}
		}
		return true
	})
	close(end)
	if got := <-last; strings.Contains(got, "the-first-one") {
		t.Error("the label is inherited")
	}
}

// TestNoContinueBehindHeaders: behind the answer's headers a 100 would break the answer.
func TestNoContinueBehindHeaders(t *testing.T) {
	for _, own := range []bool{true, false} {
		s := serve(t, own, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			_, _ = io.ReadAll(r.Body)
		}), nil)
		c := dial(t, s, 100)
		_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block("POST", "/", "expect", "100-continue"), EndHeaders: true})
		if f, err := c.next(); err != nil || f.Header().Type != http2.FrameHeaders {
			t.Fatalf("%v, %v", f, err)
		}
		_ = c.WriteData(1, true, []byte("x"))
		if got := c.outcome(); got != "data 1 0 true" {
			t.Errorf("own %v: %s", own, got)
		}
	}
}

// TestServerClose: open connections end, and ConnState hears of it.
func TestServerClose(t *testing.T) {
	var closed atomic.Int64
	begun, ended := make(chan struct{}), make(chan error, 1)
	s := serve(t, true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
		_, err := w.Write(make([]byte, 10_000))
		ended <- err
	}), func(s *http.Server) {
		s.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed {
				closed.Add(1)
			}
		}
	})
	c := dial(t, s, 100)
	c.get(1, "/")
	<-begun
	_ = s.Config.Close()
	if err := <-ended; err == nil {
		t.Error("written")
	}
	await(t, "StateClosed", func() bool { return closed.Load() == 1 })
	awaitFrames(t, "h2.(*server).work", "h2.(*conn)")
}

// TestDisorder: many connections on which everything happens at any moment: resets, windows, slow readers, bodies, ends of
// connections, and the server's. No answer has another's bytes, and nothing is left.
func TestDisorder(t *testing.T) {
	duration := 2 * time.Second
	if d := *disorder; d > 0 {
		duration = d
	}
	s := serve(t, true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mark := []byte(r.URL.Path[1:2])
		switch r.URL.Path[2:] {
		case "panic":
			_, _ = w.Write(mark)
			panic(http.ErrAbortHandler)
		case "echo":
			if _, err := io.Copy(w, r.Body); err != nil {
				return
			}
		case "continue":
			w.WriteHeader(http.StatusEarlyHints)
		case "deadline":
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Millisecond))
		}
		n := 1 << (len(r.URL.RawQuery) % 20)
		for n > 0 {
			part := min(n, 1+rand.IntN(40_000))
			if _, err := w.Write(bytes.Repeat(mark, part)); err != nil {
				return
			}
			n -= part
			if part%3 == 0 {
				w.(http.Flusher).Flush()
			}
		}
	}), func(s *http.Server) { s.WriteTimeout = 3 * time.Second })
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 6 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					disorderly(t, s, stop)
				}
			}
		})
	}
	<-time.After(duration)
	close(stop)
	_ = s.Config.Shutdown(t.Context())
	wg.Wait()
	awaitFrames(t, "h2.(*server).work", "h2.(*conn)")
}

// disorderly is one connection of TestDisorder.
func disorderly(t *testing.T, s *httptest.Server, stop chan struct{}) {
	conn, err := tls.Dial("tcp", strings.TrimPrefix(s.URL, "https://"), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err != nil {
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	_, _ = io.WriteString(conn, http2.ClientPreface)
	var mu sync.Mutex
	out := http2.NewFramer(conn, nil)
	_ = out.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(rand.IntN(100_000))})
	done := make(chan struct{})
	go func() {
		defer close(done)
		in := http2.NewFramer(nil, conn)
		slow := rand.IntN(4) == 0
		for {
			f, err := in.ReadFrame()
			if err != nil {
				return
			}
			switch f := f.(type) {
			case *http2.DataFrame:
				want := byte('a' + f.StreamID/2%26)
				if i := bytes.IndexFunc(f.Data(), func(r rune) bool { return r != rune(want) }); i >= 0 {
					t.Errorf("stream %d: byte %q in place of %q", f.StreamID, f.Data()[i], want)
				}
				if n := uint32(len(f.Data())); n > 0 && !slow {
					mu.Lock()
					_ = out.WriteWindowUpdate(0, n)
					_ = out.WriteWindowUpdate(f.StreamID, n)
					mu.Unlock()
				}
			case *http2.SettingsFrame:
				if !f.IsAck() {
					mu.Lock()
					_ = out.WriteSettingsAck()
					mu.Unlock()
				}
			}
		}
	}()
	send := func(f func() error) bool {
		mu.Lock()
		defer mu.Unlock()
		return f() == nil
	}
	kinds := []string{"plain", "panic", "echo", "continue", "deadline"}
	last := 2 * rand.IntN(400)
	for id := uint32(1); int(id) < last; id += 2 {
		mark := byte('a' + id/2%26)
		kind := kinds[rand.IntN(len(kinds))]
		method, ends := "GET", true
		if kind == "echo" {
			method, ends = "POST", false
		}
		b := block(method, fmt.Sprintf("/%c%s?%s", mark, kind, strings.Repeat("n", rand.IntN(20))))
		ok := send(func() error {
			return out.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: b, EndStream: ends, EndHeaders: true})
		})
		if !ends {
			for range rand.IntN(4) {
				ok = ok && send(func() error { return out.WriteData(id, false, bytes.Repeat([]byte{mark}, rand.IntN(5000))) })
			}
			if rand.IntN(3) > 0 {
				ok = ok && send(func() error { return out.WriteData(id, true, nil) })
			}
		}
		old := 1 + 2*uint32(rand.IntN(int(id/2)+1))
		switch rand.IntN(8) {
		case 0, 1:
			ok = ok && send(func() error { return out.WriteRSTStream(old, http2.ErrCodeCancel) })
		case 2:
			ok = ok && send(func() error {
				return out.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(rand.IntN(100_000))})
			})
		case 3:
			ok = ok && send(func() error { return out.WriteWindowUpdate(old, 1+uint32(rand.IntN(1000))) })
		case 4:
			ok = ok && send(func() error { return out.WritePing(false, [8]byte{}) })
		}
		if !ok {
			break
		}
	}
	if rand.IntN(2) == 0 {
		select {
		case <-done:
		case <-stop:
		case <-time.After(time.Duration(rand.IntN(300)) * time.Millisecond):
		}
	}
	_ = conn.Close()
	<-done
}

var disorder = flag.Duration("disorder", 0, "how long TestDisorder goes on")

// TestGoAwayBehindAnswer: an answer that ends its connection comes first, and is whole; a client that does not wait for it
// gets the GOAWAY nevertheless.
func TestGoAwayBehindAnswer(t *testing.T) {
	s := serve(t, true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/reset" {
			<-r.Context().Done()
		}
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte("no"))
		if r.URL.Path == "/panic" {
			panic(http.ErrAbortHandler)
		}
	}), nil)
	c := dial(t, s, 100)
	c.get(1, "/")
	if got := c.outcome(); got != "headers 1 403 false, data 1 2 true" {
		t.Errorf("%s", got)
	}
	if got := c.outcome(); got != "goaway NO_ERROR" {
		t.Errorf("%s", got)
	}
	c = dial(t, s, 100)
	c.get(1, "/reset")
	_ = c.WriteRSTStream(1, http2.ErrCodeCancel)
	if got := c.outcome(); got != "goaway NO_ERROR" {
		t.Errorf("reset: %s", got)
	}
	c = dial(t, s, 100)
	c.get(1, "/panic")
	if got := c.outcome() + ", " + c.outcome(); got != "reset 1 INTERNAL_ERROR, goaway NO_ERROR" {
		t.Errorf("panic: %s", got)
	}
}

// TestFramesBehindReset: what a client sends on a stream before it knows that the server has reset that is not answered,
// neither by another reset nor by the end of the connection.
func TestFramesBehindReset(t *testing.T) {
	s := serve(t, true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "GET" {
			w.WriteHeader(http.StatusNoContent)
		} else {
			_, _ = io.Copy(io.Discard, r.Body)
		}
	}), nil)
	c := dial(t, s, 1<<16-1)
	for id := uint32(1); id <= 5; id += 2 {
		_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block("POST", "/", "content-length", "1"), EndHeaders: true})
		_ = c.WriteData(id, false, []byte("more than that"))
	}
	for id := uint32(1); id <= 5; id += 2 {
		_ = c.WriteData(id, false, []byte("more"))
		_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: fields("x-trailer", "1"), EndStream: true, EndHeaders: true})
	}
	c.get(7, "/")
	for _, want := range []string{"reset 1 PROTOCOL_ERROR", "reset 3 PROTOCOL_ERROR", "reset 5 PROTOCOL_ERROR", "headers 7 204 true"} {
		if got := c.outcome(); got != want {
			t.Fatalf("%s, want %s", got, want)
		}
	}
}

// TestResetBehindAnswer: what tells the client to send no more of its body comes in a record behind the answer's. curl
// 7.88 loses the answer otherwise.
func TestResetBehindAnswer(t *testing.T) {
	s := serve(t, true, http.HandlerFunc(ask), nil)
	c := dial(t, s, 1<<20)
	_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block("POST", "/unread", "content-length", "9"), EndHeaders: true})
	for {
		var b [16 << 10]byte
		n, err := c.conn.Read(b[:]) // of one record
		must.OK(t, err)
		var kinds []http2.FrameType
		f := http2.NewFramer(nil, bytes.NewReader(b[:n]))
		for frame, err := f.ReadFrame(); err == nil; frame, err = f.ReadFrame() {
			kinds = append(kinds, frame.Header().Type)
		}
		if slices.Contains(kinds, http2.FrameRSTStream) {
			if slices.Contains(kinds, http2.FrameHeaders) {
				t.Errorf("%v in one record", kinds)
			}
			return
		}
	}
}

// TestFramesAreSmall: what a connection reads a frame into is small, whatever length the frame says it has.
func TestFramesAreSmall(t *testing.T) {
	s := serve(t, true, http.NotFoundHandler(), nil)
	c := dial(t, s, 100)
	f, err := c.ReadFrame()
	settings, ok := f.(*http2.SettingsFrame)
	if !ok {
		t.Fatalf("%v, %v", f, err)
	}
	if most, _ := settings.Value(http2.SettingMaxFrameSize); most > 64<<10 {
		t.Errorf("frames of %d bytes", most)
	}
	_ = c.WriteSettingsAck()
	_, _ = c.conn.Write([]byte{1, 0, 1, byte(http2.FrameHeaders), 5, 0, 0, 0, 1}) // the head of 64 KiB and a byte
	if got := c.outcome(); got != "goaway FRAME_SIZE_ERROR" {
		t.Errorf("%s", got)
	}
}
