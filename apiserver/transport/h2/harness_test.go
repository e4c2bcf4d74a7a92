package h2

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/must"
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
	must.OK(t, err)
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
		//wall: patience for goroutines to end
		if time.Since(began) > 10*time.Second {
			t.Fatalf("%d frames of this package are left:\n%s", left, stacks)
		}
	}
}
