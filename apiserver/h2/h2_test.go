package h2

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// serve starts a server, by this package or by net/http.
func serve(t testing.TB, own bool, h http.Handler, configure func(*http.Server)) *httptest.Server {
	t.Helper()
	return serveOn(t, nil, own, h, configure)
}

// serveOn is serve on a listener; nil: one of its own.
func serveOn(t testing.TB, l net.Listener, own bool, h http.Handler, configure func(*http.Server)) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = true
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.TLS = &tls.Config{NextProtos: []string{"h2"}}
	s.Config.TLSConfig = s.TLS
	if configure != nil {
		configure(s.Config)
	}
	if own {
		Configure(s.Config)
	}
	if l != nil {
		_ = s.Listener.Close()
		s.Listener = l
	}
	s.StartTLS()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// ask is a handler that does many things; what, is the path.
func ask(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/small":
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Audit-Id", "an-id")
		w.Header()["X-Quorate-Index"] = []string{"17"}
		_, _ = w.Write([]byte(`{"a":1}`))
	case "/nothing":
	case "/created":
		w.Header().Set("Location", "/there")
		w.WriteHeader(http.StatusCreated)
		w.Header().Set("Late", "not sent")
		_, _ = io.WriteString(w, "made")
	case "/none":
		w.WriteHeader(http.StatusNoContent)
		if _, err := w.Write([]byte("x")); !errors.Is(err, http.ErrBodyNotAllowed) {
			panic(err)
		}
	case "/large":
		for i := range 40 {
			_, _ = w.Write(bytes.Repeat([]byte{byte('a' + i%26)}, 1000*i))
		}
	case "/flushed":
		_, _ = w.Write([]byte("one "))
		w.(http.Flusher).Flush()
		_, _ = w.Write([]byte("two"))
		w.(http.Flusher).Flush()
	case "/declared":
		w.Header().Set("Content-Length", "5")
		_, _ = w.Write([]byte("12345"))
	case "/many":
		for i := range 300 {
			w.Header().Add("X-Many", strings.Repeat("v", 100)+fmt.Sprint(i)) // more than a frame
		}
	case "/echo":
		body, err := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, "%s %q %d %v %s", r.Method, r.URL.RequestURI(), r.ContentLength, err, body)
	case "/about":
		_, _ = fmt.Fprintf(w, "%s %s %s %v %v %v %v %s", r.Proto, r.Host, r.RequestURI, r.TLS != nil, r.Header["Cookie"], r.Header["Accept"], r.Header["X-Twice"], r.Header.Get("User-Agent"))
	case "/unread":
		w.WriteHeader(http.StatusForbidden)
	case "/panics":
		panic("as it should")
	case "/aborts":
		_, _ = w.Write([]byte("part"))
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	case "/continue":
		w.WriteHeader(http.StatusEarlyHints)
		_, _ = w.Write([]byte("after"))
	default:
		http.NotFound(w, r)
	}
}

// TestSameAsNetHTTP: what clients get is what net/http's own server gives them.
func TestSameAsNetHTTP(t *testing.T) {
	servers := [2]*httptest.Server{serve(t, true, http.HandlerFunc(ask), nil), serve(t, false, http.HandlerFunc(ask), nil)}
	for _, q := range []struct {
		method, path, body string
		header             http.Header
	}{
		{"GET", "/small", "", nil}, {"HEAD", "/small", "", nil}, {"GET", "/nothing", "", nil}, {"HEAD", "/nothing", "", nil},
		{"GET", "/created", "", nil}, {"GET", "/none", "", nil}, {"GET", "/large", "", nil}, {"HEAD", "/large", "", nil},
		{"GET", "/flushed", "", nil}, {"GET", "/declared", "", nil}, {"GET", "/many", "", nil},
		{"GET", "/echo", "", nil}, {"POST", "/echo?a=b", "hello", nil},
		{"PUT", "/echo", strings.Repeat("0123456789", 300_000), nil},
		{"POST", "/echo", "not declared", nil},
		{"POST", "/echo", "expected", http.Header{"Expect": {"100-continue"}}},
		{"GET", "/about", "", http.Header{"Accept": {"a", "b"}, "X-Twice": {"1", "2"}, "Cookie": {"a=1", "b=2"}, "User-Agent": {"me"}}},
		{"POST", "/unread", strings.Repeat("x", 5_000_000), nil},
		{"GET", "/continue", "", nil}, {"GET", "/missing", "", nil}, {"GET", "/panics", "", nil}, {"GET", "/aborts", "", nil},
	} {
		var got [2]string
		for i, s := range servers {
			var body io.Reader
			if q.body != "" {
				body = strings.NewReader(q.body)
				if q.path == "/echo" && q.header == nil {
					body = io.MultiReader(body) // whose length is not known
				}
			}
			got[i] = strings.ReplaceAll(describe(s, q.method, q.path, body, q.header), strings.TrimPrefix(s.URL, "https://"), "HOST")
		}
		if got[0] != got[1] {
			t.Errorf("%s %s:\n own      %.600s\n net/http %.600s", q.method, q.path, got[0], got[1])
		}
	}
}

func describe(s *httptest.Server, method, path string, body io.Reader, header http.Header) string {
	r, err := http.NewRequest(method, s.URL+path, body)
	if err != nil {
		return err.Error()
	}
	for k, v := range header {
		r.Header[k] = v
	}
	resp, err := s.Client().Do(r)
	if err != nil {
		return "error " + err.Error()[strings.LastIndex(err.Error(), ": ")+1:]
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	lines := []string{fmt.Sprintf("%s %s length %d, %d bytes, error %v", resp.Proto, resp.Status, resp.ContentLength, len(got), err)}
	for k, v := range resp.Header {
		if k == "Date" {
			if _, err := http.ParseTime(v[0]); err != nil {
				lines = append(lines, err.Error())
			}
			v = []string{"a date"}
		}
		lines = append(lines, fmt.Sprintf("%s: %.300q", k, v))
	}
	slices.Sort(lines)
	return strings.Join(append(lines, string(got)), "\n")
}

// raw is a client that sends any frames.
type raw struct {
	*http2.Framer
	t    *testing.T
	conn *tls.Conn
}

// dial opens a connection, whose streams have a window of so many bytes at first.
func dial(t *testing.T, s *httptest.Server, window uint32) *raw {
	t.Helper()
	host := strings.TrimPrefix(s.URL, "https://")
	conn, err := tls.Dial("tcp", host, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	c := &raw{http2.NewFramer(conn, conn), t, conn}
	c.AllowIllegalWrites = true
	c.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_, _ = io.WriteString(conn, http2.ClientPreface)
	_ = c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window})
	return c
}

// beside is for another goroutine that sends.
func (c *raw) beside() *raw { return &raw{http2.NewFramer(c.conn, nil), c.t, c.conn} }

// block is headers of a request, and others behind them.
func block(method, path string, more ...string) []byte {
	return fields(append([]string{":method", method, ":scheme", "https", ":authority", "host", ":path", path}, more...)...)
}

// fields is names and values as they are.
func fields(fields ...string) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	e.SetMaxDynamicTableSizeLimit(0)
	for i := 0; i < len(fields); i += 2 {
		_ = e.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	return b.Bytes()
}

func (c *raw) get(id uint32, path string) {
	_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block("GET", path), EndStream: true, EndHeaders: true})
}

// next returns the next frame that matters.
func (c *raw) next() (http2.Frame, error) {
	for {
		f, err := c.ReadFrame()
		if err != nil {
			return nil, err
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				_ = c.WriteSettingsAck()
			}
		case *http2.WindowUpdateFrame:
		default:
			return f, nil
		}
	}
}

// outcome tells what the server says until a stream or the connection ends.
func (c *raw) outcome() string {
	var said []string
	for {
		f, err := c.next()
		if err != nil {
			return strings.Join(append(said, "end"), ", ")
		}
		switch f := f.(type) {
		case *http2.RSTStreamFrame:
			said = append(said, fmt.Sprintf("reset %d %s", f.StreamID, f.ErrCode))
		case *http2.GoAwayFrame:
			return strings.Join(append(said, "goaway "+f.ErrCode.String()), ", ")
		case *http2.MetaHeadersFrame:
			said = append(said, fmt.Sprintf("headers %d %s %v", f.StreamID, f.PseudoValue("status"), f.StreamEnded()))
		case *http2.DataFrame:
			said = append(said, fmt.Sprintf("data %d %d %v", f.StreamID, len(f.Data()), f.StreamEnded()))
		}
		if slices.ContainsFunc(said, func(s string) bool { return strings.HasSuffix(s, "true") || strings.HasPrefix(s, "reset") }) {
			return strings.Join(said, ", ")
		}
	}
}

// TestFramesAsNetHTTP: what breaks the protocol, or is unusual, is answered as net/http does.
func TestFramesAsNetHTTP(t *testing.T) {
	few := func(s *http.Server) { s.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 4} }
	hold := make(chan struct{})
	defer close(hold)
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hold" {
			select {
			case <-hold:
			case <-r.Context().Done():
			}
			return
		}
		ask(w, r)
	})
	servers := [2]*httptest.Server{serve(t, true, h, few), serve(t, false, h, few)}
	headers := func(c *raw, id uint32, end bool, b []byte) {
		_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: b, EndStream: end, EndHeaders: true})
	}
	for _, q := range []struct {
		name string
		send func(*raw)
	}{
		{"a request", func(c *raw) { c.get(1, "/small") }},
		{"an even stream", func(c *raw) { c.get(2, "/small") }},
		{"a stream that went down", func(c *raw) { headers(c, 5, true, block("GET", "/hold")); c.get(3, "/small") }},
		{"DATA on an idle stream", func(c *raw) { _ = c.WriteData(1, true, []byte("x")) }},
		{"DATA behind the end", func(c *raw) { headers(c, 1, true, block("GET", "/hold")); _ = c.WriteData(1, true, []byte("x")) }},
		{"HEADERS behind the end", func(c *raw) {
			headers(c, 1, true, block("GET", "/hold"))
			headers(c, 1, true, block("GET", "/hold"))
		}},
		{"trailers", func(c *raw) {
			headers(c, 1, false, block("POST", "/echo"))
			var b bytes.Buffer
			_ = hpack.NewEncoder(&b).WriteField(hpack.HeaderField{Name: "x", Value: "y"})
			_ = c.WriteData(1, false, []byte("abc"))
			headers(c, 1, true, b.Bytes())
		}},
		{"trailers that do not end", func(c *raw) {
			headers(c, 1, false, block("POST", "/echo"))
			var b bytes.Buffer
			_ = hpack.NewEncoder(&b).WriteField(hpack.HeaderField{Name: "x", Value: "y"})
			headers(c, 1, false, b.Bytes())
		}},
		{"RST_STREAM of an idle stream", func(c *raw) { _ = c.WriteRSTStream(7, http2.ErrCodeCancel) }},
		{"WINDOW_UPDATE of an idle stream", func(c *raw) { _ = c.WriteWindowUpdate(7, 1) }},
		{"a window too large, of a stream", func(c *raw) { headers(c, 1, true, block("GET", "/hold")); _ = c.WriteWindowUpdate(1, 1<<31-1) }},
		{"a window too large, of the connection", func(c *raw) { _ = c.WriteWindowUpdate(0, 1<<31-1) }},
		{"a window of nothing", func(c *raw) { _ = c.WriteRawFrame(http2.FrameWindowUpdate, 0, 0, []byte{0, 0, 0, 0}) }},
		{"acknowledgements of settings that were not sent", func(c *raw) { _ = c.WriteSettingsAck(); _ = c.WriteSettingsAck(); _ = c.WriteSettingsAck() }},
		{"settings twice in a frame", func(c *raw) {
			_ = c.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1 << 15}, http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1 << 15})
		}},
		{"a setting out of its range", func(c *raw) { _ = c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 31}) }},
		{"an unknown frame", func(c *raw) { _ = c.WriteRawFrame(0x55, 0, 0, []byte("?")); c.get(1, "/small") }},
		{"a promise", func(c *raw) {
			_ = c.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 2, EndHeaders: true})
		}},
		{"a stream that depends on itself", func(c *raw) {
			_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block("GET", "/hold"), EndStream: true, EndHeaders: true, Priority: http2.PriorityParam{StreamDep: 1}})
		}},
		{"CONTINUATION of nothing", func(c *raw) { _ = c.WriteContinuation(1, true, nil) }},
		{"a frame that is too long", func(c *raw) { _ = c.WriteRawFrame(http2.FrameData, 0, 1, make([]byte, 1<<20+1)) }},
		{"no path", func(c *raw) { headers(c, 1, true, block("GET", "")) }},
		{"a path that is none", func(c *raw) { headers(c, 1, true, block("GET", "small")) }},
		{"another scheme", func(c *raw) { headers(c, 1, true, block("GET", "/small", ":scheme", "ftp")) }},
		{"a name in capitals", func(c *raw) { headers(c, 1, true, block("GET", "/small", "Accept", "x")) }},
		{"a header of connections", func(c *raw) { headers(c, 1, true, block("GET", "/small", "connection", "close")) }},
		{"te", func(c *raw) { headers(c, 1, true, block("GET", "/small", "te", "gzip")) }},
		{"CONNECT", func(c *raw) { headers(c, 1, true, fields(":method", "CONNECT", ":authority", "host:1")) }},
		{"CONNECT to nowhere", func(c *raw) { headers(c, 1, true, fields(":method", "CONNECT")) }},
		{"a user in the authority", func(c *raw) {
			headers(c, 1, true, fields(":method", "GET", ":scheme", "https", ":path", "/about", ":authority", "me@host"))
		}},
		{"a user in the host", func(c *raw) {
			headers(c, 1, true, fields(":method", "GET", ":scheme", "https", ":path", "/about", "host", "me@host"))
		}},
		{"a host beside the authority", func(c *raw) { headers(c, 1, true, block("GET", "/about", "host", "other")) }},
		{"a host and no authority", func(c *raw) {
			headers(c, 1, true, fields(":method", "GET", ":scheme", "https", ":path", "/about", "host", "other"))
		}},
		{"two paths", func(c *raw) {
			headers(c, 1, true, fields(":method", "GET", ":scheme", "https", ":path", "/about", ":path", "/small"))
		}},
		{"a pseudo header behind others", func(c *raw) {
			headers(c, 1, true, fields(":method", "GET", ":scheme", "https", "a", "b", ":path", "/about"))
		}},
		{"an unknown pseudo header", func(c *raw) {
			headers(c, 1, true, fields(":method", "GET", ":scheme", "https", ":path", "/about", ":x", "y"))
		}},
		{"a status", func(c *raw) { headers(c, 1, true, fields(":status", "200")) }},
		{"a path with a host", func(c *raw) { headers(c, 1, true, block("GET", "http://other/about")) }},
		{"a path of all", func(c *raw) { headers(c, 1, true, block("OPTIONS", "*")) }},
		{"a path with spaces", func(c *raw) { headers(c, 1, true, block("GET", "/a b")) }},
		{"a path with a line's end", func(c *raw) { headers(c, 1, true, block("GET", "/a\r\nb")) }},
		{"a method with spaces", func(c *raw) { headers(c, 1, true, block("GET /x", "/about")) }},
		{"a value with a line's end", func(c *raw) { headers(c, 1, true, block("GET", "/about", "a", "b\r\nc: d")) }},
		{"a value with a zero", func(c *raw) { headers(c, 1, true, block("GET", "/about", "a", "b\x00")) }},
		{"a name with a colon", func(c *raw) { headers(c, 1, true, block("GET", "/about", "a:b", "c")) }},
		{"a name with a space", func(c *raw) { headers(c, 1, true, block("GET", "/about", "a ", "c")) }},
		{"no name", func(c *raw) { headers(c, 1, true, block("GET", "/about", "", "c")) }},
		{"transfer-encoding", func(c *raw) { headers(c, 1, true, block("GET", "/about", "transfer-encoding", "chunked")) }},
		{"two lengths", func(c *raw) {
			headers(c, 1, false, block("POST", "/echo", "content-length", "3", "content-length", "5"))
			_ = c.WriteData(1, true, []byte("abc"))
		}},
		{"a length that is none", func(c *raw) {
			headers(c, 1, false, block("POST", "/echo", "content-length", "+3"))
			_ = c.WriteData(1, true, []byte("abc"))
		}},
		{"a length that is negative", func(c *raw) {
			headers(c, 1, false, block("POST", "/echo", "content-length", "-1"))
			_ = c.WriteData(1, true, []byte("abc"))
		}},
		{"a length without a body", func(c *raw) { headers(c, 1, true, block("POST", "/echo", "content-length", "3")) }},
		{"expect among others", func(c *raw) {
			headers(c, 1, false, block("POST", "/echo", "expect", "a, 100-continue"))
			_ = c.WriteData(1, true, []byte("abc"))
		}},
		{"a pseudo header among trailers", func(c *raw) {
			headers(c, 1, false, block("POST", "/echo"))
			headers(c, 1, true, fields(":path", "/other"))
		}},
		{"CONNECT with a path", func(c *raw) { headers(c, 1, true, block("CONNECT", "/small")) }},
		{"a protocol", func(c *raw) { headers(c, 1, true, block("CONNECT", "/small", ":protocol", "websocket")) }},
		{"less than declared", func(c *raw) {
			headers(c, 1, false, block("POST", "/echo", "content-length", "5"))
			_ = c.WriteData(1, true, []byte("abc"))
		}},
		{"more than declared", func(c *raw) {
			headers(c, 1, false, block("POST", "/hold", "content-length", "2"))
			_ = c.WriteData(1, true, []byte("abc"))
		}},
		{"padding", func(c *raw) {
			headers(c, 1, false, block("POST", "/echo", "content-length", "3"))
			_ = c.WriteDataPadded(1, true, []byte("abc"), make([]byte, 100))
		}},
		{"too many streams", func(c *raw) {
			for id := uint32(1); id < 11; id += 2 {
				headers(c, id, true, block("GET", "/hold"))
			}
		}},
		{"headers that are too long", func(c *raw) {
			b := block("GET", "/small", "long", strings.Repeat("x", 1<<20+1<<16))
			_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: b[:maxReadFrame], EndStream: true})
			for b = b[maxReadFrame:]; len(b) > maxReadFrame; b = b[maxReadFrame:] {
				_ = c.WriteContinuation(1, false, b[:maxReadFrame])
			}
			_ = c.WriteContinuation(1, true, b)
		}},
		{"a body for nobody", func(c *raw) { headers(c, 1, false, block("POST", "/unread", "content-length", "9")) }},
		{"GOAWAY", func(c *raw) { _ = c.WriteGoAway(0, http2.ErrCodeNo, nil) }},
	} {
		t.Run(q.name, func(t *testing.T) {
			var got [2]string
			for i, s := range servers {
				c := dial(t, s, 1<<20)
				q.send(c)
				got[i] = c.outcome()
			}
			if got[0] != got[1] {
				t.Errorf("own %q, net/http %q", got[0], got[1])
			}
		})
	}
}

// TestWindows: no byte is sent that the client has not granted, and all are when it has.
func TestWindows(t *testing.T) {
	s := serve(t, true, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(bytes.Repeat([]byte("x"), 100_000))
	}), nil)
	c := dial(t, s, 10)
	c.get(1, "/")
	granted, got := 10, 0
	for {
		f, err := c.next()
		if err != nil {
			t.Fatal(err)
		}
		d, ok := f.(*http2.DataFrame)
		if !ok {
			continue
		}
		if got += len(d.Data()); got > granted {
			t.Fatalf("%d bytes, %d were granted", got, granted)
		}
		if d.StreamEnded() {
			break
		}
		if got < granted {
			continue
		}
		switch {
		case granted == 10: // less than nothing, and then more
			_ = c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 5})
			_ = c.WriteWindowUpdate(1, 4)
			_ = c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1000})
			granted = 1004 - 5 + 5
		case granted < 40_000:
			_ = c.WriteWindowUpdate(1, 50_000)
			granted += 50_000
		default:
			_ = c.WriteWindowUpdate(0, 200_000)
			_ = c.WriteWindowUpdate(1, 200_000)
			granted += 200_000
		}
	}
	if got != 100_000 {
		t.Errorf("%d bytes", got)
	}
}

// TestBodyIsBounded: what a handler does not read is not taken, and no other stream's bytes are in its way for good.
func TestBodyIsBounded(t *testing.T) {
	read := make(chan struct{})
	s := serve(t, true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-read
		n, err := io.Copy(io.Discard, r.Body)
		_, _ = fmt.Fprint(w, n, err)
	}), nil)
	c := dial(t, s, 1<<20)
	_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block("POST", "/"), EndHeaders: true})
	chunk := make([]byte, 16<<10)
	for range receiveWindow / len(chunk) {
		_ = c.WriteData(1, false, chunk)
	}
	close(read)
	sent, window := receiveWindow, 0
	for sent < 4<<20 { // more comes only when the window was given again
		f, err := c.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if u, ok := f.(*http2.WindowUpdateFrame); ok && u.StreamID == 1 {
			for window += int(u.Increment); window >= len(chunk); window -= len(chunk) {
				sent += len(chunk)
				_ = c.WriteData(1, false, chunk)
			}
		}
	}
	_ = c.WriteData(1, true, nil)
	for {
		f, err := c.next()
		if err != nil {
			t.Fatal(err)
		}
		if d, ok := f.(*http2.DataFrame); ok {
			if got, want := string(d.Data()), fmt.Sprint(sent, nil); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			return
		}
	}
}

// TestBodyBeyondTheWindow: who sends more than was granted is cut off.
func TestBodyBeyondTheWindow(t *testing.T) {
	s := serve(t, true, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }), nil)
	c := dial(t, s, 1<<20)
	_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block("POST", "/"), EndHeaders: true})
	go func() {
		out := c.beside()
		for range receiveWindow>>14 + 1 {
			_ = out.WriteData(1, false, make([]byte, 16<<10))
		}
	}()
	f, err := c.next()
	if g, ok := f.(*http2.GoAwayFrame); !ok || g.ErrCode != http2.ErrCodeFlowControl {
		t.Errorf("%v, %v", f, err)
	}
}

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

// TestEarlyResets: a client that resets its streams cannot have more handlers at work than it may have streams.
func TestEarlyResets(t *testing.T) {
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
		for id := uint32(1); ; id += 2 {
			out.get(id, "/")
			if out.WriteRSTStream(id, http2.ErrCodeCancel) != nil {
				return
			}
		}
	}()
	f, err := c.next()
	if g, ok := f.(*http2.GoAwayFrame); !ok || g.ErrCode != http2.ErrCodeEnhanceYourCalm {
		t.Errorf("%v, %v", f, err)
	}
	if most.Load() > 10 {
		t.Errorf("%d handlers", most.Load())
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

// TestUnreadAnswers: answers without a body do not pile up for a client that does not read, and takes care not to
// have too many streams.
func TestUnreadAnswers(t *testing.T) {
	const enough = 1_500_000 // more than the buffers of a connection hold
	handled := make(chan struct{}, enough)
	s := serve(t, true, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { handled <- struct{}{} }), nil)
	c := dial(t, s, 100)
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

// TestShutdown: streams that have begun end well, then the connection does, and no worker is left.
func TestShutdown(t *testing.T) {
	begun, end := make(chan struct{}), make(chan struct{})
	s := serve(t, true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/long" {
			close(begun)
			<-end
		}
		_, _ = w.Write([]byte("done"))
	}), nil)
	c := dial(t, s, 1000)
	c.get(1, "/long")
	<-begun
	down := make(chan error, 1)
	go func() { down <- s.Config.Shutdown(t.Context()) }()
	f, err := c.next()
	if g, ok := f.(*http2.GoAwayFrame); !ok || g.ErrCode != http2.ErrCodeNo || g.LastStreamID != 1 {
		t.Fatalf("%v, %v", f, err)
	}
	c.get(3, "/")
	close(end)
	if got := c.outcome(); got != "headers 1 200 false, data 1 4 true" {
		t.Errorf("%s", got)
	}
	if _, err := c.next(); err == nil {
		t.Error("the connection goes on")
	}
	if err := <-down; err != nil {
		t.Error(err)
	}
	awaitFrames(t, "h2.(*server).work", "h2.(*conn)")
}

// awaitFrames waits until no goroutine is in the functions.
func awaitFrames(t *testing.T, functions ...string) {
	t.Helper()
	for began := time.Now(); ; runtime.Gosched() {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		left := 0
		for _, f := range functions {
			left += strings.Count(string(stacks), f)
		}
		if left == 0 {
			return
		}
		if time.Since(began) > 10*time.Second {
			t.Fatalf("%d frames of this package are left:\n%s", left, stacks)
		}
	}
}

// TestUnusedWorkersEnd: what a crowd of requests has started does not wait for the next crowd.
func TestUnusedWorkersEnd(t *testing.T) {
	all := make(chan struct{})
	var begun atomic.Int64
	s := serve(t, true, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if begun.Add(1) == 20 {
			close(all)
		}
		<-all
	}), nil)
	c := dial(t, s, 1000)
	for id := uint32(1); id < 41; id += 2 {
		c.get(id, "/")
	}
	for answers := 0; answers < 20; {
		f, err := c.next()
		if err != nil {
			t.Fatal(err)
		}
		if h, ok := f.(*http2.MetaHeadersFrame); ok && h.StreamEnded() {
			answers++
		}
		if d, ok := f.(*http2.DataFrame); ok && d.StreamEnded() {
			answers++
		}
	}
	awaitFrames(t, "h2.(*server).work")
}

// TestIdleConnection: a connection without streams ends after the server's IdleTimeout.
func TestIdleConnection(t *testing.T) {
	s := serve(t, true, http.NotFoundHandler(), func(s *http.Server) { s.IdleTimeout = 50 * time.Millisecond })
	c := dial(t, s, 100)
	c.get(1, "/")
	for {
		f, err := c.next()
		if err != nil {
			t.Fatal(err)
		}
		if g, ok := f.(*http2.GoAwayFrame); ok {
			if g.ErrCode != http2.ErrCodeNo {
				t.Errorf("%v", g)
			}
			break
		}
	}
	if _, err := c.next(); err == nil {
		t.Error("the connection goes on")
	}
}

// TestManyStreams: bodies and answers of all sizes, on few connections at once, arrive whole.
func TestManyStreams(t *testing.T) {
	s := serve(t, true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		for step := 1; len(body) > 0; step = step*3 + 1 {
			n := min(step, len(body))
			_, _ = w.Write(body[:n])
			if step%2 == 0 {
				w.(http.Flusher).Flush()
			}
			body = body[n:]
		}
	}), nil)
	client := s.Client()
	var wg sync.WaitGroup
	for worker := range 32 {
		wg.Go(func() {
			for i := range 30 {
				size := (worker*7919 + i*104729) % 300_000
				if i%3 == 0 {
					size %= 3000
				}
				want := bytes.Repeat([]byte{byte(worker), byte(i), 7}, size/3+1)[:size]
				resp, err := client.Post(s.URL, "text/plain", bytes.NewReader(want))
				if err != nil {
					t.Error(err)
					return
				}
				got, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("%d of %d bytes, %v", len(got), len(want), err)
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkGet: a small answer, by this package and by net/http.
func BenchmarkGet(b *testing.B) {
	for _, own := range []bool{true, false} {
		b.Run(fmt.Sprintf("own=%v", own), func(b *testing.B) {
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header()["Content-Type"] = []string{"application/json"}
				_, _ = w.Write(make([]byte, 1400))
			}))
			s.EnableHTTP2 = true
			s.TLS = &tls.Config{NextProtos: []string{"h2"}}
			s.Config.TLSConfig = s.TLS
			if own {
				Configure(s.Config)
			}
			s.StartTLS()
			defer s.Close()
			client := s.Client()
			b.ReportAllocs()
			b.SetParallelism(8)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					resp, err := client.Get(s.URL)
					if err != nil {
						b.Error(err)
						return
					}
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			})
		})
	}
}
